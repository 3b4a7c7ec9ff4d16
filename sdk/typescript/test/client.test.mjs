// The client against a real daemon on its Unix socket.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect as dial, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import * as trl from "../dist/index.js";
import { defaultSocket } from "../dist/address.js";
import { LineSplitter } from "../dist/lines.js";
import { readOnly } from "../dist/transport.js";
import { sdk, startDaemon, until } from "./daemon.mjs";
import { checkPausedReader } from "./paused-reader.mjs";
import { startAnswerCutter, startProxy } from "./proxy.mjs";

const { connect } = trl;

describe("a client on the Unix socket", () => {
  let daemon, client;
  before(async () => {
    daemon = await startDaemon();
    client = await connect(`unix:${daemon.socket}`);
  });
  after(async () => {
    await client?.close();
    await daemon?.stop();
  });

  test("runs commands in a session that keeps its state", async () => {
    const session = await client.session({ shell: "bash", cwd: "/usr", env: { GREETING: "hi" }, name: "build" });
    assert.equal(session.created.name, "build");
    const first = await session.run("cd lib; x=5; echo $GREETING; echo oops >&2; (exit 3)", { timeoutMs: 60_000 });
    const { exitCode, stdout, stderr, ok, outcome, timedOut, cwd, stdoutBytes } = first;
    assert.deepEqual(
      { exitCode, stdout, stderr, ok, outcome, timedOut, cwd, stdoutBytes },
      { exitCode: 3, stdout: "hi\n", stderr: "oops\n", ok: false, outcome: "exited", timedOut: false, cwd: "/usr/lib", stdoutBytes: 3 },
    );
    const second = await session.run("echo $x $PWD; cat", { stdin: "from stdin" });
    assert.equal(second.stdout, "5 /usr/lib\nfrom stdin");
    assert.equal(second.ok, true);
    assert.deepEqual((await session.execs()).map((exec) => exec.execId), [first.execId, second.execId]);
    await session.destroy();
    await session.destroy(); // destroying twice is not an error
  });

  test("binary input and output are preserved", async () => {
    const session = await client.session();
    const data = Uint8Array.from({ length: 256 }, (_, i) => i);
    const result = await session.run("cat; printf '\\377' >&2", { stdin: data });
    assert.deepEqual(Uint8Array.from(result.stdoutData), data);
    assert.deepEqual([...result.stderrData], [0xff]);
    assert.equal(result.stderr, "\ufffd");
    await session.destroy();
  });

  test("a stream yields chunks with offsets, and ends after the exit", async () => {
    const session = await client.session({ shell: "bash" });
    const chunks = [];
    // The order of two pipes is defined only if one is read before the other is written.
    const stream = session.stream("echo one; read x; echo tw\u00f6 >&2; read x; printf '\\377'; exit 4", { stdinOpen: true });
    for await (const chunk of stream) {
      chunks.push(chunk);
      if (chunk.text.endsWith("\n")) {
        await client.exec(stream.execId).sendInput("\n");
      }
    }
    assert.deepEqual(
      chunks.map(({ type, offset, next, text, data }) => [type, offset, next, text, Buffer.from(data).toString("hex")]),
      [
        ["stdout", 0, 4, "one\n", "6f6e650a"],
        ["stderr", 4, 9, "tw\u00f6\n", "7477c3b60a"],
        ["stdout", 9, 10, "\ufffd", "ff"],
        ["exit", 10, 10, "", ""],
      ],
    );
    const result = await stream.result();
    assert.equal(result.exitCode, 4);
    assert.equal(result.outcome, "shell_exited");
    assert.equal(result, chunks.at(-1).result);
    assert.equal(stream.offset, 10);
    assert.deepEqual(await stream.next(), { done: true, value: undefined });

    // The same again, from the middle.
    const rest = [];
    for await (const chunk of client.exec(stream.execId).stream({ from: 4 })) {
      rest.push([chunk.type, chunk.offset]);
    }
    assert.deepEqual(rest, [["stderr", 4], ["stdout", 9], ["exit", 10]]);
    await session.destroy();
  });

  test("a command without output has only an exit chunk", async () => {
    const session = await client.session();
    const types = [];
    for await (const chunk of session.stream("true")) {
      types.push([chunk.type, chunk.offset, chunk.next]);
    }
    assert.deepEqual(types, [["exit", 0, 0]]);
    await session.destroy();
  });

  test("with a key a session is created once, and an input written once", async () => {
    const session = await client.session({ key: "once", name: "once" });
    assert.equal((await client.session({ key: "once", name: "once" })).id, session.id);
    await assert.rejects(client.session({ key: "once", name: "another" }), { code: "INVALID_PARAMS" });
    const cat = session.stream("cat", { stdinOpen: true });
    const exec = client.exec(await cat.start());
    for (let i = 0; i < 2; i++) {
      assert.equal((await exec.sendInput("one\n", { key: "1" })).next, 4);
      assert.equal((await exec.sendInput("two\n", { at: 4, whole: true, eof: true })).next, 8);
    }
    let text = "";
    for await (const chunk of cat) {
      text += chunk.text;
    }
    assert.equal(text, "one\ntwo\n");
    await session.destroy();
  });

  test("a command is fed, signalled and cancelled by its id", async () => {
    const session = await client.session({ shell: "bash" });
    const cat = session.stream("cat", { stdinOpen: true });
    const exec = client.exec(await cat.start());
    assert.equal((await exec.sendInput("typed ")).bytes, 6);
    assert.equal((await exec.sendInput(Buffer.from("bytes"), { eof: true })).bytes, 5);
    let text = "";
    for await (const chunk of cat) {
      text += chunk.text;
    }
    assert.equal(text, "typed bytes");

    const sleeper = session.stream("sleep 600");
    const sleeping = client.exec(await sleeper.start());
    assert.equal((await sleeping.info()).state, "running");
    // Before it executes sleep, it is a copy of the shell, which ignores the signal.
    await until("sleep has started", async () => (await session.info()).processes.some(({ command }) => command === "sleep 600"));
    assert.equal((await sleeping.signal("TERM")).processes, 1);
    assert.equal((await sleeper.result()).exitCode, 143);

    const other = session.stream("sleep 600");
    await other.start();
    assert.equal((await session.cancel()).cancelled, true);
    assert.equal((await other.result()).outcome, "cancelled");

    const { chunks, next } = await exec.output({ waitMs: 1_000, maxBytes: 5 });
    assert.deepEqual([chunks.map((chunk) => chunk.data).join(""), next], ["typed", 5]);
    assert.equal(typeof (await exec.output({ times: true })).chunks[0].at_ms, "number");
    await session.destroy();
  });

  test("a direct session has one command", async () => {
    const session = await client.session({ argv: ["sh", "-c", "echo direct; exit 7"] });
    const result = await session.exec.stream().result();
    assert.equal(result.exitCode, 7);
  });

  test("the end of a block destroys a session, but not one that was opened by id", async () => {
    const session = await client.session();
    await client.open(session.id)[Symbol.asyncDispose]();
    assert.equal((await session.info()).state, "idle");
    await session[Symbol.asyncDispose]();
    assert.equal((await session.info()).state, "terminated");
  });

  test("session events are received", async () => {
    const events = client.watch();
    await events.start();
    const session = await client.session({ name: "watched" });
    await session.run("true");
    await session.destroy();
    const seen = [];
    for await (const event of events) {
      if (event.session_id === session.id) {
        seen.push(event.state === undefined ? event.type : `${event.type} ${event.state}`);
        if (event.type === "destroyed") {
          assert.equal(event.reason, "destroyed");
          break;
        }
      }
    }
    assert.match(seen.join(", "), /^created.*state running, state idle, destroyed/);
  });

  test("a watch begins with a snapshot and reports commands", async () => {
    const session = await client.session();
    const events = session.watch({ snapshot: true, execs: true });
    await events.start();
    await session.run("exit 3");
    const seen = [];
    for await (const event of events) {
      seen.push(event.type);
      if (event.type === "exec_ended") {
        assert.deepEqual([event.outcome, event.exit_code], ["shell_exited", 3]);
        break;
      }
    }
    assert.deepEqual(seen, ["snapshot", "snapshot_end", "state", "exec_started", "exec_ended"]);
    await session.destroy();
  });

  test("every code of the contract has a class", async () => {
    const text = readFileSync(join(sdk, "..", "..", "docs", "protocol.md"), "utf8");
    const codes = [...text.matchAll(/^\| `([A-Z_]+)` \| -32\d+ \|/gm)].map((match) => match[1]);
    assert.ok(codes.length >= 20);
    assert.deepEqual(Object.keys(trl.errorClasses).sort(), codes.sort());
    for (const [code, type] of Object.entries(trl.errorClasses)) {
      const error = new type(code, "what", "next", { fact: 1 });
      assert.ok(error instanceof trl.TrlError && error instanceof Error);
      assert.equal(error.name, type.name);
    }
  });

  test("calls that are repeated by default only read", () => {
    const text = readFileSync(join(sdk, "..", "..", "docs", "protocol.md"), "utf8");
    const scopes = new Map([...text.matchAll(/^\| \[`([a-z.]+)`\]\([^)]*\) \| (\w+) \|/gm)].map((match) => [match[1], match[2]]));
    assert.ok(scopes.size >= 14);
    for (const method of readOnly) {
      assert.equal(scopes.get(method), "read", method);
    }
  });

  test("errors are typed, with a hint and details", async () => {
    const session = await client.session();
    const busy = session.stream("sleep 600");
    const execId = await busy.start();
    const table = [
      ["SESSION_NOT_FOUND", trl.SessionNotFoundError, () => client.open("s-0000000000").run("true"), {}],
      ["EXEC_NOT_FOUND", trl.ExecNotFoundError, () => client.exec("e-0000000000").info(), {}],
      ["EXEC_NOT_FOUND", trl.ExecNotFoundError, () => client.exec("e-0000000000").stream().next(), {}],
      ["SHELL_NOT_FOUND", trl.ShellNotFoundError, () => client.session({ shell: "/no/such/shell" }), {}],
      ["CWD_NOT_FOUND", trl.CwdNotFoundError, () => client.session({ cwd: "/no/such/dir" }), {}],
      ["SESSION_BUSY", trl.SessionBusyError, () => session.run("true"), { exec_id: execId }],
      ["SESSION_BUSY", trl.SessionBusyError, () => session.stream("true").next(), { exec_id: execId }],
      ["INVALID_PARAMS", trl.InvalidParamsError, () => client.call("session.create", { shel: "bash" }), { field: "shel" }],
      ["INVALID_PARAMS", trl.InvalidParamsError, () => client.exec(execId).stream({ from: 99 }).next(), { field: "from" }],
      ["METHOD_NOT_FOUND", trl.MethodNotFoundError, () => client.call("no.such"), {}],
      ["RUNTIME_NOT_FOUND", trl.RuntimeNotFoundError, () => client.session({ runtime: "moon" }), {}],
    ];
    for (const [code, type, call, details] of table) {
      await assert.rejects(call, (error) => {
        assert.ok(error instanceof type, `${code}: ${error}`);
        assert.ok(trl.isTrlError(error, code));
        assert.equal(error.code, code);
        for (const [name, value] of Object.entries(details)) {
          assert.equal(error.details[name], value);
        }
        return true;
      });
    }
    await assert.rejects(session.run("true"), (error) => error.hint !== "" && error.message.includes(error.hint));
    await session.destroy({ force: true });
    await assert.rejects(session.run("true"), trl.SessionTerminatedError);
    await assert.rejects(client.call("exec.stream", { session_id: session.id, command: "true" }), TypeError);
  });

  test("abort ends the waiting with its reason, and the command continues", async () => {
    const session = await client.session({ shell: "bash" });
    const reason = new Error("enough");

    const early = AbortSignal.abort(reason);
    await assert.rejects(client.ping({ signal: early }), (error) => error === reason);
    await assert.rejects(session.stream("true", { signal: early }).next(), (error) => error === reason);
    await assert.rejects(connect(daemon.socket, { signal: early }), (error) => error === reason);

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
    assert.deepEqual(await stream.next(), { done: true, value: undefined });
    assert.equal((await client.exec(stream.execId).info()).state, "running");
    await session.destroy({ force: true });
  });

  test("leaving a stream leaves the command running", async () => {
    const session = await client.session({ shell: "bash" });
    const stream = session.stream("echo begun; sleep 600");
    for await (const chunk of stream) {
      assert.equal(chunk.text, "begun\n");
      break;
    }
    assert.equal((await client.exec(stream.execId).info()).state, "running");
    await assert.rejects(stream.result(), /closed before/);
    const again = client.exec(stream.execId).stream({ from: 6 });
    const waiting = again.next();
    await again.close();
    assert.deepEqual(await waiting, { done: true, value: undefined });
    await session.destroy({ force: true });
  });

  test("a reader that pauses buffers little, and misses nothing", () => checkPausedReader(client));

  test("output that the quota dropped is a gap", async () => {
    const small = await startDaemon(["--exec-quota-bytes", String(1 << 20), "--exec-memory-bytes", String(64 << 10)]);
    const tight = await connect(small.socket);
    try {
      const session = await tight.session({ shell: "bash" });
      const { execId, stdoutBytes } = await session.run(`head -c ${8 << 20} /dev/zero | tr '\\0' a`);
      assert.equal(stdoutBytes, 8 << 20);
      let offset = 0;
      let gaps = 0;
      let bytes = 0;
      for await (const chunk of tight.exec(execId).stream()) {
        assert.equal(chunk.offset, offset);
        offset = chunk.next;
        if (chunk.type === "gap") {
          gaps += chunk.bytes;
          assert.equal(chunk.data.length, 0);
        }
        bytes += chunk.data.length;
      }
      assert.ok(gaps > 6 << 20);
      assert.equal(bytes + gaps, 8 << 20);
    } finally {
      await tight.close();
      await small.stop();
    }
  });

  test("chunks do not split characters", async () => {
    const session = await client.session({ shell: "bash" });
    let text = "";
    // 63,000 bytes fit into the pipe: a full one would cut a write within a character.
    for await (const chunk of session.stream("for i in {1..7000}; do printf '\u00e4\u20ac\u{1f600}'; done")) {
      assert.ok(!chunk.text.includes("\ufffd"));
      text += chunk.text;
    }
    assert.equal(text, "\u00e4\u20ac\u{1f600}".repeat(7000));
    await session.destroy();
  });

  test("concurrent calls get their own answers", async () => {
    const sessions = await Promise.all(Array.from({ length: 8 }, () => client.session()));
    const results = await Promise.all(sessions.flatMap((session, i) => [session.run(`echo ${i}a`, { wait: true }), session.run(`echo ${i}b`, { wait: true })]));
    assert.deepEqual(results.map((result) => result.stdout), sessions.flatMap((_, i) => [`${i}a\n`, `${i}b\n`]));
    await Promise.all(sessions.map((session) => session.destroy()));
  });

  test("the address may be a path, an environment variable or the default", async () => {
    assert.equal(defaultSocket({ XDG_RUNTIME_DIR: "/run/user/7", HOME: "/home/u" }, false), "/run/user/7/trl/trl.sock");
    assert.equal(defaultSocket({ XDG_RUNTIME_DIR: "run", HOME: "/home/u" }, false), "/home/u/.local/state/trl/trl.sock");
    assert.equal(defaultSocket({ HOME: "/root" }, true), "/run/trl/trl.sock");
    assert.equal(defaultSocket({}, false), "/run/trl/trl.sock");
    await assert.rejects(connect("ftp://host"), TypeError);
    const before = process.env.TRL_SOCKET;
    process.env.TRL_SOCKET = daemon.socket;
    try {
      const other = await connect();
      assert.equal(other.address, `unix:${daemon.socket}`);
      await other.close();
      await assert.rejects(other.ping(), trl.ClosedError);
    } finally {
      if (before === undefined) {
        delete process.env.TRL_SOCKET;
      } else {
        process.env.TRL_SOCKET = before;
      }
    }
  });

  test("a missing daemon is reported", async () => {
    await assert.rejects(connect(join(daemon.dir, "nothing.sock")), trl.NoDaemonError);
  });

  test("a server that is not a daemon is reported", async () => {
    const path = join(daemon.dir, "other.sock");
    const server = createServer((socket) => socket.end("SSH-2.0-other\r\n")).listen(path);
    await assert.rejects(connect(path), trl.ProtocolError);
    server.close();
  });

  test("closing ends pending calls, and leaves the sessions", async () => {
    const other = await connect(daemon.socket);
    const session = await other.session({ shell: "bash" });
    const stream = session.stream("echo begun; sleep 600");
    await stream.next();
    const events = other.watch();
    await events.start();
    const pending = [stream.next(), events.next(), other.call("exec.output", { exec_id: stream.execId, from: 6, wait_ms: 600_000 })];
    const settled = Promise.allSettled(pending);
    await other.close();
    assert.deepEqual((await settled).map(({ reason }) => reason?.name), ["ClosedError", "ClosedError", "ClosedError"]);
    assert.equal((await client.open(session.id).info()).state, "running");
    await client.open(session.id).destroy({ force: true });
  });
});

