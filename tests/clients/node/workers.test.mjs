// Job queues and limits of Node: bee-queue waits for jobs by BRPOPLPUSH and keeps them in a hash, rate-limiter-flexible
// counts in scripts.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import BeeQueue from "bee-queue";
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
