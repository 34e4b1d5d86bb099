// Locks of the package redlock over two front-ends of one store, which are one place, not two: each redlock here has one
// "instance", the front-end that its process has chosen. (With both of them no lock could ever be had.) Prints `ok name` or `not ok name` for each check.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock, { ExecutionError } from "redlock";

const ports = process.argv.slice(2, 4).map(Number);
const CONTENDERS = 6; // half of them at each front-end
const TURNS = 10; // for each contender
const EVENT_MS_MAX = 60_000; // what must come soon
const HELD_MS = 300_000; // longer than any check holds a lock
const once = { retryCount: 0 };

const open = new Set();

function connect(port, protocol) {
  const client = new Redis({ host: "127.0.0.1", port, protocol });
  open.add(client);
  return client;
}

async function acquireSoon(redlock, resources) {
  const deadline = Date.now() + EVENT_MS_MAX;
  for (;;) {
    try {
      return await redlock.acquire(resources, HELD_MS);
    } catch (error) {
      assert.ok(error instanceof ExecutionError && Date.now() < deadline, `${error}`);
      await sleep(Math.random() * 10);
    }
  }
}

const checks = {
  "a lock is taken at one front-end, refused at the other, and let go": async ([one, other], [mine, yours]) => {
    const lock = await mine.acquire(["report"], HELD_MS);
    assert.equal(await other.get("report"), lock.value);
    await assert.rejects(yours.acquire(["report"], HELD_MS, once), ExecutionError);
    assert.equal(await one.get("report"), lock.value);
    await lock.release();
    await (await yours.acquire(["report"], HELD_MS, once)).release();
    assert.equal(await one.exists("report"), 0);
  },
  "several resources are taken together or not at all": async ([one, other], [mine, yours]) => {
    const lock = await yours.acquire(["b"], HELD_MS);
    await assert.rejects(mine.acquire(["a", "b", "c"], HELD_MS, once), ExecutionError);
    assert.equal(await other.exists("a", "b", "c"), 1);
    await lock.release();
    const three = await mine.acquire(["a", "b", "c"], HELD_MS);
    assert.equal(await other.exists("a", "b", "c"), 3);
    await three.release();
    assert.equal(await other.exists("a", "b", "c"), 0);
  },
  "extending at one front-end counts at the other": async ([, other], [mine, yours]) => {
    let lock = await mine.acquire(["report"], 100_000);
    lock = await lock.extend(HELD_MS);
    const left = await other.pttl("report");
    assert.ok(200_000 < left && left <= HELD_MS, `${left} ms`);
    // The other process knows the lock's value: it goes on with the lock at its own front-end.
    lock.redlock = yours;
    await lock.release();
    assert.equal(await other.exists("report"), 0);
  },
  "a lock that expired is taken by the next at the other": async ([, other], [mine, yours]) => {
    const began = Date.now();
    const lock = await mine.acquire(["report"], 500);
    const next = await acquireSoon(yours, ["report"]);
    assert.ok(Date.now() - began >= 500, "two hold the lock");
    await assert.rejects(lock.extend(HELD_MS), /already-expired/);
    await assert.rejects(lock.release(), ExecutionError);
    assert.equal(await other.get("report"), next.value);
    await next.release();
  },
  "contenders at both count under the lock": async (clients, redlocks) => {
    let [counted, holders] = [0, 0];
    const count = async (_, number) => {
      for (let turn = 0; turn < TURNS; turn++) {
        const lock = await acquireSoon(redlocks[number % 2], ["counting"]);
        assert.equal(++holders, 1, "two hold the lock");
        const before = counted;
        await clients[number % 2].ping();
        counted = before + 1;
        holders--;
        await lock.release();
      }
    };
    await Promise.all(Array.from({ length: CONTENDERS }, count));
    assert.equal(counted, CONTENDERS * TURNS);
  },
  "scripts that a front-end forgot are sent again": async ([one, other], [mine, yours]) => {
    const lock = await mine.acquire(["report"], HELD_MS);
    await Promise.all([one, other].map((client) => client.script("FLUSH")));
    await assert.rejects(yours.acquire(["report"], HELD_MS, once), ExecutionError);
    await lock.release();
    assert.equal(await other.exists("report"), 0);
  },
};

let failures = 0;
for (const protocol of [2, 3]) {
  for (const [name, check] of Object.entries(checks)) {
    const clients = ports.map((port) => connect(port, protocol));
    const redlocks = clients.map((client) => new Redlock([client], { retryCount: 0 }));
    try {
      await clients[0].flushall();
      await check(clients, redlocks);
      console.log(`ok redlock in RESP${protocol}: ${name}`);
    } catch (error) {
      failures++;
      console.log(`not ok redlock in RESP${protocol}: ${name}`);
      console.error(error);
    }
    for (const client of open) client.disconnect();
    open.clear();
  }
}
process.exit(failures ? 1 : 0);
