// Locks of the package redlock over five servers, through ioredis in RESP2 and in RESP3. It takes, extends and lets
// go by Lua scripts on every server at once (EVALSHA, and EVAL after NOSCRIPT), and holds what a quorum of three says.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock, { ExecutionError, ResourceLockedError } from "redlock";
import { Server } from "./server.mjs";

const SERVERS = 5;
const CONTENDERS = 5;
const TURNS = 10; // for each contender
const EVENT_MS_MAX = 10_000; // what must come soon
const HELD_MS = 60_000; // longer than any test holds a lock

const open = new Set();

/** A connection to each server. One that is down refuses at once: it is redlock that decides what to try again. */
function connect(servers, protocol) {
  return servers.map(({ port }) => {
    const options = { enableOfflineQueue: false, maxRetriesPerRequest: 0, retryStrategy: () => 20 };
    const client = new Redis({ host: "127.0.0.1", port, protocol, ...options });
    client.on("error", () => {}); // what goes wrong also rejects the command that waits for it
    open.add(client);
    return client;
  });
}

const ready = (clients) =>
  Promise.all(
    clients.map((client) => client.status === "ready" || new Promise((resolve) => client.once("ready", resolve))),
  );

/** redlock answers when a quorum has: this waits for the others too, and tells how all of them voted at last. */
async function allVotes(operation) {
  const result = await operation;
  return { result, ...(await result.attempts.at(-1)) };
}

const acquired = async (operation) => (await allVotes(operation)).result;

/** Asks again and again, up to a limit, until something holds. */
async function soon(holds, complaint) {
  const deadline = Date.now() + EVENT_MS_MAX;
  while (!(await holds())) assert.ok(Date.now() < deadline, complaint);
}

afterEach(() => {
  for (const client of open) client.disconnect();
  open.clear();
});

