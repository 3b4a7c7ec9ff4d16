// Which sockets a client trusts.

import assert from "node:assert/strict";
import { chmodSync, chownSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { ForbiddenError, connect } from "../dist/index.js";

const root = process.geteuid() === 0;

/** Serves in a directory that is then made unsafe, and counts the connections. */
async function tried(spoil, words) {
  const dir = realpathSync(mkdtempSync(join(tmpdir(), "trust-")));
  mkdirSync(join(dir, "own"), { mode: 0o700 });
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  const path = join(dir, "own", "s");
  await new Promise((resolve) => server.listen(path, resolve));
  try {
    const at = spoil(dir) ?? path;
    await assert.rejects(
      async () => {
        const client = await connect(at);
        await client.ping();
      },
      (error) => error instanceof ForbiddenError && error.message.includes(words),
    );
    assert.equal(connections, 0);
  } finally {
    server.close();
    rmSync(dir, { recursive: true });
  }
}

for (const mode of [0o1777, 0o777, 0o770]) {
  test(`a directory of mode ${mode.toString(8)} is refused`, () => tried((dir) => chmodSync(join(dir, "own"), mode), "others may write"));
}
test("so is a directory above that others can write to", () => tried((dir) => chmodSync(dir, 0o777), "which is above"));
test("and one of another user", { skip: !root }, () => tried((dir) => chownSync(dir, 64002, 64002), "belongs to another user"));
test("and a link into one that others can write to", () =>
  tried((dir) => {
    chmodSync(join(dir, "own"), 0o777);
    symlinkSync(join(dir, "own", "s"), join(dir, "link"));
    return join(dir, "link");
  }, "others may write"));
