"use strict";

// Finds the program. It is in a package of its own for each platform, of which npm installs the one that
// fits: an optional dependency, so that no script has to run at the installation.

const { statSync } = require("node:fs");
const { resolve } = require("node:path");
const { optionalDependencies } = require("./package.json");

function find() {
  // Names another program than the installed one, for those who build their own.
  const chosen = process.env.KEYFAST_BIN;
  if (chosen) {
    if (!statSync(chosen, { throwIfNoEntry: false })?.isFile()) {
      throw new Error(`KEYFAST_BIN names ${chosen}, which is no file`);
    }
    return resolve(chosen);
  }
  const { platform, arch } = process;
  const name = Object.keys(optionalDependencies).find((name) => name.endsWith(`${platform}-${arch}`));
  if (name === undefined) {
    throw new Error(
      `there is no program of Keyfast for ${platform} on ${arch}, only for linux on x64 and arm64. ` +
        "Elsewhere use a container, a virtual machine or WSL",
    );
  }
  try {
    return require.resolve(`${name}/bin/keyfast`);
  } catch {
    throw new Error(
      `the package ${name} is missing, which has the program for this machine. It is an optional ` +
        "dependency of keyfast: install without --omit=optional (--no-optional), and on the kind of " +
        "machine that runs it",
    );
  }
}

module.exports = { find };
