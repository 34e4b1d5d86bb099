"use strict";

// One server for a run of tests, which learn its address from the variable REDIS_URL.
//
// Tests run in other processes than the one that has started the server. So this one listens on a port of its
// own, which the variable KEYFAST_RESET names, and resets the server for each connection.

const { connect, createServer } = require("node:net");
const { start } = require("./server.js");

const OPTIONS = ["--enable-clock-command", "local", "--enable-fault-command", "local"];

/** Starts the server. Returns its address, and the function that ends it. */
async function startForTests() {
  const before = { REDIS_URL: process.env.REDIS_URL, KEYFAST_RESET: process.env.KEYFAST_RESET };
  const server = await start({ options: OPTIONS });
  // One after the other, if tests ask at the same time.
  let last = Promise.resolve();
  const resetting = createServer((connection) => {
    connection.on("error", () => {});
    last = last.then(() => server.reset()).then(() => "", (error) => error.message);
    last.then((trouble) => connection.end(trouble));
  });
  await new Promise((resolve) => resetting.listen(0, "127.0.0.1", resolve));
  resetting.unref();
  process.env.REDIS_URL = server.url;
  process.env.KEYFAST_RESET = String(resetting.address().port);
  const stop = async () => {
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    resetting.close();
    await last;
    await server.stop();
  };
  return { url: server.url, stop };
}

/** Resets the server of this run of tests; to be called in a test. */
function reset() {
  return new Promise((resolve, reject) => {
    const port = Number(process.env.KEYFAST_RESET);
    if (!port) throw new Error("no server to reset: is keyfast the globalSetup of these tests?");
    const connection = connect(port, "127.0.0.1").setEncoding("utf8");
    let trouble = "";
    connection.on("data", (text) => (trouble += text));
    connection.on("error", reject);
    connection.on("end", () => (trouble === "" ? resolve() : reject(new Error(trouble))));
  });
}

module.exports = { reset, startForTests };
