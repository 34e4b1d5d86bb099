"use strict";

// A server for tests: on a free port, without files, and never left behind.
//
// The server must end with the process that started it, also when that is killed. So a shell starts it: the
// shell leaves a guard in the background and then becomes the server. The guard waits at a pipe whose other
// end only this process holds. The end of this process, however it comes, closes the pipe; then the guard
// kills the server and removes its folder.

const { spawn } = require("node:child_process");
const { closeSync, fstatSync, mkdtempSync, openSync, readSync, rmSync } = require("node:fs");
const { connect } = require("node:net");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");
const { find } = require("./program.js");

const START_MS_MAX = 10_000;
// SIGTERM ends the server in much less, if it is not stopped or in a long script.
const STOP_MS_MAX = 5_000;
// How often the log is read until the server is ready, which takes some 10 ms.
const POLL_MS = 1;
// What commands can undo takes a millisecond. A `CLIENT PAUSE … ALL` holds up every command, as in Redis.
const RESET_MS_MAX = 1_000;
// How long another server may have to wait for the port of the one before.
const PORT_MS_MAX = 10_000;

// What undoes most of what a test may have done to the server, in this order: a fault or a pause would hold up
// what follows.
const RESET = [
  "FAULT CLEAR",
  "CLIENT UNPAUSE",
  "CLOCK RESUME",
  "FLUSHALL",
  "FUNCTION FLUSH",
  "SCRIPT FLUSH",
  "LOCKS RESET",
  "SLOWLOG RESET",
  "LATENCY RESET",
  "ACL LOG RESET",
  "HOTKEYS STOP",
  "HOTKEYS RESET",
  "CONFIG RESETSTAT",
];
// What else it may have changed: parameters, and users with their passwords and rules.
const STATE = ["CONFIG GET *", "ACL LIST"];

// $1 is the server's folder, the other arguments are its command. If the server has ended already, `kill`
// reaches no other process: the guard is in the session that the server led, so the system gives the
// session's number to no new process.
const LAUNCH = `
exec 3<&0 </dev/null
{ read -r _ <&3; kill -KILL $$; rm -rf -- "$1"; } >/dev/null 2>&1 &
exec 3<&-
shift
exec "$@"
`;

const ANY_ADDRESS = { "0.0.0.0": "127.0.0.1", "[::]": "[::1]" };

class Server {
  #options;
  #startMsMax;
  #folder;
  /** The file that the server prints to, as long as it is open. */
  #output;
  #log = "";
  #ended;
  #stopped;
  /** The replies to STATE when the server was new. */
  #state;

  constructor(options, startMsMax) {
    this.#options = options;
    this.#startMsMax = startMsMax;
  }

  /** Starts the process; it has ended again if that fails. */
  async launch(...more) {
    const program = find();
    this.#log = "";
    this.#stopped = undefined;
    this.#folder = mkdtempSync(join(tmpdir(), "keyfast-"));
    this.#output = openSync(join(this.#folder, "log"), "w+");
    this.process = spawn(
      "/bin/sh",
      ["-c", LAUNCH, "sh", this.#folder, program, ...commandLine(this.#options, this.#folder), ...more],
      {
        stdio: ["pipe", this.#output, this.#output],
        env: environment(),
        // A session of its own: LAUNCH relies on it. And Ctrl-C is for the tests, which stop the server.
        detached: true,
      },
    );
    this.#ended = new Promise((resolve) => {
      this.process.once("exit", () => resolve());
      this.process.once("error", (error) => {
        this.#log = `${error.message}\n`;
        resolve();
      });
    });
    // There is no shell, or the guard has been killed.
    this.process.stdin.on("error", () => {});
    try {
      await this.#ready(this.#startMsMax);
      this.#state = await this.#ask(STATE);
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  async #ready(startMsMax) {
    let hasEnded = false;
    this.#ended.then(() => (hasEnded = true));
    const deadline = performance.now() + startMsMax;
    for (;;) {
      const isLast = hasEnded;
      const log = this.log;
      if (isLast) throw new Error(`the server did not start. It printed:\n${log.trimEnd()}`);
      const ready = /Ready to accept connections (tcp|tls|unix)/.exec(log);
      if (ready) return this.#readAddress(log, ready[1]);
      if (performance.now() > deadline) {
        throw new Error(`the server was not ready within ${startMsMax} ms. It printed:\n${log.trimEnd()}`);
      }
      await sleep(POLL_MS);
    }
  }

  #readAddress(log, way) {
    const listening = /Listening on (\S+):(\d+)/.exec(log);
    if (!listening) {
      throw new Error("the server listens on no port, only on a Unix socket: add the option --port");
    }
    const [, host, port] = listening;
    this.port = Number(port);
    this.url = `${way === "tls" ? "rediss" : "redis"}://${ANY_ADDRESS[host] ?? host}:${port}`;
    // A server that is not stopped does not keep Node from ending, and ends with it.
    this.process.unref();
    this.process.stdin.unref();
  }

