// Handles to commands: session.start(), what they write, and how they end.

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { after, before, describe, test } from "node:test";
import { inspect } from "node:util";

import * as trl from "../dist/index.js";
import { listeners } from "../dist/port.js";
import { startDaemon, until } from "./daemon.mjs";

describe("a started command", () => {
  let daemon, client, session;
  before(async () => {
    daemon = await startDaemon();
    client = await trl.connect(daemon.socket);
    session = await client.session({ shell: "bash", name: "build" });
  });
  after(async () => {
    await client?.close();
    await daemon?.stop();
  });

  test("is waited for, and its result has the output", async () => {
    const exec = await session.start("read x; echo got $x; echo oops >&2; exit 3", { stdinOpen: true });
    assert.equal((await exec.wait({ timeoutMs: 1 })).state, "running");
    await assert.rejects(session.run("true"), trl.SessionBusyError);
    await exec.sendInput("it\n");
    const { exitCode, stdout, stderr, ok, execId } = await exec.wait();
    assert.deepEqual({ exitCode, stdout, stderr, ok, execId }, { exitCode: 3, stdout: "got it\n", stderr: "oops\n", ok: false, execId: exec.execId });
    // A handle by id has no output, but waits too.
    const other = client.exec(exec.execId);
    assert.deepEqual([(await other.wait()).exitCode, (await other.info()).exitCode], [3, 3]);
  });

  test("by its id it is waited for with a limit", async () => {
    const exec = client.exec((await session.start("read x", { stdinOpen: true })).execId);
    assert.equal((await exec.wait({ timeoutMs: 20 })).state, "running");
    await exec.sendInput("\n");
    assert.equal((await exec.wait({ timeoutMs: 60_000 })).state, "exited");
  });

  test("is iterated, and yields only output", async () => {
    const exec = await session.start("echo one; sleep 0.01; echo two >&2");
    const seen = [];
    for await (const chunk of exec) {
      seen.push([chunk.type, chunk.text]);
    }
    assert.deepEqual(seen.sort(), [["stderr", "two\n"], ["stdout", "one\n"]]);
  });

  test("its output goes to callbacks, whole characters at a time", async () => {
    let out = "";
    let err = "";
    const callbacks = { onStdout: (text) => (out += text), onStderr: (text) => (err += text) };
    // A character in two writes, in output that is not all text.
    const command = "printf '\\377\\303'; sleep 0.05; printf '\\244'; echo oops >&2";
    const result = await (await session.start(command, callbacks)).wait();
    assert.deepEqual([out, err, result.stderr], ["\ufffd\u00e4", "oops\n", "oops\n"]);
    out = "";
    const ran = await session.run("echo more; exit 2", callbacks);
    assert.deepEqual([out, ran.stdout, ran.exitCode], ["more\n", "more\n", 2]);
    // One that throws is not ignored.
    const failing = await session.start("echo x", { onStdout: () => { throw new Error("mine"); } });
    await assert.rejects(failing.wait(), /mine/);
  });

  test("a run with callbacks is answered early too", async () => {
    let out = "";
    const result = await session.run("echo begun; sleep 600", { yieldMs: 300, onStdout: (text) => (out += text) });
    assert.equal(result.state, "running");
    await until("its output is there", () => out === "begun\n");
    await client.exec(result.execId).kill();
  });

  test("is killed, and so is what it left running", async () => {
    const exec = await session.start("sleep 600");
    await exec.kill();
    assert.equal((await exec.wait()).outcome, "cancelled");
    const parent = await session.start("sleep 600 & echo $!");
    const { stdout, survivors } = await parent.wait();
    assert.deepEqual(survivors.map(({ pid }) => pid), [Number(stdout)]);
    await parent.kill();
    await until("it is gone", async () => !(await session.info()).processes.some(({ pid }) => pid === Number(stdout)));
    await parent.kill(); // nothing is left to kill
  });

  test("its text is waited for, from match to match", async () => {
    const exec = await session.start("echo 'a.c and abc'; echo id 42 >&2; read x; echo id 43", { stdinOpen: true, merge: true });
    assert.equal((await exec.waitForText("a.c")).index, 0);
    assert.equal((await exec.waitForText(/a.c/g))[0], "abc");
    assert.equal((await exec.waitForText(/id (\d+)/))[1], "42");
    await assert.rejects(exec.waitForText(/id (\d+)/, { timeoutMs: 50 }), (error) => error instanceof trl.CallTimeoutError && error.code === "CALL_TIMEOUT");
    await exec.sendInput("\n");
    assert.equal((await exec.waitForText(/id (\d+)/, { timeoutMs: 60_000 }))[1], "43");
    await assert.rejects(exec.waitForText("more"), (error) => error instanceof trl.ExecEndedError && error.code === "EXEC_ENDED" && error.result.exitCode === 0);
    const reason = new Error("enough");
    await assert.rejects(exec.waitForText("more", { timeoutMs: 60_000, signal: AbortSignal.abort(reason) }), (error) => error === reason);
  });

  test("is waited for until it is idle", async () => {
    const exec = await session.start("for i in 1 2 3; do echo $i; sleep 0.1; done; read x; echo end", { stdinOpen: true });
    const idle = await exec.waitForIdle(400);
    assert.deepEqual([idle.state, idle.stdoutBytes], ["running", 6]);
    await assert.rejects(exec.waitForIdle(60_000, { timeoutMs: 20 }), trl.CallTimeoutError);
    await exec.sendInput("\n");
    assert.equal((await exec.waitForIdle(60_000)).state, "exited");
  });

  test("result.check() throws the failure with its message", async () => {
    const good = await session.run("echo fine");
    assert.equal(good.check(), good);
    const bad = await session.run("echo no such luck >&2; exit 4");
    assert.throws(() => bad.check(), (error) => error instanceof trl.CommandFailedError && error.result === bad && error.code === "COMMAND_FAILED" && /exit code 4\nno such luck$/.test(error.message));
    const merged = await session.run("echo why; exit 5", { merge: true });
    assert.throws(() => merged.check(), /exit code 5\nwhy$/);
  });

  test("objects show what they are", async () => {
    const result = await session.run("echo hi; (exit 3)");
    assert.match(inspect(result), /^Result\(e-\w+: exited 3 in \d+ ms, stdout "hi\\n"\)$/);
    assert.ok(inspect(await session.run("printf '%01000d' 0")).length < 300);
    assert.equal(inspect(session), `Session(${session.id} "build")`);
    assert.equal(inspect(client.open("s-1")), "Session(s-1)");
    assert.equal(inspect(client), `Client(unix:${daemon.socket})`);
    assert.equal(inspect(client.exec("e-1")), "Exec(e-1)");
    assert.equal(inspect(session.files), `Files(${session.id})`);
    assert.equal(inspect(session.stream("true")), "ExecStream(not started at 0)");
    // The fields are still those of an object.
    assert.equal(JSON.parse(JSON.stringify(result)).exitCode, 3);
  });

  test("hints name the options of this package", async () => {
    const wrong = (call, words) => assert.rejects(call, (error) => error instanceof trl.InvalidParamsError && words.test(error.hint) && error.message.includes(error.hint) && words.test(error.stack));
    await wrong(session.run("true", { timeout: 5 }), /did you mean timeoutMs\?/);
    await wrong(session.start("true", { timeout: 5 }), /timeoutMs/);
    await wrong(session.stream("true", { timeout: 5 }).next(), /timeoutMs/);
    await wrong(client.session({ inheritEnvironment: "all" }), /inheritEnv/);
    await wrong(client.session({ reconnectMs: 5 }), /whileConnected: true/);
    // client.call() takes the names of the contract.
    await wrong(client.call("exec.run", { session_id: session.id, command: "true", timeout: 5 }), /timeout_ms/);
  });

  describe("a port", () => {
    const listen = async (host) => {
      const server = createServer();
      await new Promise((resolve) => server.listen(0, host, resolve));
      return server;
    };

    test("is waited for while the session is busy", async () => {
      const server = await listen("127.0.0.1");
      const { port } = server.address();
      let connections = 0;
      server.on("connection", () => connections++);
      const busy = await session.start("sleep 600");
      await session.waitForPort(port);
      await session.waitForPort(port, { host: "127.0.0.1" });
      await session.waitForPort(port, { host: "localhost" });
      await assert.rejects(session.waitForPort(port, { host: "::1", timeoutMs: 200 }), trl.CallTimeoutError);
      assert.equal(connections, 0);
      await new Promise((resolve) => server.close(resolve));
      const late = session.waitForPort(port, { timeoutMs: 60_000 });
      const again = createServer().listen(port, "127.0.0.1");
      await late;
      again.close();
      await busy.kill();
    });

    test("is one that listens on every address too", async () => {
      const server = await listen("::");
      await session.waitForPort(server.address().port, { host: "127.0.0.1" });
      server.close();
    });

    test("must be one", async () => {
      await assert.rejects(session.waitForPort(0), RangeError);
      await assert.rejects(session.waitForPort(80, { host: "example.com" }), TypeError);
      await assert.rejects(client.open("s-0000000000").waitForPort(80), trl.SessionNotFoundError);
    });

    test("has addresses as the kernel writes them", () => {
      const wildcards = ["0".repeat(8), "0".repeat(32)];
      assert.deepEqual(listeners(undefined), []);
      assert.deepEqual(listeners("127.0.0.1"), [...wildcards, "0100007F", "0000000000000000FFFF00000100007F"]);
      assert.deepEqual(listeners("2001:db8::1:2"), [...wildcards, "B80D0120000000000000000002000100"]);
    });
  });
});
