// The same behaviour over HTTP: calls, Server-Sent Events, WebSocket, TLS.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import * as trl from "../dist/index.js";
import { until } from "./daemon.mjs";
import { exactlyOnce } from "./exactly-once.mjs";
import { makeToken, startHttpDaemon, usable } from "./http-daemon.mjs";
import { checkPausedReader } from "./paused-reader.mjs";
import { startAnswerCutter, startProxy } from "./proxy.mjs";

const { connect } = trl;

describe("a client over HTTP", () => {
  let http, client;
  before(async () => {
    http = await startHttpDaemon();
    client = await connect(http.url, { token: http.token });
  });
  after(async () => {
    await client?.close();
    await http?.daemon.stop();
  });

  test("runs, streams and follows", async () => {
    const session = await client.session({ shell: "bash", cwd: "/usr" });
    const result = await session.run("cd lib; pwd; exit 3");
    assert.deepEqual([result.exitCode, result.stdout, result.outcome], [3, "/usr/lib\n", "shell_exited"]);
    const stream = session.stream("echo one; read x; printf '\\377' >&2", { stdinOpen: true });
    const chunks = [];
    for await (const chunk of stream) {
      if (chunk.text === "one\n") {
        await client.exec(stream.execId).sendInput("\n");
      }
      chunks.push([chunk.type, chunk.offset, chunk.next, Buffer.from(chunk.data).toString("hex")]);
    }
    assert.deepEqual(chunks, [
      ["stdout", 0, 4, "6f6e650a"],
      ["stderr", 4, 5, "ff"],
      ["exit", 5, 5, ""],
    ]);
    const rest = [];
    for await (const chunk of client.exec(stream.execId).stream({ from: 4 })) {
      rest.push([chunk.type, chunk.offset]);
    }
    assert.deepEqual(rest, [["stderr", 4], ["exit", 5]]);
    await session.destroy();
    assert.equal((await session.info()).state, "terminated");
  });

  test("has handles, files and ports", async () => {
    const session = await client.session({ shell: "bash" });
    let out = "";
    const exec = await session.start("read x; echo $x", { stdinOpen: true, onStdout: (text) => (out += text) });
    await session.waitForPort(http.port, { host: "127.0.0.1" });
    const path = join(http.daemon.dir, "over http");
    const data = new Uint8Array((2 << 20) + 1).fill(0xff);
    assert.equal(await session.files.write(path, data), data.length);
    assert.deepEqual(Uint8Array.from(await session.files.read(path)), data);
    await exec.sendInput("typed\n");
    await exec.waitForText("typed");
    assert.deepEqual([(await exec.wait()).stdout, out], ["typed\n", "typed\n"]);
    await session.destroy();
  });

  test("errors are typed", async () => {
    const reader = makeToken(http.daemon, "read");
    await usable(http.url, { token: reader });
    const only = await connect(http.url, { token: reader });
    const table = [
      [trl.UnauthorizedError, () => connect(http.url, { token: "no-such-token" })],
      [trl.UnauthorizedError, () => connect(http.url, { token: "" })],
      [trl.ForbiddenError, () => only.session()],
      [trl.SessionNotFoundError, () => client.open("s-0000000000").run("true")],
      [trl.ExecNotFoundError, () => client.exec("e-0000000000").stream().next()],
      [trl.InvalidParamsError, () => client.call("session.create", { shel: "bash" })],
      [trl.NoDaemonError, () => connect("http://127.0.0.1:1")],
    ];
    for (const [type, call] of table) {
      await assert.rejects(call, (error) => error instanceof type || assert.fail(`not a ${type.name}: ${error}`));
    }
    await only.close();
  });

  test("the token may be in the environment", async () => {
    const before = process.env.TRL_TOKEN;
    process.env.TRL_TOKEN = http.token;
    try {
      await (await connect(http.url)).close();
    } finally {
      if (before === undefined) {
        delete process.env.TRL_TOKEN;
      } else {
        process.env.TRL_TOKEN = before;
      }
    }
  });

  test("abort ends the waiting with its reason", async () => {
    const session = await client.session({ shell: "bash" });
    const reason = new Error("enough");
    const running = new AbortController();
    const run = session.run("sleep 600", { signal: running.signal });
    await until("it runs", async () => (await session.info()).state === "running");
    running.abort(reason);
    await assert.rejects(run, (error) => error === reason);
    assert.equal((await session.info()).state, "running");
    await session.cancel();

    const following = new AbortController();
    const stream = session.stream("echo begun; sleep 600", { signal: following.signal });
    assert.equal((await stream.next()).value.text, "begun\n");
    const waiting = stream.next();
    following.abort(reason);
    await assert.rejects(waiting, (error) => error === reason);
    assert.equal((await client.exec(stream.execId).info()).state, "running");
    await session.destroy({ force: true });
  });

  test("a reader that pauses buffers little, and misses nothing", () => checkPausedReader(client));

  test("session events are received", async () => {
    const events = client.watch();
    await events.start();
    const session = await client.session({ name: "watched".repeat(40) }); // longer than the shortest frame
    await session.destroy();
    const seen = [];
    for await (const event of events) {
      if (event.session_id === session.id) {
        seen.push(event.type);
        if (event.type === "destroyed") {
          break;
        }
      }
    }
    assert.equal(seen[0], "created");
  });

  test("closing ends pending calls", async () => {
    const other = await connect(http.url, { token: http.token });
    const session = await other.session({ shell: "bash" });
    const stream = session.stream("echo begun; sleep 600");
    await stream.next();
    const events = other.watch();
    await events.start();
    const pending = [stream.next(), events.next(), other.call("exec.output", { exec_id: stream.execId, from: 6, wait_ms: 600_000 })];
    const settled = Promise.allSettled(pending);
    await other.close();
    assert.deepEqual((await settled).map(({ reason }) => reason?.name), ["ClosedError", "ClosedError", "ClosedError"]);
    await client.open(session.id).destroy({ force: true });
  });

  test("a run is repeated after a lost answer, but its command runs once", async () => {
    const session = await client.session({ shell: "bash" });
    const cutter = await startAnswerCutter({ listen: { host: "127.0.0.1", port: 0 }, target: { host: "127.0.0.1", port: http.port }, cuts: 3 });
    const cut = await connect(`http://127.0.0.1:${cutter.address.port}`, { token: http.token });
    const file = join(http.daemon.dir, "runs");
    assert.equal((await cut.open(session.id).run(`echo run >> '${file}'; echo done`)).stdout, "done\n");
    assert.equal(cutter.cutsLeft(), 0);
    assert.equal(readFileSync(file, "utf8"), "run\n");
    await cut.close();
    await cutter.close();
    await session.destroy();
  });

  test("a long command is awaited with short requests, and a silent connection is dropped", async () => {
    const session = await client.session({ shell: "bash" });
    const target = { host: "127.0.0.1", port: http.port };
    const proxy = await startProxy({ listen: { host: "127.0.0.1", port: 0 }, target, cuts: 3, meanBytes: 500, freeze: true });
    const frozen = await connect(`http://127.0.0.1:${proxy.address.port}`, { token: http.token, keepAliveMs: 200, waitForDaemonMs: 20_000 });
    const result = await frozen.open(session.id).run("sleep 1; echo done");
    assert.equal(result.stdout, "done\n");
    while (proxy.cuts < 3) {
      assert.equal((await frozen.ping()).protocol, 1);
    }
    assert.equal((await session.execs()).length, 1);
    const early = await frozen.open(session.id).run("sleep 600", { yieldMs: 50 });
    assert.equal(early.state, "running");
    await session.destroy({ force: true });
    await frozen.close();
    await proxy.close();
  });

  test("a call that is not safe to repeat reports that its effect is unknown", async () => {
    const cutter = await startAnswerCutter({ listen: { host: "127.0.0.1", port: 0 }, target: { host: "127.0.0.1", port: http.port }, cuts: 1 });
    const cut = await connect(`http://127.0.0.1:${cutter.address.port}`, { token: http.token });
    await assert.rejects(cut.session({ name: "lost", key: "" }), (error) => error instanceof trl.ConnectionLostError && error.effect === "unknown");
    assert.equal((await client.sessions()).filter((session) => session.name === "lost").length, 1);
    await cut.close();
    await cutter.close();
  });

  test("an error of a gateway is retried, one of another server is not", async () => {
    let refusals = 0;
    const gateway = createServer((request, response) => {
      if (refusals > 0) {
        refusals--;
        response.writeHead(502).end("bad gateway");
        return;
      }
      const { method, url, headers } = request;
      request.pipe(
        httpRequest(http.url + url, { method, headers }, (answer) => {
          response.writeHead(answer.statusCode, answer.headers);
          answer.pipe(response);
        }),
      );
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => gateway.once("listening", resolve));
    const address = `http://127.0.0.1:${gateway.address().port}`;
    const behind = await connect(address, { token: http.token });
    refusals = 2;
    assert.equal((await behind.ping()).protocol, 1);
    refusals = 2;
    await assert.rejects(behind.session({ key: "" }), trl.ConnectionLostError);
    refusals = 2;
    await (await behind.session()).destroy();
    await behind.close();
    gateway.closeAllConnections();
    gateway.close();

    const other = createServer((_request, response) => response.end("<html>")).listen(0, "127.0.0.1");
    await new Promise((resolve) => other.once("listening", resolve));
    await assert.rejects(connect(`http://127.0.0.1:${other.address().port}`, { token: "x" }), trl.ProtocolError);
    other.closeAllConnections();
    other.close();
  });
});

test("a rate-limited call is repeated after the time that the daemon gives", async () => {
  const http = await startHttpDaemon(["--http-rate", "10"]);
  const client = await connect(http.url, { token: http.token, waitForDaemonMs: 10_000 });
  try {
    const answers = await Promise.all(Array.from({ length: 30 }, () => client.ping()));
    assert.equal(answers.length, 30);
    await assert.rejects(
      Promise.all(Array.from({ length: 30 }, () => client.ping({ reconnect: { limitMs: 0 } }))),
      trl.RuntimeUnavailableError,
    );
  } finally {
    await client.close();
    await http.daemon.stop();
  }
});

test("TLS: a trusted and an untrusted certificate", async () => {
  const dir = mkdtempSync(join(tmpdir(), "sdk-tls-"));
  const [cert, key] = [join(dir, "cert.pem"), join(dir, "key.pem")];
  execFileSync(
    "openssl",
    ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
    { stdio: "ignore" },
  );
  const tls = { ca: readFileSync(cert, "utf8") };
  const http = await startHttpDaemon(["--http-tls-cert", cert, "--http-tls-key", key], "https");
  try {
    const client = await connect(http.url, { token: http.token, tls });
    const session = await client.session({ shell: "bash" });
    assert.equal((await session.run("echo safe")).stdout, "safe\n");
    assert.equal((await session.stream("echo safe").next()).value.text, "safe\n");
    const events = session.watch();
    await events.start();
    await session.destroy();
    assert.equal((await events.next()).value.session_id, session.id);
    await events.close();
    await client.close();
    await assert.rejects(connect(http.url, { token: http.token }), trl.ProtocolError);
  } finally {
    await http.daemon.stop();
    rmSync(dir, { recursive: true, force: true });
  }
});

test("60 cuts over 16 MiB over HTTP", { timeout: 120_000 }, async () => {
  const { same, exits, gaps, bytes, commands, cuts } = await exactlyOnce({ transport: "http", bytes: 16 << 20, cuts: 60 });
  assert.deepEqual({ same, exits, gaps, bytes, commands, cuts }, { same: true, exits: 1, gaps: 0, bytes: 16 << 20, commands: 1, cuts: 60 });
});
