// Two servers of socket.io that meet through one Redis: @socket.io/redis-adapter, on ioredis and on node-redis, in
// RESP2 and in RESP3, with channels and patterns (PUBLISH, SUBSCRIBE, PSUBSCRIBE) and with channels of shards
// (SPUBLISH, SSUBSCRIBE). How many servers there are it asks by PUBSUB NUMSUB and PUBSUB SHARDNUMSUB.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { createAdapter, createShardedAdapter } from "@socket.io/redis-adapter";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Server as SocketServer } from "socket.io";
import { io as connectSocket } from "socket.io-client";
import { Server } from "./server.mjs";

const EVENT_MS_MAX = 10_000; // what must come soon
const ANSWER_MS_MAX = 3_000; // the adapter keeps a timer, and so the process, for as long
const SERVERS = 2;
const MESSAGES = 1000;

const libraries = {
  ioredis: {
    connect: async (port, protocol) => {
      const client = new Redis({ host: "127.0.0.1", port, protocol });
      await once(client, "ready");
      return client;
    },
    call: (client, ...words) => client.call(...words),
    leave: (client) => client.quit(),
  },
  "node-redis": {
    connect: (port, RESP) => createClient({ RESP, socket: { host: "127.0.0.1", port } }).on("error", () => {}).connect(),
    call: (client, ...words) => client.sendCommand(words),
    leave: (client) => client.close(), // waits until what the adapter still asks for is answered
  },
};

const adapters = {
  channels: { create: createAdapter, count: ["PUBSUB", "NUMSUB"], all: "socket.io-request#/#" },
  shards: { create: createShardedAdapter, count: ["PUBSUB", "SHARDNUMSUB"], all: "socket.io#/#" },
};

/** Asks again and again, up to a limit, until something holds. */
async function soon(holds, complaint) {
  const deadline = Date.now() + EVENT_MS_MAX;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, complaint);
    await setImmediate(); // what is waited for happens in this process
  }
}

