// The lock lens over lock libraries of npm, through ioredis with one connection for a whole process: nothing is found
// about one that is used as it should be, and what goes wrong is found under its name. The other libraries are tried by
// their scripts, in tests/locks/lock_libraries.rs.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { Redis } from "ioredis";
import Redlock from "redlock";
import Redlock4 from "redlock4";
import { Mutex } from "redis-semaphore";
import { Server } from "./server.mjs";

const KEY = "lock";
const HELD_MS = 30_000;

const once = { retryCount: 0 };
const held = (lock, release, extend) => ({ lock, release, extend });

/** How each library takes a lock: null, or what can be done with it. */
const LIBRARIES = {
  "redlock 5": async (client) => {
    const lock = await new Redlock([client], once).acquire([KEY], HELD_MS).catch(() => null);
    return lock && held(lock, () => lock.release(), () => lock.extend(HELD_MS));
  },
  "redlock 4": async (client) => {
    const redlock = new Redlock4([client], once);
    redlock.on("clientError", () => {});
    const lock = await redlock.lock(KEY, HELD_MS).catch(() => null);
    return lock && held(lock, () => lock.unlock(), () => lock.extend(HELD_MS));
  },
  "redis-semaphore": async (client) => {
    const options = { lockTimeout: HELD_MS, refreshInterval: 0, acquireAttemptsLimit: 1, onLockLost: () => {} };
    const mutex = new Mutex(client, KEY, options);
    return (await mutex.tryAcquire()) ? held(mutex, () => mutex.release()) : null;
  },
};

/** The key of a library's lock. */
const keyOf = (name) => (name === "redis-semaphore" ? `mutex:${KEY}` : KEY);

for (const [name, take] of Object.entries(LIBRARIES)) {
  describe(`the lens over ${name}`, () => {
    let server;
    let process;
    let other;
    const key = keyOf(name);

    const rules = async () => {
      const found = await other.call("LOCKS", "LOG", "-1");
      return found.map((fields) => fields[fields.indexOf("rule") + 1]).reverse();
    };
    const advance = (ms) => other.call("CLOCK", "ADVANCE", ms);

    before(async () => {
      server = await Server.start("--enable-clock-command", "yes");
    });
    after(() => server.stop());
    beforeEach(async () => {
      [process, other] = [1, 2].map(() => new Redis({ host: "127.0.0.1", port: server.port }));
      await other.call("CLOCK", "FREEZE");
      await other.flushall();
      await other.call("LOCKS", "RESET");
    });
    afterEach(() => {
      process.disconnect();
      other.disconnect();
    });

    test("correct use is seen and raises no hint", async () => {
      for (let round = 0; round < 3; round += 1) {
        const lock = await take(process);
        assert.ok(lock);
        const shown = await other.call("LOCKS", "GET", key);
        assert.equal(shown[shown.indexOf("state") + 1], "held");
        assert.equal(await take(process), null, "another task of the process");
        assert.equal(await take(other), null);
        await advance(10_000);
        const extended = await lock.extend?.();
        await (extended?.release?.() ?? extended?.unlock?.() ?? lock.release());
        const next = await take(other);
        assert.ok(next);
        await next.release();
      }
      assert.deepEqual(await rules(), []);
    });

    test("a holder that is late is found, though the process has one connection", async () => {
      const late = await take(process);
      await advance(HELD_MS + 1000);
      assert.ok(await take(process));
      await Promise.resolve(late.release()).catch(() => {});
      assert.deepEqual(await rules(), ["expired-while-held"]);
    });

    test("a lock that another deletes, overwrites or prolongs is found", async () => {
      for (const [line, rule] of [
        [["DEL", key], "deleted-by-another"],
        [["SET", key, "a-token-of-another", "PX", HELD_MS], "overwritten-by-another"],
        [["PERSIST", key], "extended-by-another"],
      ]) {
        await other.flushall();
        await other.call("LOCKS", "RESET");
        assert.ok(await take(process));
        await other.call(...line);
        assert.deepEqual(await rules(), [rule]);
      }
    });

    test("a lock that is flushed away is found", async () => {
      const lock = await take(process);
      await other.flushall();
      await Promise.resolve(lock.release()).catch(() => {});
      assert.deepEqual(await rules(), ["lost-while-held"]);
    });
  });
}
