// One server process that a test file owns.
//
// The binary comes from KEYFAST_BIN and may be Keyfast or redis-server: both understand the
// arguments below and both announce "Ready to accept connections" on standard output. A port
// is found once and kept, so that a restarted server is where its clients look for it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { isAbsolute, join } from "node:path";

const START_MS_MAX = 10_000; // a cold start on a loaded machine; both servers need far less
const STOP_MS_MAX = 2_000; // what Keyfast promises for SIGTERM
const READY = "Ready to accept connections";

// So does the runner end a file whose tests hang: its servers must not outlive it.
process.once("SIGTERM", () => process.exit(1));

function binary() {
  const path = process.env.KEYFAST_BIN ?? "";
  assert.ok(isAbsolute(path), `KEYFAST_BIN must be the absolute path of the server binary, not '${path}'`);
  accessSync(path, constants.X_OK);
  return path;
}

async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

function within(ms, promise, complaint) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(complaint())), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export class Server {
  static async start(...serverArguments) {
    const server = new Server();
    server.port = await freePort();
    server.arguments = ["--port", `${server.port}`, "--bind", "127.0.0.1", "--save", "", ...serverArguments];
    process.once("exit", () => server.kill());
    await server.start();
    return server;
  }

  async start() {
    // A directory of its own: nothing to load at the start, nothing left behind.
    this.directory = mkdtempSync(join(tmpdir(), "keyfast-clients-"));
    this.said = "";
    this.process = spawn(binary(), this.arguments, { cwd: this.directory, stdio: ["ignore", "pipe", "pipe"] });
    this.gone = new Promise((resolve) => {
      this.process.once("error", (error) => resolve(`${error}`));
      this.process.once("close", (code, signal) => resolve(signal ?? code));
    });
    const ready = new Promise((resolve) => {
      // To the end of both streams, so that no pipe ever fills and stops the server.
      for (const stream of [this.process.stdout, this.process.stderr]) {
        stream.setEncoding("utf8").on("data", (words) => {
          this.said += words;
          if (this.said.includes(READY)) resolve();
        });
      }
    });
    const gone = this.gone.then((how) => {
      throw new Error(`the server ended (${how}) before it was ready. It said:\n${this.said}`);
    });
    gone.catch(() => {}); // once the server is ready, its end is stop()'s business
    const late = () => `not ready in ${START_MS_MAX} ms. The server said:\n${this.said}`;
    try {
      await within(START_MS_MAX, Promise.race([ready, gone]), late);
    } catch (error) {
      this.kill();
      throw error;
    }
  }

  /** Ends the server by SIGTERM and insists on a prompt and clean end; one that was killed has had its complaint. */
  async stop() {
    if (!this.process) return;
    this.process.kill("SIGTERM");
    const late = () => `still running ${STOP_MS_MAX} ms after SIGTERM. The server said:\n${this.said}`;
    try {
      const code = await within(STOP_MS_MAX, this.gone, late);
      assert.equal(code, 0, `the exit code after SIGTERM. The server said:\n${this.said}`);
    } finally {
      this.kill();
    }
  }

  /** Leaves nothing behind, whatever state the server is in; harmless when it has stopped. */
  kill() {
    if (!this.process) return;
    this.process.kill("SIGKILL");
    this.process = undefined;
    rmSync(this.directory, { recursive: true, force: true });
  }
}