for (const protocol of [2, 3]) {
  describe(`redlock over five servers in RESP${protocol}`, () => {
    let servers;
    let clients;
    const once = { retryCount: 0 };

    before(async () => {
      servers = await Promise.all(Array.from({ length: SERVERS }, () => Server.start()));
    });
    after(() => Promise.all((servers ?? []).map((server) => server.stop())));
    beforeEach(async () => {
      clients = connect(servers, protocol);
      await ready(clients);
      await Promise.all(clients.map((client) => client.flushall()));
    });

    const onAll = (command, ...words) => Promise.all(clients.map((client) => client.call(command, ...words)));

    test("a lock is taken on all servers, refused, and let go on all", async () => {
      const [mine, yours] = [new Redlock(clients), new Redlock(clients)];
      const { result: lock, votesFor } = await allVotes(mine.acquire(["report"], HELD_MS));
      assert.equal(votesFor.size, SERVERS);
      assert.deepEqual(await onAll("GET", "report"), Array(SERVERS).fill(lock.value));
      for (const left of await onAll("PTTL", "report")) assert.ok(0 < left && left <= HELD_MS, `${left} ms`);
      const refusal = await yours.acquire(["report"], HELD_MS, once).catch((error) => error);
      assert.ok(refusal instanceof ExecutionError, `${refusal}`);
      const { votesAgainst } = await refusal.attempts[0];
      assert.equal(votesAgainst.size, SERVERS);
      for (const vote of votesAgainst.values()) assert.ok(vote instanceof ResourceLockedError, `${vote}`);
      // The refused one has tidied up after itself, and only after itself.
      assert.deepEqual(await onAll("GET", "report"), Array(SERVERS).fill(lock.value));
      assert.equal((await allVotes(lock.release())).votesFor.size, SERVERS);
      assert.deepEqual(await onAll("EXISTS", "report"), Array(SERVERS).fill(0));
      await acquired(yours.acquire(["report"], HELD_MS, once));
    });

    test("several resources are taken together or not at all", async () => {
      const redlock = new Redlock(clients, once);
      const one = await acquired(redlock.acquire(["b"], HELD_MS));
      await assert.rejects(redlock.acquire(["a", "b", "c"], HELD_MS), ExecutionError);
      assert.deepEqual(await onAll("EXISTS", "a", "b", "c"), Array(SERVERS).fill(1));
      await allVotes(one.release());
      const three = await acquired(redlock.acquire(["a", "b", "c"], HELD_MS));
      assert.deepEqual(await onAll("EXISTS", "a", "b", "c"), Array(SERVERS).fill(3));
      await allVotes(three.release());
      assert.equal((await onAll("DBSIZE")).every((left) => left === 0), true);
    });

    test("extending begins the time anew", async () => {
      const redlock = new Redlock(clients);
      const lock = await acquired(redlock.acquire(["report"], 10_000));
      const { result: longer, votesFor } = await allVotes(lock.extend(HELD_MS));
      assert.equal(votesFor.size, SERVERS);
      assert.equal(longer.value, lock.value);
      for (const left of await onAll("PTTL", "report")) assert.ok(10_000 < left && left <= HELD_MS, `${left} ms`);
      await assert.rejects(lock.extend(HELD_MS), /already-expired/);
      await longer.release();
    });

    test("a lock is lost with three servers, not with two", async () => {
      const redlock = new Redlock(clients, once);
      const lock = await acquired(redlock.acquire(["report"], HELD_MS));
      await Promise.all(clients.slice(0, 2).map((client) => client.set("report", "other")));
      const longer = await acquired(lock.extend(HELD_MS));
      await clients[2].del("report");
      await assert.rejects(longer.extend(HELD_MS), ExecutionError);
      await assert.rejects(longer.release(), ExecutionError);
      // The script deletes only its own key, where that still exists, and no other client's.
      const values = async () => `${await onAll("GET", "report")}`;
      await soon(async () => (await values()) === "other,other,,,", "the keys are not as they should be");
    });

    test("a lock that expired is taken by the next", async () => {
      const redlock = new Redlock(clients, once);
      const mine = await acquired(redlock.acquire(["report"], 50));
      const isOver = async () => (await onAll("EXISTS", "report")).every((there) => there === 0);
      await soon(isOver, "the lock never expired");
      const yours = await acquired(redlock.acquire(["report"], HELD_MS));
      await assert.rejects(mine.extend(HELD_MS), /already-expired/);
      await assert.rejects(mine.release(), ExecutionError);
      assert.deepEqual(await onAll("GET", "report"), Array(SERVERS).fill(yours.value));
    });

    test("a lock is extended by itself while its holder works", async () => {
      const redlock = new Redlock(clients);
      await redlock.using(["report"], 20_000, { automaticExtensionThreshold: 19_750 }, async (signal) => {
        for (let time = 0; time < 2; time++) {
          await onAll("PEXPIRE", "report", 10_000);
          const isLong = async () => (await onAll("PTTL", "report")).every((left) => left > 15_000);
          await soon(isLong, "the lock was not extended");
        }
        assert.equal(signal.aborted, false);
      });
      const isFree = async () => (await onAll("EXISTS", "report")).every((there) => there === 0);
      await soon(isFree, "the lock was not let go");
    });

    test("five contenders with connections of their own count under the lock", async () => {
      // Without the lock, reading and writing in two steps would lose counts.
      await clients[0].set("counter", 0);
      const count = async () => {
        const own = connect(servers, protocol);
        await ready(own);
        const redlock = new Redlock(own, once);
        // Tried again here: between tries of its own redlock keeps the minority of servers that it got.
        const acquire = async () => {
          const deadline = Date.now() + EVENT_MS_MAX;
          for (;;) {
            try {
              return await acquired(redlock.acquire(["counting"], HELD_MS));
            } catch (error) {
              assert.ok(error instanceof ExecutionError && Date.now() < deadline, `${error}`);
              await sleep(Math.random() * 20);
            }
          }
        };
        for (let turn = 0; turn < TURNS; turn++) {
          const lock = await acquire();
          await own[0].set("counter", Number(await own[0].get("counter")) + 1);
          await allVotes(lock.release());
        }
      };
      await Promise.all(Array.from({ length: CONTENDERS }, count));
      assert.equal(await clients[0].get("counter"), `${CONTENDERS * TURNS}`);
    });

    test("scripts that a server forgot are sent again", async () => {
      const redlock = new Redlock(clients, once);
      const lock = await acquired(redlock.acquire(["report"], HELD_MS));
      await onAll("SCRIPT", "FLUSH");
      const longer = await acquired(lock.extend(HELD_MS));
      await onAll("SCRIPT", "FLUSH", "SYNC");
      await allVotes(longer.release());
      assert.deepEqual(await onAll("EXISTS", "report"), Array(SERVERS).fill(0));
    });

    test("two servers may stop, three may not", async () => {
      const redlock = new Redlock(clients, once);
      let lock = await acquired(redlock.acquire(["report"], HELD_MS));
      for (let stopped = 1; stopped <= 2; stopped++) {
        await servers[stopped - 1].stop();
        const votes = await allVotes(lock.extend(HELD_MS));
        lock = votes.result;
        assert.deepEqual([votes.votesFor.size, votes.votesAgainst.size], [SERVERS - stopped, stopped]);
        await assert.rejects(redlock.acquire(["report"], HELD_MS), ExecutionError);
        await allVotes((await acquired(redlock.acquire(["another"], HELD_MS))).release());
      }
      await allVotes(lock.release());
      lock = await acquired(redlock.acquire(["report"], HELD_MS));
      await servers[2].stop();
      await assert.rejects(lock.extend(HELD_MS), ExecutionError);
      await assert.rejects(lock.release(), ExecutionError);
      await assert.rejects(redlock.acquire(["another"], HELD_MS), ExecutionError);
      // Two servers granted the lock before it failed: redlock leaves nothing of it there.
      const isEmpty = async () => !(await Promise.all(clients.slice(3).map((client) => client.dbsize()))).some(Boolean);
      await soon(isEmpty, "a lock that was not granted stays");
      await Promise.all(servers.slice(0, 3).map((server) => server.start()));
      await ready(clients);
      const { votesFor } = await allVotes(redlock.acquire(["another"], HELD_MS));
      assert.equal(votesFor.size, SERVERS);
    });
  });
}
