// Job queues and limits of Node: bee-queue waits for jobs by BRPOPLPUSH and keeps them in a hash, BullMQ waits by
// BZPOPMIN, moves jobs by scripts over keys that it does not declare and tells events by a stream,
// rate-limiter-flexible counts in scripts.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import BeeQueue from "bee-queue";
import { Queue, QueueEvents, Worker } from "bullmq";
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { Server } from "./server.mjs";

const JOBS = 100;

let server;
before(async () => {
  server = await Server.start();
});
after(() => server?.stop());

test("each job of bee-queue is done once", async () => {
  const queue = new BeeQueue("jobs", { redis: { host: "127.0.0.1", port: server.port } });
  const done = [];
  const all = new Promise((resolve) => {
    queue.on("succeeded", (job, result) => {
      assert.equal(result, job.data.number + 1);
      if (done.push(job.data.number) === JOBS) resolve();
    });
  });
  queue.process(4, async (job) => job.data.number + 1);
  for (let number = 0; number < JOBS; number++) await queue.createJob({ number }).save();
  await all;
  assert.deepEqual(
    done.toSorted((one, other) => one - other),
    Array.from({ length: JOBS }, (_, number) => number),
  );
  await queue.close();
});

test("rate-limiter-flexible lets so many pass and no more", async () => {
  const client = new Redis({ host: "127.0.0.1", port: server.port });
  const limiter = new RateLimiterRedis({ storeClient: client, points: 5, duration: 60 });
  const passed = await Promise.allSettled(Array.from({ length: 9 }, () => limiter.consume("user")));
  assert.equal(passed.filter((one) => one.status === "fulfilled").length, 5);
  client.disconnect();
});

test("BullMQ does each job once, late ones in time, and tries failed ones again", async () => {
  const connection = { host: "127.0.0.1", port: server.port };
  const queue = new Queue("letters", { connection });
  // From the first event on: otherwise it begins with what comes after its first XREAD, which may be sent late.
  const events = new QueueEvents("letters", { connection, lastEventId: "0" });
  await events.waitUntilReady();
  const seen = { completed: new Set(), delayed: new Set(), retries: 0 };
  events.on("completed", ({ jobId }) => seen.completed.add(jobId));
  events.on("delayed", ({ jobId }) => seen.delayed.add(jobId));
  const times = new Map();
  const worker = new Worker(
    "letters",
    async (job) => {
      times.set(job.id, [...(times.get(job.id) ?? []), Date.now()]);
      if (job.data.failures > job.attemptsMade) throw new Error("not yet");
      return job.data.number + 1;
    },
    { connection, concurrency: 4 },
  );
  worker.on("failed", () => seen.retries++);
  const began = Date.now();
  const jobs = await queue.addBulk(Array.from({ length: JOBS }, (_, number) => ({ name: "plain", data: { number } })));
  const late = await queue.add("late", { number: 1000 }, { delay: 300 });
  const failing = await queue.add(
    "failing",
    { number: 2000, failures: 2 },
    { attempts: 3, backoff: { type: "fixed", delay: 50 } },
  );
  const urgent = await queue.add("urgent", { number: 3000 }, { priority: 1, removeOnComplete: true });
  const all = [...jobs, late, failing, urgent];
  const results = await Promise.all(all.map((job) => job.waitUntilFinished(events, 20_000)));
  assert.deepEqual(results, [...Array.from({ length: JOBS }, (_, number) => number + 1), 1001, 2001, 3001]);
  assert.deepEqual(new Set(all.map((job) => job.id)), seen.completed);
  assert.ok(seen.delayed.has(late.id) && times.get(late.id)[0] - began >= 300);
  assert.deepEqual([times.get(failing.id).length, seen.retries], [3, 2]);
  assert.ok(jobs.every((job) => times.get(job.id).length === 1));
  const counts = await queue.getJobCounts("completed", "failed", "waiting", "delayed", "active");
  assert.deepEqual(counts, { completed: JOBS + 2, failed: 0, waiting: 0, delayed: 0, active: 0 });
  assert.equal(await queue.getJob(urgent.id), undefined);
  await worker.close();
  await events.close();
  await queue.obliterate();
  await queue.close();
});