  /** What the server has printed. */
  get log() {
    if (this.#output === undefined) return this.#log;
    // By the open file: when the server ends on its own, Node closes the pipe, and the guard removes the
    // folder.
    const text = Buffer.alloc(fstatSync(this.#output).size);
    readSync(this.#output, text, 0, text.length, 0);
    return this.#log + text;
  }

  /** Ends the server. A second call waits for the same end. */
  stop() {
    this.#stopped ??= this.#stop("SIGTERM");
    return this.#stopped;
  }

  /**
   * Makes the server what it was when it was started, at the same address.
   *
   * Commands undo most of what a test does. If they are refused (a test has set a password), or if parameters or
   * users have changed, another server is started in place of this one.
   */
  async reset() {
    if (this.#stopped) throw new Error("this server does not run");
    const replies = await this.#ask(RESET);
    const isUndone = replies !== undefined && !/^-/m.test(replies);
    if (!isUndone || (await this.#ask(STATE)) !== this.#state) await this.#startAnew();
  }

  async #startAnew() {
    // The last value counts.
    const option = [this.url.startsWith("rediss:") ? "--tls-port" : "--port", String(this.port)];
    const deadline = performance.now() + PORT_MS_MAX;
    await this.#stop("SIGKILL");
    for (;;) {
      try {
        return await this.launch(...option);
      } catch (error) {
        // A connection of another program may have got the port meanwhile.
        if (!error.message.includes("Address already in use") || performance.now() > deadline) throw error;
        await sleep(POLL_MS);
      }
    }
  }

  /** The replies to commands, as they come; undefined if they do not come. */
  #ask(commands) {
    return new Promise((resolve) => {
      const { hostname, protocol } = new URL(this.url);
      if (protocol !== "redis:") return resolve(undefined);
      // A client library would introduce itself first, and a fault may apply to that.
      const connection = connect(this.port, hostname.replace(/^\[|\]$/g, "")).setEncoding("latin1");
      let replies = "";
      connection.setTimeout(RESET_MS_MAX, () => connection.destroy(new Error("no reply")));
      connection.on("data", (text) => (replies += text));
      connection.on("error", () => resolve(undefined));
      connection.on("end", () => (connection.destroy(), resolve(replies)));
      connection.write([...commands, "QUIT"].map((command) => `${command}\r\n`).join(""));
    });
  }

  async #stop(signal) {
    this.process.ref();
    this.process.kill(signal);
    const timer = setTimeout(() => this.process.kill("SIGKILL"), STOP_MS_MAX);
    await this.#ended;
    clearTimeout(timer);
    this.#log = this.log;
    closeSync(this.#output);
    this.#output = undefined;
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

// Node 18 has this symbol only in its later versions.
if (Symbol.asyncDispose) {
  Server.prototype[Symbol.asyncDispose] = function () {
    return this.stop();
  };
}

function commandLine(options, folder) {
  const ofUser = options.map(String);
  const file = ofUser.length > 0 && !ofUser[0].startsWith("-") ? [ofUser.shift()] : [];
  // The last value of a parameter counts: the test's options come after what suits tests, and what this
  // module relies on comes after all.
  const forTests = [
    "--port",
    "0",
    "--bind",
    "127.0.0.1",
    "--save",
    "",
    "--appendonly",
    "no",
    "--dir",
    folder,
  ];
  const own = ["--daemonize", "no", "--logfile", "", "--loglevel", "notice", "--log-format", "redis"];
  return [...file, ...forTests, ...ofUser, ...own];
}

/** The environment without what configures a server: a test must not depend on who runs it. */
function environment() {
  const entries = Object.entries(process.env);
  return Object.fromEntries(entries.filter(([name]) => !/^(KEYFAST_|REDIS_PASSWORD)/.test(name)));
}

/** Starts a server. The promise is kept when clients can connect. */
async function start({ options = [], startMsMax = START_MS_MAX } = {}) {
  const server = new Server(options, startMsMax);
  await server.launch();
  return server;
}

module.exports = { start };
