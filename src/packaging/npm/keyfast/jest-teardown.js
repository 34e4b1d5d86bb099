"use strict";

// For `globalTeardown` of Jest, which runs in the same process as `globalSetup`.

module.exports = require("./jest.js").teardown;
