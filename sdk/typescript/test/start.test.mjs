// connect({ start: true }): the daemon of a user who has none running.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readlinkSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import * as trl from "../dist/index.js";
import { addressOf } from "../dist/address.js";
import { binary, sdk } from "./daemon.mjs";

const run = promisify(execFile);
const index = pathToFileURL(join(sdk, "dist", "index.js")).href;

describe("a daemon that is started", () => {
  let dir, env;
  before(() => {
    dir = realpathSync(mkdtempSync(join(tmpdir(), "sdk-start-")));
    for (const sub of ["bin", "home", "run"]) {
      mkdirSync(join(dir, sub), { mode: 0o700 });
    }
    symlinkSync(binary(), join(dir, "bin", "trl"));
    env = { PATH: `${join(dir, "bin")}:${process.env.PATH}`, HOME: join(dir, "home"), XDG_RUNTIME_DIR: join(dir, "run"), MY_API_KEY: "sesame", TRL_SECRET_PIN: "1234" };
  });
  after(async () => {
    await run(binary(), ["stop"], { env });
    rmSync(dir, { recursive: true, force: true });
  });

  /** Runs a program in the user's environment, and returns what it prints as JSON. */
  async function program(text, more = {}) {
    const source = `import * as trl from ${JSON.stringify(index)}; ${text}`;
    const { stdout } = await run(process.execPath, ["--input-type=module", "-e", source], { env: { ...env, ...more }, cwd: dir, timeout: 60_000 });
    return JSON.parse(stdout);
  }

  test("is the same for two programs at once, outlives them, and has no secrets", async () => {
    const connected = "const client = await trl.connect({ start: true }); const { pid } = await client.info(); console.log(JSON.stringify([client.address, pid]));";
    const both = await Promise.all([program(connected), program(connected)]);
    const [[address, pid]] = both;
    assert.deepEqual(both[1], both[0]);
    assert.equal(address, `unix:${join(dir, "run", "trl", "trl.sock")}`);
    assert.deepEqual(await program(connected), both[0]);
    const variables = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
    assert.ok(variables.includes(`HOME=${join(dir, "home")}`));
    assert.deepEqual(variables.filter((variable) => /sesame|1234/.test(variable)), []);
    assert.equal(readlinkSync(`/proc/${pid}/cwd`), join(dir, "home"));
  });

  test("may have a socket of its own, and a program by its path", async () => {
    const own = join(dir, "run", "own.sock");
    const text = `const client = await trl.connect(${JSON.stringify(own)}, { start: ${JSON.stringify(binary())} }); console.log(JSON.stringify(client.address));`;
    assert.equal(await program(text, { PATH: "/nowhere" }), `unix:${own}`);
    await run(binary(), ["stop", "--socket", own], { env });
    assert.equal(await program(text.replace(/start: "[^"]*"/, "start: true"), { PATH: "/nowhere", TRL_BINARY: binary() }), `unix:${own}`);
    await run(binary(), ["stop", "--socket", own], { env });
  });

  test("that cannot be started says why", async () => {
    const nothing = join(dir, "run", "nothing.sock");
    await assert.rejects(trl.connect(nothing), (error) => error instanceof trl.NoDaemonError && error.code === "NO_DAEMON" && /trl serve --detach/.test(error.hint) && error.message.includes(error.hint));
    await assert.rejects(trl.connect(nothing, { start: join(dir, "no-trl") }), (error) => error instanceof trl.NoDaemonError && /can't run .*no-trl/.test(error.message) && /connect\(\{ start: /.test(error.hint));
    // Others could replace a socket there.
    const unsafe = join(tmpdir(), `sdk-${process.pid}.sock`);
    await assert.rejects(trl.connect(unsafe, { start: binary() }), (error) => error instanceof trl.NoDaemonError && error.message.includes(tmpdir()) && !/trl doctor/.test(error.hint));
    await assert.rejects(trl.connect("http://127.0.0.1:1", { start: true }), TypeError);
    await assert.rejects(trl.connect("http://127.0.0.1:1"), (error) => error instanceof trl.NoDaemonError && /--http/.test(error.hint));
  });

  test("is looked for where the command line looks", () => {
    assert.deepEqual(addressOf("unix:/a", { TRL_ADDRESS: "unix:/b", TRL_SOCKET: "/c" }), { where: "unix:/a", given: true });
    assert.deepEqual(addressOf(undefined, { TRL_ADDRESS: "unix:/b", TRL_SOCKET: "/c" }), { where: "unix:/b", given: true });
    assert.deepEqual(addressOf(undefined, { TRL_ADDRESS: "", TRL_SOCKET: "/c" }), { where: "/c", given: false });
    assert.deepEqual(addressOf(undefined, { XDG_RUNTIME_DIR: "/run/user/7" }), { where: "/run/user/7/trl/trl.sock", given: false });
  });
});
