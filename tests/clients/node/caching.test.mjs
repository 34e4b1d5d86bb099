// The copies of keys that node-redis keeps by itself, and forgets when it is told that they have changed.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { BasicClientSideCache, createClient } from "redis";
import { Server } from "./server.mjs";

const ROUNDS = 500;
const open = new Set();

async function connect(server, options = {}) {
  const client = createClient({ RESP: 3, socket: { host: "127.0.0.1", port: server.port }, ...options });
  client.on("error", () => {}); // what goes wrong also rejects the command that waits for it
  open.add(client);
  return client.connect();
}

afterEach(() => {
  for (const client of open) if (client.isOpen) client.destroy();
  open.clear();
});

describe("the cache of node-redis", () => {
  let server;
  let cache;
  let reader;
  let writer;

  before(async () => {
    server = await Server.start();
  });
  after(() => server?.stop());
  beforeEach(async () => {
    cache = new BasicClientSideCache({ recordStats: true });
    reader = await connect(server, { clientSideCache: cache });
    writer = await connect(server);
    await writer.flushDb();
    await reader.ping();
  });

  test("a copy is used until its key changes", async () => {
    await writer.set("k", "one");
    for (let read = 0; read < 10; read++) assert.equal(await reader.get("k"), "one");
    assert.equal(cache.stats().hitCount, 9);
    await writer.set("k", "two");
    await reader.ping(); // what was sent before its reply has been heard
    assert.equal(await reader.get("k"), "two");
    await writer.flushDb();
    await reader.ping();
    assert.equal(await reader.get("k"), null);
    assert.equal(cache.stats().hitCount, 9);
  });

  test("its own change is no exception", async () => {
    await reader.set("k", "one");
    assert.equal(await reader.get("k"), "one");
    await reader.set("k", "two");
    await reader.ping();
    assert.equal(await reader.get("k"), "two");
  });

  test("no copy is older than a write that was answered before", async () => {
    const stops = { isOver: false };
    let answered = 0;
    const writing = (async () => {
      for (let round = 0; round < ROUNDS; round++) answered = await writer.incr("counter");
      stops.isOver = true;
    })();
    while (!stops.isOver) {
      const least = answered;
      await reader.ping();
      const values = await Promise.all([reader.get("counter"), reader.get("counter")]);
      for (const value of values) assert.ok(Number(value ?? 0) >= least, `${value} is older than ${least}`);
    }
    await writing;
    await reader.ping();
    assert.equal(await reader.get("counter"), String(ROUNDS));
  });
});