describe("a lost connection", () => {
  let daemon;
  before(async () => {
    daemon = await startDaemon();
  });
  after(() => daemon?.stop());

  async function cutting(cuts, options) {
    const proxy = await startAnswerCutter({ listen: join(daemon.dir, `cut-${randomUUID()}.sock`), target: daemon.socket, cuts });
    const client = await connect(proxy.address, options);
    return {
      client,
      cutsLeft: proxy.cutsLeft,
      async close() {
        await client.close();
        await proxy.close();
      },
    };
  }

  test("a run is repeated, but its command runs once", async () => {
    const direct = await connect(daemon.socket);
    const session = await direct.session({ shell: "bash" });
    const cut = await cutting(3);
    const file = join(daemon.dir, "runs");
    const result = await cut.client.open(session.id).run(`echo run >> '${file}'; echo done`);
    assert.equal(result.stdout, "done\n");
    assert.equal(cut.cutsLeft(), 0);
    assert.equal(readFileSync(file, "utf8"), "run\n");
    assert.equal((await session.execs()).length, 1);
    await cut.close();
    await direct.close();
  });

  test("a stream is started once", async () => {
    const direct = await connect(daemon.socket);
    const session = await direct.session({ shell: "bash" });
    const cut = await cutting(3);
    const result = await cut.client.open(session.id).stream("echo done").result();
    assert.equal(result.ok, true);
    assert.equal(cut.cutsLeft(), 0);
    assert.equal((await session.execs()).length, 1);
    await cut.close();
    await direct.close();
  });

  test("a call that is not safe to repeat reports that its effect is unknown", async () => {
    const cut = await cutting(1);
    await assert.rejects(cut.client.session({ name: "lost", key: "" }), (error) => error instanceof trl.ConnectionLostError && error.effect === "unknown");
    // It did have its effect.
    await until("it exists all the same", async () => (await cut.client.sessions()).some((session) => session.name === "lost"));
    await cut.close();
  });

  test("a session is created once although the answer is lost", async () => {
    const cut = await cutting(1);
    const session = await cut.client.session({ name: "made once" });
    assert.deepEqual((await cut.client.sessions()).filter(({ name }) => name === "made once").map((made) => made.session_id), [session.id]);
    await cut.close();
  });

  test("a session is destroyed although the answer is lost", async () => {
    const direct = await connect(daemon.socket);
    const session = await direct.session();
    const cut = await cutting(1);
    await cut.client.open(session.id).destroy();
    assert.equal((await session.info()).state, "terminated");
    await cut.close();
    await direct.close();
  });

  test("the limit ends the retries", async () => {
    const cut = await cutting(Infinity, { reconnect: { firstDelayMs: 5, limitMs: 200 } });
    const began = performance.now();
    await assert.rejects(cut.client.info(), trl.ConnectionLostError);
    assert.ok(performance.now() - began >= 200);
    await assert.rejects(cut.client.info({ reconnect: { limitMs: 0 } }), trl.ConnectionLostError);
    await cut.close();
  });

  test("a connection that lasted for a while is retried although the limit has passed", async () => {
    const direct = await connect(daemon.socket);
    const session = await direct.session({ shell: "bash" });
    const path = join(daemon.dir, "held.sock");
    const sockets = new Set();
    const proxy = createServer((client) => {
      const upstream = dial(daemon.socket);
      sockets.add(client);
      client.on("error", () => {});
      client.on("close", () => upstream.destroy());
      client.pipe(upstream).pipe(client);
    }).listen(path);
    const client = await connect(path, { waitForDaemonMs: 5_000, reconnect: { firstDelayMs: 1, maxDelayMs: 20, limitMs: 2_000 } });
    const run = client.open(session.id).run("read line; echo $line", { stdinOpen: true });
    await until("it runs", async () => (await session.info()).state === "running");
    const queued = client.open(session.id).stream("echo followed", { wait: true });
    await queued.start();
    const followed = queued.result();
    for (let cut = 0; cut < 4; cut++) {
      const connected = sockets.size;
      for (const socket of sockets) {
        socket.destroy();
      }
      await until("both are back", () => sockets.size >= connected + 2);
      await new Promise((resolve) => setTimeout(resolve, 600)); // it lasts for a while: in total longer than the limit
    }
    await direct.exec((await session.info()).exec.exec_id).sendInput("answer\n");
    assert.equal((await run).stdout, "answer\n");
    assert.equal((await followed).ok, true);
    await client.close();
    await direct.close();
    proxy.close();
  });

  test("a daemon that hangs is dropped, an idle one is not", async () => {
    const direct = await connect(daemon.socket);
    const session = await direct.session({ shell: "bash" });
    const path = join(daemon.dir, "frozen.sock");
    const proxy = await startProxy({ listen: path, target: daemon.socket, cuts: 2, meanBytes: 40_000, seed: 5, freeze: true });
    const frozen = await connect(path, { keepAliveMs: 1_000, waitForDaemonMs: 60_000 });
    let bytes = 0;
    // Silent for longer than the keep-alive, but alive.
    for await (const chunk of frozen.open(session.id).stream(`head -c ${1 << 20} /dev/zero; sleep 3; echo end`)) {
      bytes += chunk.data.length;
    }
    assert.equal(bytes, (1 << 20) + 4);
    assert.equal(proxy.cuts, 2);
    assert.equal(proxy.connections <= 4, true, `${proxy.connections} connections`);
    await frozen.close();
    await proxy.close();
    await direct.close();
  });

  test("events continue with a gap", async () => {
    const direct = await connect(daemon.socket);
    const path = join(daemon.dir, "events.sock");
    const sockets = new Set();
    const proxy = createServer((client) => {
      const upstream = dial(daemon.socket);
      for (const socket of [client, upstream]) {
        sockets.add(socket);
        socket.on("error", () => {});
      }
      client.pipe(upstream).pipe(client);
    }).listen(path);
    const client = await connect(path, { waitForDaemonMs: 5_000 });
    const events = client.watch();
    await events.start();
    await direct.session({ name: "first" });
    assert.equal((await events.next()).value.name, "first");
    const pending = (async () => {
      for (;;) {
        const { value } = await events.next();
        if (value.type === "gap") {
          return value;
        }
      }
    })();
    for (const socket of sockets) {
      socket.destroy();
    }
    await pending;
    await direct.session({ name: "second" });
    for await (const event of events) {
      if (event.name === "second") {
        break;
      }
    }
    await client.close();
    await direct.close();
    proxy.close();
  });

  test("a restarted daemon is found, but not its earlier sessions", async () => {
    const own = await startDaemon();
    const client = await connect(own.socket);
    const session = await client.session({ shell: "bash" });
    const stream = session.stream("echo begun; sleep 600");
    await stream.next();
    const next = stream.next();
    next.catch(() => {});
    await own.kill();
    await own.start();
    await assert.rejects(next, trl.ExecNotFoundError);
    assert.equal((await client.ping()).protocol, 1);
    await client.close();
    await own.stop();
  });
});

