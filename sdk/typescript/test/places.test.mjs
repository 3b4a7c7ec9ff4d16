// Sessions in places: a real one, and one that has forgotten a command.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { connect, ExecNotFoundError } from "../dist/index.js";
import { LineSplitter } from "../dist/lines.js";
import { startDaemon } from "./daemon.mjs";

test("a session runs in a place", async () => {
  // The place behind the command is this machine with another home.
  const home = mkdtempSync(join(tmpdir(), "sdk-place-"));
  const config = join(home, "config.toml");
  writeFileSync(config, `[place.here]\ncommand = ["env", "HOME=${home}"]\ndeliver = true\n`);
  const daemon = await startDaemon(["--config", config]);
  const client = await connect(daemon.socket);
  try {
    const session = await client.session({ runtime: "cmd:here" });
    const other = await client.session();
    assert.equal((await session.run("echo $HOME; cd")).stdout, `${home}\n`);
    assert.deepEqual([(await session.info()).runtime, (await other.info()).runtime], ["cmd:here", "host"]);
    assert.deepEqual((await client.sessions({ runtime: "cmd:here" })).map(({ session_id }) => session_id), [session.id]);
    await session.files.write("notes", "in the place\n"); // beside the session, so in its place
    assert.equal(await session.files.readText("notes"), "in the place\n");
    assert.deepEqual((await client.places()).map(({ runtime, state }) => [runtime, state]), [["cmd:here", "connected"]]);
  } finally {
    await client.removePlace("cmd:here", { force: true });
    await client.close();
    await daemon.stop();
    rmSync(home, { recursive: true, force: true });
  }
});

test("a stream ends with the error of a place that has forgotten its command", async () => {
  const attached = [];
  const dir = mkdtempSync(join(tmpdir(), "sdk-place-"));
  const server = createServer((socket) => {
    const lines = new LineSplitter();
    const send = (message) => socket.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
    const chunk = (fields) => send({ method: "exec.chunk", params: { stream_id: "st-1", exec_id: "e-k7-1", ...fields } });
    socket.on("error", () => {}); // the client has left
    socket.on("data", (part) =>
      lines.push(part, (line) => {
        const { id, method, params } = JSON.parse(line);
        if (method !== "exec.attach") {
          send({ id, result: { protocol: 1 } });
          return;
        }
        attached.push(params);
        send({ id, result: { stream_id: "st-1", exec_id: "e-k7-1", from: 0, state: "running" } });
        chunk({ type: "stdout", offset: 0, data: "ab", next: 2 });
        const data = { code: "EXEC_NOT_FOUND", hint: "call exec.list", runtime: "docker:web" };
        chunk({ type: "error", offset: 2, next: 2, error: { code: -32004, message: "forgotten", data } });
      }),
    );
  }).listen(join(dir, "d.sock"));
  await once(server, "listening");
  const client = await connect(join(dir, "d.sock"));
  try {
    const stream = client.exec("e-k7-1").stream();
    let text = "";
    await assert.rejects(
      async () => {
        for await (const chunk of stream) {
          text += chunk.text;
        }
      },
      (error) => {
        assert.ok(error instanceof ExecNotFoundError);
        assert.deepEqual([error.message, error.hint, error.details], ["forgotten (call exec.list)", "call exec.list", { runtime: "docker:web" }]);
        return true;
      },
    );
    assert.deepEqual([text, stream.offset], ["ab", 2]);
    assert.equal((await stream.next()).done, true); // it does not begin again
    assert.deepEqual(attached, [{ exec_id: "e-k7-1", from: 0 }]);
  } finally {
    await client.close();
    server.close();
    rmSync(dir, { recursive: true, force: true });
  }
});
