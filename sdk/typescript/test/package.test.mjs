// The package as a user gets it: packed, installed offline into an empty
// project, and the README's programs compiled and run as written.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";

import { connect } from "../dist/index.js";
import { sdk, startDaemon } from "./daemon.mjs";

const run = promisify(execFile);
const readme = readFileSync(join(sdk, "README.md"), "utf8");
const tsc = join(sdk, "node_modules", "typescript", "bin", "tsc");

/** Returns the README's code blocks in a language, in order. */
function blocks(language) {
  return [...readme.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].filter((match) => match[1] === language).map((match) => match[2]);
}

// The programs of the README, and one with code that the types must reject.
const [start, quickstart, started, files, calls] = blocks("ts");
const programs = {
  start,
  quickstart,
  started,
  files,
  calls,
  types: `
    import { connect, isTrlError, type StreamChunk } from "trl-client";
    const client = await connect();
    // @ts-expect-error: no such method
    await client.call("no.such");
    // @ts-expect-error: no such field
    await client.call("session.create", { shel: "bash" });
    // @ts-expect-error: the session is missing
    await client.call("exec.run", { command: "true" });
    // @ts-expect-error: it opens a stream
    await client.call("exec.stream", { session_id: "", command: "" });
    // @ts-expect-error: the contract's name, not the camel case one
    await client.session({ timeout_ms: 1 });
    // @ts-expect-error: only an exit has a result
    export const result = (chunk: StreamChunk) => chunk.result;
    export const gap = (chunk: StreamChunk): number => (chunk.type === "gap" ? chunk.bytes : chunk.data.length);
    export const busy = (error: unknown): "SESSION_BUSY" | undefined => (isTrlError(error, "SESSION_BUSY") ? error.code : undefined);
    const session = await client.session({ idleTtlMs: 1, env: { A: "b" } });
    export const code: number | null = (await session.run("true", { timeoutMs: 1, stdin: new Uint8Array() })).exitCode;
  `,
};

describe("the package", () => {
  let daemon, project, env, compiled;
  before(async () => {
    daemon = await startDaemon();
    project = mkdtempSync(join(tmpdir(), "sdk-project-"));
    env = { ...process.env, TRL_SOCKET: daemon.socket, npm_config_cache: join(project, "cache") };
    // Without prepare: it would remove dist, which the other tests use, and build it again.
    await run("npm", ["run", "prepack"], { cwd: sdk, env });
    await run("npm", ["pack", "--ignore-scripts", "--pack-destination", project], { cwd: sdk, env });
    const archive = readdirSync(project).find((name) => name.endsWith(".tgz"));
    assert.match(archive, /^trl-client-\d+\.\d+\.\d+\.tgz$/);
    writeFileSync(join(project, "package.json"), "{}");
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${archive}`], { cwd: project, env });
    // Compiled as in the README, with the compiler of this tree, and all at once:
    // most of the time is spent on the types of Node.
    for (const [name, text] of Object.entries(programs)) {
      writeFileSync(join(project, `${name}.mts`), text);
    }
    const typeRoots = join(sdk, "node_modules", "@types");
    const options = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "--typeRoots", typeRoots];
    compiled = await run(process.execPath, [tsc, ...options, ...Object.keys(programs).map((name) => `${name}.mts`)], { cwd: project, env }).catch((error) => error);
  });
  after(async () => {
    await daemon?.stop();
    rmSync(project, { recursive: true, force: true });
  });

  test("contains only what is needed at run time", () => {
    const installed = join(project, "node_modules", "trl-client");
    assert.deepEqual(readdirSync(installed).sort(), ["LICENSE", "README.md", "dist", "package.json"]);
    assert.ok(existsSync(join(installed, "dist", "index.d.ts")));
    const { dependencies } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
    assert.equal(dependencies, undefined);
    assert.deepEqual(readdirSync(join(project, "node_modules")).filter((name) => !name.startsWith(".")), ["trl-client"]);
  });

  test("can be installed from its folder before it is built", async () => {
    const folder = join(project, "checkout");
    const made = ["node_modules", "dist"];
    cpSync(sdk, folder, { recursive: true, filter: (path) => !made.includes(basename(path)) });
    const other = join(project, "other");
    mkdirSync(other);
    writeFileSync(join(other, "package.json"), "{}");
    // As a user would, with the registry and the cache of this machine: the compiler is downloaded.
    await run("npm", ["install", "--no-audit", "--no-fund", folder], { cwd: other });
    const { stdout } = await run(process.execPath, ["--input-type=module", "-e", 'console.log(typeof (await import("trl-client")).connect)'], { cwd: other });
    assert.equal(stdout, "function\n");
  });

  test("every program compiles, and only valid code does", () => {
    assert.equal(compiled.stdout, "");
  });

  test("the start of the README has five lines, and runs as written", async () => {
    assert.ok(readme.indexOf(start) < readme.indexOf("\n## "), "it must come first");
    assert.equal(start.trimEnd().split("\n").length, 5);
    const { stdout } = await run(process.execPath, ["start.mjs"], { cwd: project, env });
    assert.equal(stdout, "/usr/lib\n\n");
  });

  test("the other programs of the README run as written", async () => {
    assert.equal((await run(process.execPath, ["started.mjs"], { cwd: project, env })).stdout, "hello world\nworld 0\n");
    assert.equal((await run(process.execPath, ["files.mjs"], { cwd: project, env })).stdout, "buy milk\n\ntoday.txt file 9\n");
  });

  test("the quickstart runs as written", async () => {
    const { stdout } = await run(process.execPath, ["quickstart.mjs"], { cwd: project, env });
    assert.equal(stdout, "0 /usr/lib\n\nline 1\nline 2\nline 3\n/usr/lib\nit ended with 0\n");
    // `await using` has destroyed its session.
    const client = await connect(daemon.socket);
    assert.deepEqual(await client.sessions({ alive: true }), []);
    await client.close();
  });

  test("a program that leaves its client open still exits", async () => {
    await run(process.execPath, ["calls.mjs"], { cwd: project, env, timeout: 30_000 });
  });
});