test("a call that may have been executed is repeated only if that is safe", async () => {
  const dir = mkdtempSync(join(tmpdir(), "sdk-away-"));
  const path = join(dir, "d.sock");
  let sent, calls, then;
  const server = createServer((socket) => {
    const lines = new LineSplitter();
    socket.on("error", () => {});
    socket.on("data", (part) =>
      lines.push(part, (line) => {
        const { id, method } = JSON.parse(line);
        const away = method !== "system.ping" && calls++ < (then === undefined ? 1 : 2);
        const details = calls === 2 ? then : { retry_after_ms: 1, ...sent };
        const error = { code: -32013, message: "away", data: { code: "RUNTIME_UNAVAILABLE", ...details } };
        socket.write(JSON.stringify({ jsonrpc: "2.0", id, ...(away ? { error } : { result: { protocol: 1 } }) }) + "\n");
      }),
    );
  }).listen(path);
  await once(server, "listening");
  const client = await connect(path);
  try {
    const run = { session_id: "s-1", command: "x" };
    for (const [details, method, params, want] of [
      [{ sent: "maybe" }, "exec.run", run, 1],
      [{ sent: "maybe" }, "exec.run", { ...run, key: "k" }, 2],
      [{ sent: "maybe" }, "exec.signal", { exec_id: "e-1", signal: "INT" }, 1],
      [{ sent: "maybe" }, "session.list", {}, 2],
      [{ sent: "no" }, "exec.run", run, 2],
      [{ sent: "no" }, "exec.run", { ...run, key: "k" }, 2],
      [{}, "exec.run", run, 2],
      [{}, "session.list", {}, 2],
    ]) {
      [sent, calls] = [details, 0];
      await client.call(method, params).catch((error) => assert.ok(error instanceof trl.RuntimeUnavailableError, error));
      assert.equal(calls, want, `${method} ${JSON.stringify(details)}`);
    }
    // A lost attempt is not forgotten when the next one can't be sent.
    [sent, calls, then] = [{ sent: "maybe" }, 0, { sent: "no", runtime: "ssh:box" }];
    await assert.rejects(client.call("exec.run", { ...run, key: "k" }), (error) => error.details["sent"] === "maybe" && calls === 2);
  } finally {
    await client.close();
    server.close();
    rmSync(dir, { recursive: true });
  }
});
