// Conversations of ioredis with the server. Up to version 5 ioredis knew RESP2 only; version 6
// speaks RESP3 unless told otherwise. So these are held twice, once in each protocol.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { Redis } from "ioredis";
import { Server } from "./server.mjs";

const EXPIRY_MS_MAX = 10_000; // an expiry of milliseconds must have come by then
const CONNECTIONS = 200;
const PIPELINE_COMMANDS = 10_000;
const ALL_BYTES = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

const open = new Set();

function connect(server, protocol, options = {}) {
  const client = new Redis({ host: "127.0.0.1", port: server.port, protocol, ...options });
  client.on("error", () => {}); // what goes wrong also rejects the command that waits for it
  open.add(client);
  return client;
}

afterEach(() => {
  for (const client of open) client.disconnect();
  open.clear();
});

function assertWithin(value, low, high) {
  assert.ok(low <= value && value <= high, `${value} is not within ${low} and ${high}`);
}

for (const protocol of [2, 3]) {
  describe(`ioredis in RESP${protocol}`, () => {
    let server;
    let client;

    before(async () => {
      server = await Server.start();
    });
    after(() => server?.stop());
    beforeEach(async () => {
      client = connect(server, protocol);
      await client.flushdb();
    });

    test("a client introduces itself and chooses its database", async () => {
      // On connecting the library sends HELLO (RESP3), SELECT, CLIENT SETNAME and CLIENT SETINFO, then INFO.
      const named = connect(server, protocol, { connectionName: "painter", db: 3 });
      assert.equal(await named.ping(), "PONG");
      assert.equal(await named.client("GETNAME"), "painter");
      const hello = await named.call("HELLO"); // a flat list: the library flattens RESP3's map
      assert.equal(hello[hello.indexOf("proto") + 1], protocol);
      assert.equal(await named.set("canvas", "blue"), "OK");
      assert.equal(await named.get("canvas"), "blue");
      assert.equal(await client.get("canvas"), null);
      await named.flushdb();
    });

    // LOCK

    const isRedis = process.env.KEYFAST_BIN?.endsWith("redis-server");
    test("a client that sends its commands again finds its own lock", { skip: isRedis }, async () => {
      const own = await Server.start("--enable-fault-command", "local");
      try {
        const [other, retrying] = [connect(own, protocol), connect(own, protocol)];
        const take = ["ACQUIRE", "lock", "mine", "PX", "30000", "WAIT", "30000", "AGAIN"];
        const until = async (what) => {
          while (!(await what())) await new Promise((done) => setTimeout(done, 5));
        };
        const id = await retrying.client("ID");
        await other.call("FAULT", "ADD", "ON", "lock|acquire", "TIMES", "1", "DROP-REPLY");
        const asked = retrying.call("LOCK", ...take);
        await until(() => other.exists("lock"));
        await other.client("KILL", "ID", id);
        const number = await asked;
        assert.equal(number, await other.call("LOCK", "FENCE", "lock", "mine"));
        // In line as well.
        await other.call("FAULT", "CLEAR");
        await other.call("LOCK", "RELEASE", "lock", "mine");
        await other.call("LOCK", "ACQUIRE", "lock", "first", "PX", "30000");
        const waits = retrying.call("LOCK", ...take);
        const waiting = async () => /id=(\d+) .* flags=b /.exec(await other.client("LIST"))?.[1];
        await until(waiting);
        const before = await waiting();
        await other.client("KILL", "ID", before);
        await until(async () => ![undefined, before].includes(await waiting()));
        await other.call("LOCK", "RELEASE", "lock", "first");
        assert.ok((await waits) > number);
      } finally {
        await own.stop();
      }
    });

    // SETNX, SET, GET, GETSET, DEL

    test("SETNX sets once", async () => {
      assert.equal(await client.setnx("mykey", "Hello"), 1);
      assert.equal(await client.setnx("mykey", "World"), 0);
      assert.equal(await client.get("mykey"), "Hello");
    });

    test("GET of an absent key is null", async () => {
      assert.equal(await client.get("nosuchkey"), null);
    });

    test("SET overwrites and forgets the expiry", async () => {
      assert.equal(await client.set("key", "old", "EX", 100), "OK");
      assert.equal(await client.set("key", "new"), "OK");
      assert.equal(await client.get("key"), "new");
      assert.equal(await client.ttl("key"), -1);
    });

    test("SET NX and XX look whether the key is there", async () => {
      assert.equal(await client.set("key", "a", "XX"), null);
      assert.equal(await client.set("key", "b", "NX"), "OK");
      assert.equal(await client.set("key", "c", "NX"), null);
      assert.equal(await client.get("key"), "b");
      assert.equal(await client.set("key", "d", "XX"), "OK");
      assert.equal(await client.get("key"), "d");
    });

    test("SET GET answers the old value", async () => {
      assert.equal(await client.set("key", "first", "GET"), null);
      assert.equal(await client.set("key", "second", "GET"), "first");
      assert.equal(await client.set("key", "third", "NX", "GET"), "second");
      assert.equal(await client.get("key"), "second");
    });

    test("SET takes an expiry in four ways", async () => {
      const now = Date.now();
      for (const [option, time] of [
        ["EX", 100],
        ["PX", 100_000],
        ["EXAT", Math.floor(now / 1000) + 100],
        ["PXAT", now + 100_000],
      ]) {
        assert.equal(await client.set(option, "v", option, time), "OK");
        assertWithin(await client.ttl(option), 60, 100);
        assertWithin(await client.pttl(option), 60_000, 100_000);
      }
    });

    test("SET KEEPTTL keeps the expiry", async () => {
      await client.set("key", "old", "EX", 100);
      assert.equal(await client.set("key", "new", "KEEPTTL"), "OK");
      assert.equal(await client.get("key"), "new");
      assertWithin(await client.ttl("key"), 60, 100);
    });

    test("a key set to expire in the past is absent", async () => {
      assert.equal(await client.set("lock", "a", "EXAT", 1), "OK");
      assert.equal(await client.get("lock"), null);
      assert.equal(await client.setnx("lock", "b"), 1);
    });

    test("GETSET swaps and forgets the expiry", async () => {
      assert.equal(await client.getset("key", "first"), null);
      await client.expire("key", 100);
      assert.equal(await client.getset("key", "second"), "first");
      assert.equal(await client.get("key"), "second");
      assert.equal(await client.ttl("key"), -1);
    });

    test("DEL counts the keys that were there", async () => {
      await client.set("key1", "Hello");
      await client.set("key2", "World");
      assert.equal(await client.del("key1", "key2", "key3"), 2);
      assert.equal(await client.del("key1"), 0);
      assert.equal(await client.get("key1"), null);
    });

    // Locks by SET NX PX

    test("a lock is released only by its holder", async () => {
      const take = (token) => client.set("lock", token, "PX", 30_000, "NX");
      const release = async (token) => ((await client.get("lock")) === token ? client.del("lock") : 0);
      assert.equal(await take("mine"), "OK");
      assert.equal(await take("yours"), null);
      assert.equal(await release("yours"), 0);
      assert.equal(await release("mine"), 1);
      assert.equal(await take("yours"), "OK");
    });

    test("a lock that expired can be taken again", async () => {
      await client.set("lock", "a", "PX", 50, "NX");
      const deadline = Date.now() + EXPIRY_MS_MAX;
      while ((await client.set("lock", "b", "NX")) === null) {
        assert.ok(Date.now() < deadline, "the lock never expired");
      }
      assert.equal(await client.get("lock"), "b");
      assert.equal(await client.ttl("lock"), -1);
    });

    // Keys and the server

    test("EXISTS and TYPE tell what is there", async () => {
      await client.set("here", "v");
      assert.equal(await client.exists("here", "here", "nosuchkey"), 2);
      assert.equal(await client.exists("nosuchkey"), 0);
      assert.equal(await client.type("here"), "string");
      assert.equal(await client.type("nosuchkey"), "none");
    });

    test("an expiry is given, seen and taken away", async () => {
      assert.deepEqual([await client.ttl("key"), await client.pttl("key")], [-2, -2]);
      assert.equal(await client.expire("key", 100), 0);
      await client.set("key", "v");
      assert.deepEqual([await client.ttl("key"), await client.pttl("key")], [-1, -1]);
      assert.equal(await client.expire("key", 100), 1);
      assertWithin(await client.ttl("key"), 60, 100);
      assert.equal(await client.pexpire("key", 500_000), 1);
      assertWithin(await client.pttl("key"), 460_000, 500_000);
      assert.equal(await client.persist("key"), 1);
      assert.equal(await client.persist("key"), 0);
      assert.equal(await client.ttl("key"), -1);
      assert.equal(await client.pexpire("key", -1), 1);
      assert.equal(await client.exists("key"), 0);
    });

    test("DBSIZE counts and FLUSHDB empties", async () => {
      assert.equal(await client.dbsize(), 0);
      for (let number = 0; number < 5; number++) await client.set(`key${number}`, "v");
      assert.equal(await client.dbsize(), 5);
      assert.equal(await client.flushdb(), "OK");
      assert.equal(await client.dbsize(), 0);
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
      assert.deepEqual(await client.config("GET", "port"), ["port", `${server.port}`]);
      assert.deepEqual(await client.config("GET", "sav?"), ["save", ""]);
      assert.deepEqual(await client.config("GET", "nosuchparameter"), []);
    });

    // Much at once

    test("a pipeline answers ten thousand commands in order", async () => {
      const pipeline = client.pipeline();
      const expected = [];
      for (let number = 0; number < PIPELINE_COMMANDS / 2; number++) {
        pipeline.set(`key:${number}`, `value:${number}`).get(`key:${number}`);
        expected.push([null, "OK"], [null, `value:${number}`]);
      }
      assert.deepEqual(await pipeline.exec(), expected);
      assert.equal(await client.dbsize(), PIPELINE_COMMANDS / 2);
    });

    test("keys and values may hold any bytes", async () => {
      for (const binary of [
        ALL_BYTES,
        Buffer.concat([ALL_BYTES, Buffer.from(ALL_BYTES).reverse()]),
        ...["\0", "\r\n", "*1\r\n$4\r\nPING\r\n", "$-1\r\n", ""].map((text) => Buffer.from(text)),
      ]) {
        const key = Buffer.concat([Buffer.from("key"), binary]);
        const longer = Buffer.concat([Buffer.from("\0\r\n"), binary]);
        assert.equal(await client.setnx(key, binary), 1);
        assert.equal(await client.set(binary, binary), "OK");
        assert.deepEqual(await client.getBuffer(key), binary);
        assert.deepEqual(await client.getsetBuffer(binary, longer), binary);
        assert.deepEqual(await client.getBuffer(binary), longer);
        assert.equal(await client.del(binary), 1);
      }
    });

    test("a value of 64 MiB comes back unchanged", async () => {
      const value = randomBytes(64 << 20);
      assert.equal(await client.set("large", value), "OK");
      assert.ok(value.equals(await client.getBuffer("large")), "the value changed on its way");
      assert.equal(await client.del("large"), 1);
    });

    test("of two hundred connections one wins and all are served", async () => {
      const clients = Array.from({ length: CONNECTIONS }, () => connect(server, protocol));
      await Promise.all(clients.map((each) => each.ping()));
      const [, connected] = (await client.info("clients")).match(/^connected_clients:(\d+)/m);
      assert.ok(connected >= CONNECTIONS, `${connected} connections`);
      const answers = await Promise.all(
        clients.map(async (each, number) => {
          const won = await each.setnx("prize", number);
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
        await assert.rejects(client.call(...command), { message });
      }
      assert.equal(await client.get("text"), "abc");
    });

    test("an error inside a pipeline leaves its neighbours alone", async () => {
      const [first, [error], last] = await client.pipeline().set("key", "v").call("SETNX", "key").get("key").exec();
      assert.deepEqual([first, last], [[null, "OK"], [null, "v"]]);
      assert.equal(error.message, "ERR wrong number of arguments for 'setnx' command");
    });
  });

  describe(`ioredis in RESP${protocol} and a restart`, () => {
    let server;
    before(async () => {
      server = await Server.start();
    });
    after(() => server?.stop());

    test("a client comes back with its name and database", async () => {
      const client = connect(server, protocol, { connectionName: "patient", db: 3 });
      assert.equal(await client.set("key", "before"), "OK");
      const noticed = new Promise((resolve) => client.once("reconnecting", resolve));
      await server.stop();
      await noticed;
      const asked = client.get("key"); // waits in the library's queue until the server is back
      await server.start();
      assert.equal(await asked, null);
      assert.equal(await client.set("key", "after"), "OK");
      assert.equal(await client.get("key"), "after");
      assert.equal(await client.client("GETNAME"), "patient");
      assert.equal(await connect(server, protocol).get("key"), null);
    });
  });

  describe(`ioredis in RESP${protocol} and a password`, () => {
    let server;
    before(async () => {
      server = await Server.start("--requirepass", "secret");
    });
    after(() => server?.stop());

    test("without a password nothing is answered", async () => {
      await assert.rejects(connect(server, protocol).get("key"), /NOAUTH/);
    });

    test("a wrong password is refused", async () => {
      for (const user of [{}, { username: "default" }, { username: "stranger" }]) {
        const intruder = connect(server, protocol, { password: "wrong", ...user });
        await assert.rejects(intruder.get("key"), {
          message: "WRONGPASS invalid username-password pair or user is disabled.",
        });
      }
    });

    test("the right password opens the door", async () => {
      for (const user of [{}, { username: "default" }]) {
        const guest = connect(server, protocol, { password: "secret", connectionName: "guest", db: 3, ...user });
        assert.equal(await guest.set("key", "v"), "OK");
        assert.equal(await guest.get("key"), "v");
        assert.equal(await guest.client("GETNAME"), "guest");
      }
    });
  });
}
