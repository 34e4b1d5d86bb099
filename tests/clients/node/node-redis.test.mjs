// Conversations of node-redis with the server, the same ones in RESP2 and in RESP3.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { createClient, RESP_TYPES } from "redis";
import { Server } from "./server.mjs";

const EXPIRY_MS_MAX = 10_000; // an expiry of milliseconds must have come by then
const CONNECTIONS = 200;
const PIPELINE_COMMANDS = 10_000;
const ALL_BYTES = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

const open = new Set();

async function connect(server, RESP, { socket, ...options } = {}) {
  const client = createClient({ RESP, socket: { host: "127.0.0.1", port: server.port, ...socket }, ...options });
  client.on("error", () => {}); // what goes wrong also rejects the command that waits for it
  open.add(client);
  return client.connect();
}

// The library takes a refusal for a broken connection and would try again for ever.
function connectOnce(server, RESP, options) {
  return connect(server, RESP, { socket: { reconnectStrategy: false }, ...options });
}

afterEach(() => {
  for (const client of open) if (client.isOpen) client.destroy();
  open.clear();
});

function assertWithin(value, low, high) {
  assert.ok(low <= value && value <= high, `${value} is not within ${low} and ${high}`);
}

for (const RESP of [2, 3]) {
  describe(`node-redis in RESP${RESP}`, () => {
    let server;
    let client;

    before(async () => {
      server = await Server.start();
    });
    after(() => server?.stop());
    beforeEach(async () => {
      client = await connect(server, RESP);
      await client.flushDb();
    });

    test("a client introduces itself and chooses its database", async () => {
      // On connecting the library sends HELLO with SETNAME (RESP3) or CLIENT SETNAME, SELECT and CLIENT SETINFO.
      const named = await connect(server, RESP, { name: "painter", database: 3 });
      assert.equal(await named.ping(), "PONG");
      assert.equal(await named.clientGetName(), "painter");
      assert.equal((await named.hello()).proto, RESP);
      assert.equal(await named.set("canvas", "blue"), "OK");
      assert.equal(await named.get("canvas"), "blue");
      assert.equal(await client.get("canvas"), null);
      await named.flushDb();
    });

    // SETNX, SET, GET, GETSET, DEL

    test("SETNX sets once", async () => {
      assert.equal(await client.setNX("mykey", "Hello"), 1);
      assert.equal(await client.setNX("mykey", "World"), 0);
      assert.equal(await client.get("mykey"), "Hello");
    });

    test("GET of an absent key is null", async () => {
      assert.equal(await client.get("nosuchkey"), null);
    });

    test("SET overwrites and forgets the expiry", async () => {
      assert.equal(await client.set("key", "old", { expiration: { type: "EX", value: 100 } }), "OK");
      assert.equal(await client.set("key", "new"), "OK");
      assert.equal(await client.get("key"), "new");
      assert.equal(await client.ttl("key"), -1);
    });

    test("SET NX and XX look whether the key is there", async () => {
      assert.equal(await client.set("key", "a", { condition: "XX" }), null);
      assert.equal(await client.set("key", "b", { condition: "NX" }), "OK");
      assert.equal(await client.set("key", "c", { condition: "NX" }), null);
      assert.equal(await client.get("key"), "b");
      assert.equal(await client.set("key", "d", { condition: "XX" }), "OK");
      assert.equal(await client.get("key"), "d");
    });

    test("SET GET answers the old value", async () => {
      assert.equal(await client.set("key", "first", { GET: true }), null);
      assert.equal(await client.set("key", "second", { GET: true }), "first");
      assert.equal(await client.set("key", "third", { condition: "NX", GET: true }), "second");
      assert.equal(await client.get("key"), "second");
    });

    test("SET takes an expiry in four ways", async () => {
      const now = Date.now();
      for (const expiration of [
        { type: "EX", value: 100 },
        { type: "PX", value: 100_000 },
        { type: "EXAT", value: Math.floor(now / 1000) + 100 },
        { type: "PXAT", value: now + 100_000 },
      ]) {
        const key = expiration.type;
        assert.equal(await client.set(key, "v", { expiration }), "OK");
        assertWithin(await client.ttl(key), 60, 100);
        assertWithin(await client.pTTL(key), 60_000, 100_000);
      }
    });

    test("SET KEEPTTL keeps the expiry", async () => {
      await client.set("key", "old", { expiration: { type: "EX", value: 100 } });
      assert.equal(await client.set("key", "new", { expiration: "KEEPTTL" }), "OK");
      assert.equal(await client.get("key"), "new");
      assertWithin(await client.ttl("key"), 60, 100);
    });

    test("a key set to expire in the past is absent", async () => {
      assert.equal(await client.set("lock", "a", { expiration: { type: "EXAT", value: 1 } }), "OK");
      assert.equal(await client.get("lock"), null);
      assert.equal(await client.setNX("lock", "b"), 1);
    });

    test("GETSET swaps and forgets the expiry", async () => {
      assert.equal(await client.getSet("key", "first"), null);
      await client.expire("key", 100);
      assert.equal(await client.getSet("key", "second"), "first");
      assert.equal(await client.get("key"), "second");
      assert.equal(await client.ttl("key"), -1);
    });

    test("DEL counts the keys that were there", async () => {
      await client.set("key1", "Hello");
      await client.set("key2", "World");
      assert.equal(await client.del(["key1", "key2", "key3"]), 2);
      assert.equal(await client.del("key1"), 0);
      assert.equal(await client.get("key1"), null);
    });

    // Locks by SET NX PX

    test("a lock is released only by its holder", async () => {
      const expiration = { type: "PX", value: 30_000 };
      const take = (token) => client.set("lock", token, { condition: "NX", expiration });
      const release = async (token) => ((await client.get("lock")) === token ? client.del("lock") : 0);
      assert.equal(await take("mine"), "OK");
      assert.equal(await take("yours"), null);
      assert.equal(await release("yours"), 0);
      assert.equal(await release("mine"), 1);
      assert.equal(await take("yours"), "OK");
    });

    test("a lock that expired can be taken again", async () => {
      await client.set("lock", "a", { condition: "NX", expiration: { type: "PX", value: 50 } });
      const deadline = Date.now() + EXPIRY_MS_MAX;
      while ((await client.set("lock", "b", { condition: "NX" })) === null) {
        assert.ok(Date.now() < deadline, "the lock never expired");
      }
      assert.equal(await client.get("lock"), "b");
      assert.equal(await client.ttl("lock"), -1);
    });

    // Keys and the server

    test("EXISTS and TYPE tell what is there", async () => {
      await client.set("here", "v");
      assert.equal(await client.exists(["here", "here", "nosuchkey"]), 2);
      assert.equal(await client.exists("nosuchkey"), 0);
      assert.equal(await client.type("here"), "string");
      assert.equal(await client.type("nosuchkey"), "none");
    });

    test("an expiry is given, seen and taken away", async () => {
      assert.deepEqual([await client.ttl("key"), await client.pTTL("key")], [-2, -2]);
      assert.equal(await client.expire("key", 100), 0);
      await client.set("key", "v");
      assert.deepEqual([await client.ttl("key"), await client.pTTL("key")], [-1, -1]);
      assert.equal(await client.expire("key", 100), 1);
      assertWithin(await client.ttl("key"), 60, 100);
      assert.equal(await client.pExpire("key", 500_000), 1);
      assertWithin(await client.pTTL("key"), 460_000, 500_000);
      assert.equal(await client.persist("key"), 1);
      assert.equal(await client.persist("key"), 0);
      assert.equal(await client.ttl("key"), -1);
      assert.equal(await client.pExpire("key", -1), 1);
      assert.equal(await client.exists("key"), 0);
    });

    test("DBSIZE counts and FLUSHDB empties", async () => {
      assert.equal(await client.dbSize(), 0);
      for (let number = 0; number < 5; number++) await client.set(`key${number}`, "v");
      assert.equal(await client.dbSize(), 5);
      assert.equal(await client.flushDb(), "OK");
      assert.equal(await client.dbSize(), 0);
    });

    test("INFO describes the server", async () => {
      await client.set("key", "v");
      const info = await client.info();
      assert.match(info, /^redis_version:\d+\.\d+\.\d+\r$/m);
      assert.match(info, new RegExp(`^tcp_port:${server.port}\r$`, "m"));
      assert.match(info, /^connected_clients:[1-9]\d*\r$/m);
      assert.match(info, /^db0:keys=1,/m);
      assert.doesNotMatch(await client.info("clients"), /^tcp_port:/m);
    });

    test("CONFIG GET tells parameters by name and pattern", async () => {
      assert.deepEqual({ ...(await client.configGet("port")) }, { port: `${server.port}` });
      assert.deepEqual({ ...(await client.configGet("sav?")) }, { save: "" });
      assert.deepEqual({ ...(await client.configGet("nosuchparameter")) }, {});
    });

    // Much at once

    test("a pipeline answers ten thousand commands in order", async () => {
      const pipeline = client.multi(); // sent without MULTI and EXEC by execAsPipeline
      const expected = [];
      for (let number = 0; number < PIPELINE_COMMANDS / 2; number++) {
        pipeline.set(`key:${number}`, `value:${number}`).get(`key:${number}`);
        expected.push("OK", `value:${number}`);
      }
      assert.deepEqual(await pipeline.execAsPipeline(), expected);
      assert.equal(await client.dbSize(), PIPELINE_COMMANDS / 2);
    });

    test("keys and values may hold any bytes", async () => {
      const bytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
      for (const binary of [
        ALL_BYTES,
        Buffer.concat([ALL_BYTES, Buffer.from(ALL_BYTES).reverse()]),
        ...["\0", "\r\n", "*1\r\n$4\r\nPING\r\n", "$-1\r\n", ""].map((text) => Buffer.from(text)),
      ]) {
        const key = Buffer.concat([Buffer.from("key"), binary]);
        const longer = Buffer.concat([Buffer.from("\0\r\n"), binary]);
        assert.equal(await bytes.setNX(key, binary), 1);
        assert.equal(await bytes.set(binary, binary), "OK");
        assert.deepEqual(await bytes.get(key), binary);
        assert.deepEqual(await bytes.getSet(binary, longer), binary);
        assert.deepEqual(await bytes.get(binary), longer);
        assert.equal(await bytes.del(binary), 1);
      }
    });

    test("a value of 64 MiB comes back unchanged", async () => {
      const value = randomBytes(64 << 20);
      assert.equal(await client.set("large", value), "OK");
      const bytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
      assert.ok(value.equals(await bytes.get("large")), "the value changed on its way");
      assert.equal(await client.del("large"), 1);
    });

    test("of two hundred connections one wins and all are served", async () => {
      const clients = await Promise.all(Array.from({ length: CONNECTIONS }, () => connect(server, RESP)));
      const [, connected] = (await client.info("clients")).match(/^connected_clients:(\d+)/m);
      assert.ok(connected >= CONNECTIONS, `${connected} connections`);
      const answers = await Promise.all(
        clients.map(async (each, number) => {
          const won = await each.setNX("prize", `${number}`);
          const stored = await each.set(`own:${number}`, `value:${number}`);
          return { won, own: [stored, await each.get(`own:${number}`)] };
        }),
      );
      const winners = answers.flatMap(({ won }, number) => (won === 1 ? [number] : []));
      assert.equal(winners.length, 1);
      assert.equal(await client.get("prize"), `${winners[0]}`);
      assert.deepEqual(answers.map(({ own }) => own), clients.map((_, number) => ["OK", `value:${number}`]));
    });

    // Errors

    test("errors carry the texts of Redis", async () => {
      await client.set("text", "abc");
      for (const [command, message] of [
        [["SETNX", "k"], "ERR wrong number of arguments for 'setnx' command"],
        [["GET"], "ERR wrong number of arguments for 'get' command"],
        [["SET", "k", "v", "NX", "XX"], "ERR syntax error"],
        [["SET", "k", "v", "EX", "0"], "ERR invalid expire time in 'set' command"],
        [["EXPIRE", "text", "soon"], "ERR value is not an integer or out of range"],
        [["NOSUCH", "a"], "ERR unknown command 'NOSUCH', with args beginning with: 'a' "],
      ]) {
        await assert.rejects(client.sendCommand(command), { message });
      }
      assert.equal(await client.get("text"), "abc");
    });

    test("an error among pipelined commands leaves its neighbours alone", async () => {
      const [first, error, last] = await Promise.allSettled([
        client.set("key", "v"),
        client.sendCommand(["SETNX", "key"]),
        client.get("key"),
      ]);
      assert.deepEqual([first.value, last.value], ["OK", "v"]);
      assert.equal(error.reason.message, "ERR wrong number of arguments for 'setnx' command");
    });
  });

  describe(`node-redis in RESP${RESP} and a restart`, () => {
    let server;
    before(async () => {
      server = await Server.start();
    });
    after(() => server?.stop());

    test("a client comes back with its name and database", async () => {
      const client = await connect(server, RESP, { name: "patient", database: 3 });
      assert.equal(await client.set("key", "before"), "OK");
      const noticed = new Promise((resolve) => client.once("reconnecting", resolve));
      await server.stop();
      await noticed;
      const asked = client.get("key"); // waits in the library's queue until the server is back
      await server.start();
      assert.equal(await asked, null);
      assert.equal(await client.set("key", "after"), "OK");
      assert.equal(await client.get("key"), "after");
      assert.equal(await client.clientGetName(), "patient");
      assert.equal(await (await connect(server, RESP)).get("key"), null);
    });
  });

  describe(`node-redis in RESP${RESP} and a password`, () => {
    let server;
    before(async () => {
      server = await Server.start("--requirepass", "secret");
    });
    after(() => server?.stop());

    test("without a password nothing is answered", async () => {
      const nameless = async () => (await connectOnce(server, RESP)).get("key");
      await assert.rejects(nameless, /NOAUTH/);
    });

    test("a wrong password is refused", async () => {
      for (const user of [{}, { username: "default" }, { username: "stranger" }]) {
        await assert.rejects(connectOnce(server, RESP, { password: "wrong", ...user }), {
          message: "WRONGPASS invalid username-password pair or user is disabled.",
        });
      }
    });

    test("the right password opens the door", async () => {
      for (const user of [{}, { username: "default" }]) {
        const guest = await connect(server, RESP, { password: "secret", name: "guest", database: 3, ...user });
        assert.equal(await guest.set("key", "v"), "OK");
        assert.equal(await guest.get("key"), "v");
        assert.equal(await guest.clientGetName(), "guest");
      }
    });
  });
}
