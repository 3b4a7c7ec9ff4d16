// Sessions with limits and isolation.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { connect, InvalidParamsError } from "../dist/index.js";
import { startDaemon } from "./daemon.mjs";

test("a session has limits and is confined", async (t) => {
  const work = mkdtempSync(join(tmpdir(), "sdk-confined-"));
  const daemon = await startDaemon();
  const client = await connect(daemon.socket);
  try {
    if (!(await client.info()).isolation.includes("filesystem")) {
      t.skip("this machine can't confine sessions");
      return;
    }
    const session = await client.session({ cwd: work, isolation: "offline", limits: { open_files: 64, wall_ms: 600_000 } });
    const info = await session.info();
    assert.deepEqual([info.isolation?.profile, info.limits?.open_files], ["offline", 64]);
    assert.equal((await session.run("ulimit -n; touch here && echo yes")).stdout, "64\nyes\n");
    assert.notEqual((await session.run("touch /usr/there")).exit_code, 0);
    await session.destroy();
    const wider = { profile: "offline", network: { allow: ["a.example:443"] } };
    await assert.rejects(client.session({ cwd: work, isolation: wider }), InvalidParamsError);
  } finally {
    await client.close();
    await daemon.stop();
    rmSync(work, { recursive: true });
  }
});
