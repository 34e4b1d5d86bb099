// The JavaScript in the README and in the pages on compatibility and locks, each block as it stands there: it is executed twice,
// and prints each time what the comments beside its console.log calls say.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { Server } from "./server.mjs";

const DOCUMENTS = ["README.md", "src/guide/compatibility.md", "src/guide/locks.md"].map((name) => new URL(`../../../${name}`, import.meta.url));
const ADDRESS = "localhost:6379"; // what the documents write for a server
const RUN_MS_MAX = 60_000;

const blocks = DOCUMENTS.flatMap((document) => {
  const found = [...readFileSync(document, "utf8").matchAll(/^```js\n(.*?)^```$/gms)].map((match) => match[1]);
  assert.ok(found.length > 0, `${document} has no JavaScript`);
  return found;
});

for (const [number, block] of blocks.entries()) {
  test(`block ${number + 1} prints what it says`, async (t) => {
    assert.equal(block.split(ADDRESS).length, 2, "the block names its server once");
    const server = await Server.start();
    // Beside this file, so that the packages are found.
    const file = fileURLToPath(new URL(`./document-${process.pid}-${number}.mjs`, import.meta.url));
    writeFileSync(file, block.replace(ADDRESS, `127.0.0.1:${server.port}`));
    t.after(() => rmSync(file, { force: true }));
    try {
      const comments = [...block.matchAll(/^console\.log\(.*\); \/\/ (.*)$/gm)].map((match) => match[1]);
      // A reader runs a file again.
      for (let turn = 0; turn < 2; turn++) {
        const { stdout } = await promisify(execFile)(process.execPath, [file], { timeout: RUN_MS_MAX });
        assert.deepEqual(stdout.split("\n").slice(0, -1), comments);
      }
    } finally {
      await server.stop();
    }
  });
}
