// A client of a daemon that is killed with SIGKILL again and again.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "../dist/index.js";
import { random } from "./bytes.mjs";
import { startDaemon } from "./daemon.mjs";
import { startHttpDaemon } from "./http-daemon.mjs";

const lines = 150;
const command = `n=7; i=0; while [ $i -lt ${lines} ]; do echo line $i; echo error $i >&2; i=$((i+1)); sleep 0.01; done; exit 5`;
const expected = Array.from({ length: lines }, (_, i) => `line ${i}\n`).join("");

/** Kills the daemon at random moments until it is stopped, and returns the pids. */
function killing(socket) {
  const next = random(7);
  const killed = new Set();
  let over = false;
  const ended = (async () => {
    while (!over) {
      await sleep(50 + next() * 200);
      try {
        const client = await connect(socket, { waitForDaemonMs: 10_000 });
        const { pid } = await client.info();
        await client.close();
        process.kill(pid, "SIGKILL");
        killed.add(pid);
      } catch {
        // no daemon at this moment
      }
    }
  })();
  return {
    killed,
    async stop() {
      over = true;
      await ended;
    },
  };
}

for (const transport of ["unix", "http"]) {
  test(`nothing is lost over ${transport}`, { timeout: 120_000 }, async () => {
    const http = transport === "http" ? await startHttpDaemon() : undefined;
    const daemon = http?.daemon ?? (await startDaemon());
    const options = { token: http?.token, waitForDaemonMs: 60_000 };
    const client = await connect(http ? `http://127.0.0.1:${http.port}` : daemon.socket, options);
    try {
      const session = await client.session();
      const { killed, stop } = killing(daemon.socket);
      let out = "";
      let result;
      for await (const chunk of session.stream(command)) {
        if (chunk.type === "stdout") {
          out += chunk.data.toString();
        } else if (chunk.type === "exit") {
          result = chunk.result;
        }
      }
      const file = join(daemon.dir, "ran");
      const codes = [];
      // A busy machine is slow to start daemons, so fewer are killed.
      for (let i = 0; i < 3 || (killed.size < 5 && i < 60); i++) {
        codes.push((await session.run(`echo once >>${file}; sleep 0.6; (exit 3)`)).exitCode);
      }
      await stop();
      assert.equal(out, expected);
      assert.equal(result.exitCode, 5);
      assert.deepEqual(codes, Array(codes.length).fill(3));
      assert.equal(readFileSync(file, "utf8"), "once\n".repeat(codes.length));
      assert.equal((await session.run("echo $n")).stdout, "7\n");
      assert.ok(killed.size >= 5, `killed ${[...killed]}`);
    } finally {
      await client.close();
      await daemon.stop();
    }
  });
}