for (const [libraryName, library] of Object.entries(libraries)) {
  for (const protocol of [2, 3]) {
    for (const [kind, adapter] of Object.entries(adapters)) {
      describe(`socket.io on ${libraryName} in RESP${protocol} by ${kind}`, () => {
        let server;
        let asking;
        const connections = [];
        const sites = []; // the servers of socket.io
        const visitors = []; // their clients: two of the first, then two of the second

        const subscribers = async (channel) => Number((await library.call(asking, ...adapter.count, channel))[1]);
        // With shards a room has its own channel, as long as a client is in it.
        const roomIsKnown = async (room, count) => {
          if (kind === "shards") {
            await soon(async () => (await subscribers(`socket.io#/#${room}#`)) === count, `${room} has no channel`);
          }
        };
        const idOf = (visitor) => visitors[visitor].id;
        /** A visitor's socket on the side of its server. */
        const socketOf = (visitor) => sites[visitor >> 1].sockets.sockets.get(idOf(visitor));

        /** What each visitor hears of what a site sends: the last thing it sends goes to all of them. */
        async function heard(site, send) {
          const notes = visitors.map(() => []);
          const ends = visitors.map(
            (visitor, number) =>
              new Promise((resolve) => {
                visitor.onAny((name, ...words) => {
                  if (name !== "end") return notes[number].push([name, ...words]);
                  visitor.offAny();
                  resolve();
                });
              }),
          );
          await send(site);
          site.emit("end");
          await Promise.all(ends);
          return notes;
        }

        before(async () => {
          server = await Server.start();
          const connect = async () => {
            const client = await library.connect(server.port, protocol);
            client.on("error", () => {});
            connections.push(client);
            return client;
          };
          asking = await connect();
          for (let number = 0; number < SERVERS; number++) {
            const http = createServer().listen(0, "127.0.0.1");
            await once(http, "listening");
            sites.push(new SocketServer(http, { adapter: adapter.create(await connect(), await connect()) }));
            for (let visitor = 0; visitor < 2; visitor++) {
              const url = `http://127.0.0.1:${http.address().port}`;
              visitors.push(connectSocket(url, { transports: ["websocket"], forceNew: true }));
              await once(visitors.at(-1), "connect");
            }
          }
          await soon(async () => (await subscribers(adapter.all)) === SERVERS, "the servers do not listen");
          for (let visitor = 0; visitor < 4; visitor++) socketOf(visitor).data.number = visitor;
        });
        after(async () => {
          for (const visitor of visitors) visitor.disconnect();
          for (const site of sites) await site.close();
          await soon(async () => (await subscribers(adapter.all)) === 0, "a server that is closed still listens");
          await Promise.all(connections.map(library.leave));
          await server?.stop();
        });

        test("a broadcast reaches the clients of both servers", async () => {
          const bytes = Buffer.from([0, 13, 10, 255]);
          for (const site of sites) {
            const notes = await heard(site, () => site.emit("news", "hello", { of: ["any", 1] }, bytes));
            assert.deepEqual(notes, Array(4).fill([["news", "hello", { of: ["any", 1] }, bytes]]));
            const local = await heard(site, () => site.local.emit("news"));
            assert.equal(local.flat().length, 2);
          }
        });

        test("a client's word reaches all other clients", async () => {
          const notes = await heard(sites[0], () => socketOf(1).broadcast.emit("said", "by one"));
          assert.deepEqual(notes, [0, 1, 2, 3].map((visitor) => (visitor === 1 ? [] : [["said", "by one"]])));
        });

        test("a thousand messages keep their order", async () => {
          const notes = await heard(sites[1], () => {
            for (let number = 0; number < MESSAGES; number++) sites[1].emit("count", number);
          });
          const expected = Array.from({ length: MESSAGES }, (_, number) => ["count", number]);
          assert.deepEqual(notes, Array(4).fill(expected));
        });

        test("a room holds clients of both servers", async () => {
          socketOf(1).join("kitchen");
          socketOf(2).join("kitchen");
          await roomIsKnown("kitchen", 2);
          const told = (visitors, ...note) => [0, 1, 2, 3].map((each) => (visitors.includes(each) ? [note] : []));
          const all = await heard(sites[0], (site) => site.to("kitchen").emit("dinner", "ready"));
          assert.deepEqual(all, told([1, 2], "dinner", "ready"));
          const rest = await heard(sites[1], (site) => site.except("kitchen").emit("tidy up"));
          assert.deepEqual(rest, told([0, 3], "tidy up"));
          const one = await heard(sites[0], (site) => site.to(idOf(3)).emit("psst"));
          assert.deepEqual(one, told([3], "psst"));
          socketOf(2).leave("kitchen");
          await roomIsKnown("kitchen", 1);
          const left = await heard(sites[1], (site) => site.to("kitchen").emit("dinner", "over"));
          assert.deepEqual(left, told([1], "dinner", "over"));
          socketOf(1).leave("kitchen");
        });

        test("a server sends the clients of the other into rooms and out", async () => {
          sites[0].in(idOf(3)).socketsJoin("garden");
          await soon(() => socketOf(3).rooms.has("garden"), "no client is in the garden");
          await roomIsKnown("garden", 1);
          const notes = await heard(sites[0], (site) => site.to("garden").emit("rain"));
          assert.deepEqual(notes, [[], [], [], [["rain"]]]);
          sites[0].in("garden").socketsLeave("garden");
          await soon(() => !socketOf(3).rooms.has("garden"), "a client stays in the garden");
        });

        test("a server asks for the clients of both", async () => {
          for (const site of sites) {
            const sockets = await site.fetchSockets();
            assert.deepEqual(sockets.map(({ data }) => data.number).sort(), [0, 1, 2, 3]);
            assert.deepEqual(new Set(sockets.map(({ id }) => id)), new Set(visitors.map(({ id }) => id)));
          }
          const [remote] = await sites[0].in(idOf(2)).fetchSockets();
          assert.deepEqual([remote.id, remote.data], [idOf(2), { number: 2 }]);
        });

        test("servers talk to each other, and answer", async () => {
          const asked = once(sites[1], "question");
          sites[0].serverSideEmit("question", "who?");
          assert.deepEqual(await asked, ["who?"]);
          sites[0].once("sum", (numbers, answer) => answer(numbers[0] + numbers[1]));
          assert.deepEqual(await sites[1].serverSideEmitWithAck("sum", [2, 3]), [5]);
        });

        test("all clients answer a question", async () => {
          visitors.forEach((visitor, number) => visitor.once("how many?", (answer) => answer(number)));
          const answers = await sites[1].timeout(ANSWER_MS_MAX).emitWithAck("how many?");
          assert.deepEqual(answers.sort(), [0, 1, 2, 3]);
        });

        test("a server shows the clients of the other the door", async () => {
          const gone = once(visitors[3], "disconnect");
          sites[0].in(idOf(3)).disconnectSockets();
          assert.deepEqual((await gone)[0], "io server disconnect");
          assert.equal((await sites[0].fetchSockets()).length, 3);
          visitors[3].connect();
          await once(visitors[3], "connect");
          const notes = await heard(sites[0], (site) => site.emit("welcome back"));
          assert.deepEqual(notes, Array(4).fill([["welcome back"]]));
        });
      });
    }
  }
}
