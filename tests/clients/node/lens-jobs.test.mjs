// The lock lens over BullMQ, whose jobs have locks: nothing is found while workers renew and finish theirs, and a worker that
// was stopped for longer than its lock lasts is found when it goes on.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { Queue, QueueEvents, Worker } from "bullmq";
import { Redis } from "ioredis";
import { Server } from "./server.mjs";

const LOCK_MS = 30_000;

let server;
let client;
let connection;
before(async () => {
  server = await Server.start("--enable-clock-command", "yes");
  connection = { host: "127.0.0.1", port: server.port };
  client = new Redis(connection);
});
after(async () => {
  client?.disconnect();
  await server?.stop();
});

const findings = async () => {
  const found = await client.call("LOCKS", "LOG", "-1");
  return found.map((fields) => fields[fields.indexOf("rule") + 1]);
};

const until = async (what, isSo) => {
  const began = Date.now();
  while (!(await isSo())) {
    assert.ok(Date.now() - began < 60_000, `waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

test("workers that renew and finish their jobs raise no hint", async () => {
  const queue = new Queue("letters", { connection });
  const events = new QueueEvents("letters", { connection });
  await events.waitUntilReady();
  let renewed = 0;
  const work = async (job) => {
    const before = await client.call("LOCKS", "GET", `bull:letters:${job.id}:lock`);
    await new Promise((resolve) => setTimeout(resolve, 100));
    const shown = await client.call("LOCKS", "GET", `bull:letters:${job.id}:lock`);
    renewed += shown ? shown[shown.indexOf("renewals") + 1] : 0;
    assert.equal(before?.[before.indexOf("state") + 1] ?? "held", "held");
  };
  const options = { connection, concurrency: 4, lockDuration: LOCK_MS, lockRenewTime: 20 };
  const workers = [1, 2].map(() => new Worker("letters", work, options));
  const jobs = await queue.addBulk(Array.from({ length: 20 }, (_, number) => ({ name: "plain", data: { number } })));
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events, 60_000)));
  await Promise.all([...workers, events].map((each) => each.close()));
  await queue.close();
  assert.ok(renewed > 0, "no lock of a job was renewed");
  assert.deepEqual(await findings(), []);
});

test("a worker that was stopped for too long is found when it goes on", async () => {
  const queue = new Queue("reports", { connection });
  // Its process is stopped by the system while it works.
  const code = `
    import { Worker } from "bullmq";
    const connection = { host: "127.0.0.1", port: ${server.port} };
    const work = async (job) => {
      while ((await job.getState()) !== "gone") await new Promise((resolve) => setTimeout(resolve, 20));
    };
    const options = { connection, lockDuration: ${LOCK_MS}, lockRenewTime: 20, skipStalledCheck: true };
    new Worker("reports", work, options).on("error", () => {});
  `;
  const stopped = spawn(process.execPath, ["--input-type=module", "-e", code], {
    cwd: new URL(".", import.meta.url),
    stdio: "ignore",
  });
  try {
    const job = await queue.add("report", {});
    const lock = `bull:reports:${job.id}:lock`;
    // BullMQ takes the lock without a look, so the lens knows it from its first renewal on.
    await until("the lock is renewed", async () => (await client.call("LOCKS", "GET", lock)) !== null);
    stopped.kill("SIGSTOP");
    await client.call("CLOCK", "ADVANCE", `${LOCK_MS + 1000}`);
    let takesOver;
    const taken = new Promise((resolve) => {
      takesOver = resolve;
    });
    let finish;
    const finished = new Promise((resolve) => {
      finish = resolve;
    });
    const work = async () => {
      takesOver();
      await finished;
    };
    const next = new Worker("reports", work, { connection, lockDuration: LOCK_MS, lockRenewTime: 20, stalledInterval: 50 });
    await taken;
    await until("the next holder is known", async () => {
      const shown = await client.call("LOCKS", "GET", lock);
      return shown && shown[shown.indexOf("state") + 1] === "held";
    });
    assert.deepEqual(await findings(), []);
    stopped.kill("SIGCONT");
    await until("the late one is found", async () => (await findings()).length > 0);
    assert.deepEqual(await findings(), ["expired-while-held"]);
    finish();
    await next.close();
  } finally {
    stopped.kill("SIGKILL");
    await queue.close();
  }
});
