// Transactions, Lua scripts and channels through the words that ioredis and node-redis have for them, in RESP2 and
// in RESP3.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { Redis } from "ioredis";
import { createClient, defineScript, WatchError } from "redis";
import { Server } from "./server.mjs";

const CONTENDERS = 8;
const TURNS = 25; // for each contender
const MESSAGES = 1000;
const EVENT_MS_MAX = 10_000; // what must come soon
const ALL_BYTES = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));

const COMPARE_AND_SET = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2])
  return 1
end
return 0
`;

const leaving = [];

afterEach(() => {
  for (const leave of leaving.splice(0)) leave();
});

/** Asks again and again, up to a limit, until something holds. */
async function soon(holds, complaint) {
  const deadline = Date.now() + EVENT_MS_MAX;
  while (!(await holds())) assert.ok(Date.now() < deadline, complaint);
}

/** Keeps what a listener is called with, and waits until there are enough of them. */
function hearing() {
  const heard = [];
  let ring;
  const listener = (...words) => {
    heard.push(words);
    ring?.();
  };
  const enough = async (count) => {
    while (heard.length < count) await new Promise((resolve) => (ring = resolve));
    return heard.splice(0, count);
  };
  return { listener, enough };
}

for (const protocol of [2, 3]) {
  describe(`transactions, scripts and channels of ioredis in RESP${protocol}`, () => {
    let server;
    let client;

    function connect(options = {}) {
      const each = new Redis({ host: "127.0.0.1", port: server.port, protocol, ...options });
      each.on("error", () => {}); // what goes wrong also rejects the command that waits for it
      leaving.push(() => each.disconnect());
      return each;
    }

    before(async () => {
      server = await Server.start();
    });
    after(() => server?.stop());
    beforeEach(async () => {
      client = connect();
      await client.flushall();
      await client.script("FLUSH");
    });

    test("a transaction in a pipeline answers everything at once", async () => {
      const answers = await client.multi().set("key", "v").get("key").incrby("n", 5).get("nosuchkey").exec();
      assert.deepEqual(answers, [[null, "OK"], [null, "v"], [null, 5], [null, null]]);
      // In the middle of a pipeline it is one answer, after one for MULTI and one for each that was queued.
      const pipeline = await client.pipeline().get("key").multi().incr("n").get("key").exec().get("n").exec();
      assert.deepEqual(pipeline.map(([error]) => error), Array(pipeline.length).fill(null));
      assert.deepEqual(pipeline.map(([, answer]) => answer), ["v", "OK", "QUEUED", "QUEUED", [6, "v"], "6"]);
    });

    test("a transaction may be sent word by word, and given up", async () => {
      assert.equal(await client.multi({ pipeline: false }), "OK");
      assert.equal(await client.set("key", "v"), "QUEUED");
      assert.deepEqual(await client.exec(), [[null, "OK"]]);
      await client.multi({ pipeline: false });
      await client.del("key");
      assert.equal(await client.discard(), "OK");
      assert.equal(await client.get("key"), "v");
      await assert.rejects(client.discard(), { message: "ERR DISCARD without MULTI" });
    });

    test("a command that cannot be queued stops the whole, one that fails does not", async () => {
      await assert.rejects(client.multi().set("key", "v").call("SETNX", "key").exec(), {
        message: "EXECABORT Transaction discarded because of previous errors.",
      });
      assert.equal(await client.exists("key"), 0);
      const [first, [error], last] = await client.multi().set("key", "text").incr("key").get("key").exec();
      assert.deepEqual([first, last], [[null, "OK"], [null, "text"]]);
      assert.equal(error.message, "ERR value is not an integer or out of range");
    });

    test("a transaction answers nothing when a watched key has changed", async () => {
      const other = connect();
      await client.watch("key", "more");
      await other.set("more", "theirs");
      assert.equal(await client.multi().set("key", "mine").exec(), null);
      await client.watch("key");
      await other.set("key", "theirs");
      await client.unwatch();
      assert.deepEqual(await client.multi().get("key").exec(), [[null, "theirs"]]);
    });

    test("a command of one's own is a script that is sent once", async () => {
      const scripted = connect({ scripts: { compareAndSet: { numberOfKeys: 1, lua: COMPARE_AND_SET } } });
      scripted.defineCommand("echoes", { lua: "return {KEYS[1], ARGV[1], #ARGV}" });
      await client.set("key", "old");
      assert.equal(await scripted.compareAndSet("key", "old", "new"), 1);
      assert.equal(await scripted.compareAndSet("key", "old", "newer"), 0);
      assert.equal(await client.get("key"), "new");
      assert.deepEqual(await scripted.echoes(1, "k", "a", "b"), ["k", "a", 2]);
      const [key, bytes] = await scripted.echoesBuffer(1, Buffer.from("\r\n"), ALL_BYTES);
      assert.deepEqual([key, bytes], [Buffer.from("\r\n"), ALL_BYTES]);
      await client.script("FLUSH");
      assert.equal(await scripted.compareAndSet("key", "new", "newest"), 1);
      scripted.defineCommand("fails", { numberOfKeys: 0, lua: "return redis.error_reply('MINE to tell')" });
      await assert.rejects(scripted.fails(), { message: /^MINE to tell/ });
    });

    test("a command of one's own works in a pipeline and in a transaction", async () => {
      // A new connection sends the text itself (EVAL) the first time, as it could not ask again in the middle.
      for (const [begin, expected, value] of [["pipeline", "a", "b"], ["multi", "b", "c"]]) {
        const scripted = connect({ scripts: { compareAndSet: { numberOfKeys: 1, lua: COMPARE_AND_SET } } });
        await client.script("FLUSH");
        await client.set("key", expected);
        const both = await scripted[begin]().compareAndSet("key", expected, value).get("key").exec();
        assert.deepEqual(both, [[null, 1], [null, value]]);
      }
    });

    test("eight contenders count by a script", async () => {
      const lua = "local n = redis.call('GET', KEYS[1]); redis.call('SET', KEYS[1], n + 1); return n + 1";
      await client.set("counter", 0);
      const count = async () => {
        const own = connect();
        own.defineCommand("count", { numberOfKeys: 1, lua });
        return Promise.all(Array.from({ length: TURNS }, () => own.count("counter")));
      };
      const seen = (await Promise.all(Array.from({ length: CONTENDERS }, count))).flat();
      const expected = Array.from({ length: CONTENDERS * TURNS }, (_, number) => number + 1);
      assert.deepEqual(seen.sort((one, other) => one - other), expected);
    });

    test("messages reach who listens to their channel or a pattern", async () => {
      const ear = connect();
      const [messages, patterns] = [hearing(), hearing()];
      ear.on("message", messages.listener).on("pmessage", patterns.listener);
      assert.equal(await ear.subscribe("news", "sport"), 2);
      assert.equal(await ear.psubscribe("n*"), 3);
      assert.equal(await client.publish("news", "hello"), 2);
      assert.equal(await client.publish("sport", "score"), 1);
      assert.equal(await client.publish("weather", "rain"), 0);
      assert.deepEqual(await messages.enough(2), [["news", "hello"], ["sport", "score"]]);
      assert.deepEqual(await patterns.enough(1), [["n*", "news", "hello"]]);
      assert.deepEqual(await ear.ping(), protocol === 2 ? ["pong", ""] : "PONG");
      assert.equal(await ear.unsubscribe("news"), 2);
      assert.equal(await ear.punsubscribe("n*"), 1);
      assert.equal(await client.publish("news", "unheard"), 0);
      assert.equal(await ear.unsubscribe("sport"), 0);
      assert.equal(await ear.get("key"), null); // nothing is subscribed to any more: an ordinary connection
    });

    test("bytes come through a channel, in order", async () => {
      const ear = connect();
      const { listener, enough } = hearing();
      ear.on("messageBuffer", listener);
      await ear.subscribe(ALL_BYTES);
      const pipeline = client.pipeline();
      for (let number = 0; number < MESSAGES; number++) pipeline.publish(ALL_BYTES, `${number}`);
      assert.ok((await pipeline.exec()).every(([error, count]) => error === null && count === 1));
      const heard = await enough(MESSAGES);
      assert.deepEqual(heard[0][0], ALL_BYTES);
      assert.deepEqual(heard.map(([, message]) => Number(`${message}`)), Array.from({ length: MESSAGES }, (_, n) => n));
    });

    test("a channel of a shard is not the channel of its name", async () => {
      const ear = connect();
      const { listener, enough } = hearing();
      ear.on("smessage", listener);
      assert.equal(await ear.ssubscribe("news"), 1);
      assert.equal(await client.publish("news", "unheard"), 0);
      assert.equal(await client.spublish("news", "hello"), 1);
      assert.deepEqual(await enough(1), [["news", "hello"]]);
      assert.equal(await ear.sunsubscribe("news"), 0);
    });

    test("a subscriber comes back after a restart", async () => {
      const ear = connect({ retryStrategy: () => 20 });
      const { listener, enough } = hearing();
      ear.on("message", listener);
      await ear.subscribe("news");
      const noticed = new Promise((resolve) => ear.once("reconnecting", resolve));
      await server.stop();
      await noticed;
      await server.start();
      const asking = connect();
      await soon(async () => (await asking.pubsub("NUMSUB", "news"))[1] === 1, "the subscriber did not come back");
      await asking.publish("news", "again");
      assert.deepEqual(await enough(1), [["news", "again"]]);
    });
  });

  describe(`transactions, scripts and channels of node-redis in RESP${protocol}`, () => {
    let server;
    let client;
    const scripts = {
      compareAndSet: defineScript({
        NUMBER_OF_KEYS: 1,
        SCRIPT: COMPARE_AND_SET,
        parseCommand(parser, key, expected, value) {
          parser.pushKey(key);
          parser.push(expected, value);
        },
        transformReply: (reply) => reply === 1,
      }),
    };

    async function connect(options = {}) {
      const socket = { host: "127.0.0.1", port: server.port };
      const each = createClient({ RESP: protocol, socket, scripts, ...options });
      each.on("error", () => {}); // what goes wrong also rejects the command that waits for it
      leaving.push(() => each.isOpen && each.destroy());
      return each.connect();
    }

    before(async () => {
      server = await Server.start();
    });
    after(() => server?.stop());
    beforeEach(async () => {
      client = await connect();
      await client.flushAll();
      await client.scriptFlush();
    });

    test("a transaction answers everything at once", async () => {
      const answers = await client.multi().set("key", "v").get("key").incrBy("n", 5).get("nosuchkey").exec();
      assert.deepEqual(answers, ["OK", "v", 5, null]);
    });

    test("a command that cannot be queued stops the whole, one that fails does not", async () => {
      await assert.rejects(client.multi().set("key", "v").addCommand(["SETNX", "key"]).exec(), {
        message: "ERR wrong number of arguments for 'setnx' command",
      });
      await assert.rejects(client.multi().addCommand(["NOSUCH"]).exec(), { message: /^ERR unknown command/ });
      assert.equal(await client.exists("key"), 0);
      const failed = await client.multi().set("key", "text").incr("key").get("key").exec().catch((error) => error);
      assert.deepEqual(failed.errorIndexes, [1]);
      assert.equal(failed.replies[1].message, "ERR value is not an integer or out of range");
      assert.deepEqual([failed.replies[0], failed.replies[2]], ["OK", "text"]);
    });

    test("a transaction is refused when a watched key has changed", async () => {
      const other = await connect();
      await client.watch(["key", "more"]);
      await other.set("more", "theirs");
      await assert.rejects(client.multi().set("key", "mine").exec(), WatchError);
      assert.equal(await client.exists("key"), 0);
      await client.watch("key");
      await other.set("key", "theirs");
      await client.unwatch();
      assert.deepEqual(await client.multi().get("key").exec(), ["theirs"]);
    });

    test("eight contenders count by trying again", async () => {
      await client.set("counter", 0);
      let refused = 0;
      const count = async () => {
        const own = await connect();
        for (let turn = 0; turn < TURNS; ) {
          await own.watch("counter");
          const value = Number(await own.get("counter"));
          try {
            await own.multi().set("counter", `${value + 1}`).exec();
            turn++;
          } catch (error) {
            assert.ok(error instanceof WatchError, `${error}`);
            refused++;
          }
        }
      };
      await Promise.all(Array.from({ length: CONTENDERS }, count));
      assert.equal(await client.get("counter"), `${CONTENDERS * TURNS}`);
      assert.ok(refused > 0, "no client came in between: nothing was tested");
    });

    test("a script of one's own is sent once", async () => {
      await client.set("key", "old");
      assert.equal(await client.compareAndSet("key", "old", "new"), true);
      assert.equal(await client.compareAndSet("key", "old", "newer"), false);
      await client.scriptFlush();
      assert.equal(await client.compareAndSet("key", "new", "newest"), true);
      // Inside a transaction the library sends the text itself, as it cannot ask again.
      await client.scriptFlush();
      const queued = client.multi().compareAndSet("key", "newest", "last").get("key");
      assert.deepEqual(await queued.exec(), [true, "last"]);
      const sha = await client.scriptLoad(COMPARE_AND_SET);
      assert.deepEqual(await client.scriptExists([sha, "0".repeat(40)]), [1, 0]);
      assert.equal(await client.evalSha(sha, { keys: ["key"], arguments: ["last", "a"] }), 1);
      await assert.rejects(client.evalSha("0".repeat(40), {}), { message: /^NOSCRIPT / });
    });

    test("messages reach who listens to a channel, a pattern or a shard", async () => {
      const ear = await connect();
      const [messages, patterns, shards] = [hearing(), hearing(), hearing()];
      await ear.subscribe(["news", "sport"], messages.listener);
      await ear.pSubscribe("n*", patterns.listener);
      await ear.sSubscribe("news", shards.listener);
      assert.equal(await client.publish("news", "hello"), 2);
      assert.equal(await client.publish("sport", "score"), 1);
      assert.equal(await client.sPublish("news", "to the shard"), 1);
      assert.deepEqual(await messages.enough(2), [["hello", "news"], ["score", "sport"]]);
      assert.deepEqual(await patterns.enough(1), [["hello", "news"]]);
      assert.deepEqual(await shards.enough(1), [["to the shard", "news"]]);
      assert.deepEqual({ ...(await client.pubSubNumSub(["news", "sport"])) }, { news: 1, sport: 1 });
      assert.equal(await client.pubSubNumPat(), 1);
      assert.deepEqual((await client.pubSubChannels()).sort(), ["news", "sport"]);
      assert.deepEqual(await client.pubSubShardChannels(), ["news"]);
      await ear.unsubscribe();
      await ear.pUnsubscribe();
      await ear.sUnsubscribe();
      assert.equal(await client.publish("news", "unheard"), 0);
      assert.equal(await ear.get("key"), null); // nothing is subscribed to any more: an ordinary connection
    });

    test("bytes come through a channel, in order", async () => {
      const ear = await connect();
      const { listener, enough } = hearing();
      await ear.subscribe("news", listener, true);
      const numbers = Array.from({ length: MESSAGES }, (_, number) => number);
      await Promise.all(numbers.map((number) => client.publish("news", `${number}`)));
      assert.deepEqual((await enough(MESSAGES)).map(([message]) => Number(`${message}`)), numbers);
      await client.publish("news", ALL_BYTES);
      assert.deepEqual((await enough(1))[0][0], ALL_BYTES);
    });

    test("a subscriber comes back after a restart", async () => {
      const socket = { host: "127.0.0.1", port: server.port, reconnectStrategy: 20 };
      const ear = await connect({ socket });
      const { listener, enough } = hearing();
      await ear.subscribe("news", listener);
      const noticed = new Promise((resolve) => ear.once("reconnecting", resolve));
      await server.stop();
      await noticed;
      await server.start();
      const asking = await connect();
      const isBack = async () => (await asking.pubSubNumSub("news")).news === 1;
      await soon(isBack, "the subscriber did not come back");
      await asking.publish("news", "again");
      assert.deepEqual(await enough(1), [["again", "news"]]);
    });
  });
}
