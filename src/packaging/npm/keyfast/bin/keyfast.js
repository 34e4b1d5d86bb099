#!/usr/bin/env node
"use strict";

// Runs the program with our name, arguments, streams and signals, and ends as it ends. Through a link named redis-cli or
// redis-check-aof, the program is what this name says.

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { basename } = require("node:path");
const { find } = require("../program.js");

function run() {
  let program;
  try {
    program = find();
  } catch (error) {
    console.error(`keyfast: ${error.message}`);
    process.exitCode = 1;
    return;
  }
  const [, script, ...words] = process.argv;
  const server = spawn(program, words, { argv0: basename(script, ".js"), stdio: "inherit" });

  const handOn = (signal) => server.kill(signal);
  // A terminal sends its signals to both processes. A second one would make the server end without saving.
  const ofTerminal = (signal) => {
    if (!process.stdin.isTTY) server.kill(signal);
  };
  const handlers = {
    SIGTERM: handOn,
    SIGHUP: handOn,
    SIGUSR2: handOn,
    SIGINT: ofTerminal,
    SIGQUIT: ofTerminal,
  };
  for (const [signal, handler] of Object.entries(handlers)) process.on(signal, handler);

  server.on("error", (error) => {
    console.error(`keyfast: ${program} cannot be run: ${error.message}`);
    process.exitCode = 1;
  });
  server.on("exit", (code, signal) => {
    if (signal === null) {
      process.exitCode = code;
      return;
    }
    // Who waits for us sees the same end.
    for (const [name, handler] of Object.entries(handlers)) process.off(name, handler);
    process.kill(process.pid, signal);
    // For the signals that do not end Node.
    process.exitCode = 128 + constants.signals[signal];
  });
}

run();
