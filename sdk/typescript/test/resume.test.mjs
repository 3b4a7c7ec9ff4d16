// Streams through a proxy that cuts connections: every byte once and in order.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LineSplitter } from "../dist/lines.js";
import { bytes, random } from "./bytes.mjs";
import { exactlyOnce } from "./exactly-once.mjs";

test("60 cuts over 16 MiB on the Unix socket", { timeout: 120_000 }, async () => {
  const { same, exits, gaps, bytes: count, commands, cuts, connections } = await exactlyOnce({ transport: "unix", bytes: 16 << 20, cuts: 60 });
  assert.deepEqual({ same, exits, gaps, count, commands, cuts }, { same: true, exits: 1, gaps: 0, count: 16 << 20, commands: 1, cuts: 60 });
  assert.ok(connections > 60);
});

test("lines are split the same however they arrive", () => {
  const next = random(3);
  const wanted = [];
  const parts = [];
  for (const piece of bytes(4, 1 << 20)) {
    const line = piece.toString("hex").slice(0, Math.floor(next() * 50_000));
    wanted.push(line);
    parts.push(Buffer.from(line + "\n"));
  }
  parts.push(Buffer.from("a last one without an end"));
  const all = Buffer.concat(parts);
  for (const size of [1, 7, 4096, all.length]) {
    const splitter = new LineSplitter();
    const lines = [];
    for (let at = 0; at < all.length; at += size) {
      splitter.push(all.subarray(at, at + size), (text, length) => {
        assert.equal(length, Buffer.byteLength(text));
        lines.push(text);
      });
    }
    assert.deepEqual(lines, wanted);
  }
});
