"use strict";

// Keyfast, a server that speaks the Redis protocol: where its program is, and servers for tests.
//
// import works, too: Node finds the names below by reading this file.

const { reset } = require("./for-tests.js");
const { find } = require("./program.js");
const { start } = require("./server.js");

module.exports = { find, reset, start };
