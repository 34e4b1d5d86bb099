"use strict";

// One server for a run of tests, which learn its address from the variable REDIS_URL.

const { start } = require("./server.js");

const OPTIONS = ["--enable-clock-command", "local", "--enable-fault-command", "local"];

/** Starts the server. Returns its address, and the function that ends it. */
async function startForTests() {
  const before = process.env.REDIS_URL;
  const server = await start({ options: OPTIONS });
  process.env.REDIS_URL = server.url;
  const stop = async () => {
    if (before === undefined) delete process.env.REDIS_URL;
    else process.env.REDIS_URL = before;
    await server.stop();
  };
  return { url: server.url, stop };
}

module.exports = { startForTests };
