"use strict";

// For `globalSetup` of Jest: tests read `process.env.REDIS_URL`. The server ends in jest-teardown.js, or with
// Jest.

const { startForTests } = require("./for-tests.js");

let stop = async () => {};

module.exports = async function setup() {
  ({ stop } = await startForTests());
};
module.exports.teardown = () => stop();
