// Files of a session.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmodSync, createReadStream, mkdirSync, readdirSync, readFileSync, realpathSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { connect, FileError } from "../dist/index.js";
import { bytes } from "./bytes.mjs";
import { startDaemon, until } from "./daemon.mjs";

const hostile = ["-rf", "--help", " spaces ", "new\nline", "quote'\"`$(x)", "*", "\u00e4\u{1f600}", "..hidden", "a\\b", "\u001b[31m"];

const failure = (code, path) => (error) => {
  assert.ok(error instanceof FileError, String(error));
  assert.equal(error.code, code, error.message);
  assert.equal(error.path, path ?? error.path);
  return true;
};

describe("the files of a session", () => {
  let daemon, client, session, files, dir;
  before(async () => {
    daemon = await startDaemon();
    client = await connect(daemon.socket);
    dir = join(realpathSync(daemon.dir), "work");
    mkdirSync(dir);
    session = await client.session({ shell: "bash", cwd: dir });
    files = session.files;
  });
  after(async () => {
    await client?.close();
    await daemon?.stop();
  });

  test("are written and read, relative to its directory, while it is busy", async () => {
    await session.run("mkdir sub; cd sub; cat() { echo no; }; alias ls=false");
    const busy = await session.start("sleep 600");
    assert.equal(await files.write("a.txt", "h\u00e4llo\n"), 7);
    assert.equal(readFileSync(join(dir, "sub", "a.txt"), "utf8"), "h\u00e4llo\n");
    assert.equal(await files.readText("a.txt"), "h\u00e4llo\n");
    assert.equal(await files.readText("../sub/a.txt"), "h\u00e4llo\n");
    await busy.kill();
    await session.run("cd ..");
    assert.deepEqual((await session.execs()).length, 3); // those of the test
  });

  test("may hold any bytes", async () => {
    const data = Uint8Array.from({ length: 512 }, (_, i) => i);
    await files.write("bytes", data);
    assert.deepEqual(Uint8Array.from(await files.read("bytes")), data);
    await files.write("empty", "");
    assert.equal((await files.read("empty")).length, 0);
    await assert.rejects(files.readText("bytes"), TypeError);
    assert.equal(await files.readText("bytes", { encoding: "latin1" }).then((text) => text.length), 512);
  });

  test("may have any name", async () => {
    for (const name of hostile) {
      await files.mkdir(join("names", name, name));
      await files.write(join("names", name, "file" + name), name);
      assert.equal(await files.readText(join("names", name, "file" + name)), name);
      assert.equal(await files.exists(join(dir, "names", name)), true);
      await files.write(name, name);
      assert.equal(await files.readText(name), name);
      await files.remove(name);
    }
    const listed = await files.list("names");
    assert.deepEqual(listed.map(({ name }) => name), [...hostile].sort());
    assert.deepEqual(listed.map(({ path }) => path), [...hostile].sort().map((name) => `${dir}/names/${name}`));
    await files.remove("names", { recursive: true });
    assert.equal(await files.exists("names"), false);
  });

  test("are listed with their facts", async () => {
    await files.mkdir("list/directory");
    await files.write("list/file", "12345", { mode: 0o640 });
    symlinkSync("nowhere", join(dir, "list", "link"));
    await session.run("mkfifo list/pipe");
    const { mtimeMs } = statSync(join(dir, "list", "file"));
    const entries = await files.list("list");
    assert.deepEqual(entries.map(({ name, type }) => [name, type]), [["directory", "directory"], ["file", "file"], ["link", "symlink"], ["pipe", "other"]]);
    const { size, mode, modified } = entries[1];
    assert.deepEqual([size, mode], [5, 0o640]);
    assert.ok(Math.abs(modified.getTime() - mtimeMs) < 2, `${modified}`);
    assert.deepEqual((await files.list()).some(({ name }) => name === "list"), true);
    assert.equal(await files.exists("list/link"), true);
  });

  test("of any size are streamed, in pieces as they come", async () => {
    const size = (20 << 20) + 7;
    const hash = createHash("sha256");
    const source = (function* () {
      for (const piece of bytes(5, size)) {
        hash.update(piece);
        yield piece;
      }
    })();
    assert.equal(await files.write("large", source), size);
    const wanted = hash.digest("hex");
    const read = createHash("sha256");
    for await (const piece of files.stream("large")) {
      read.update(piece);
    }
    assert.equal(read.digest("hex"), wanted);
    assert.equal(await files.write("copy", createReadStream(join(dir, "large"))), size);
    assert.equal(createHash("sha256").update(readFileSync(join(dir, "copy"))).digest("hex"), wanted);
    // Leaving early stops the program that reads.
    for await (const _ of files.stream("/dev/zero")) {
      break;
    }
    await until("no program is left", async () => !(await client.sessions({ alive: true })).some(({ parent }) => parent === session.id));
  });

  test("larger than the daemon's quota are read all the same", async () => {
    const small = await startDaemon(["--exec-quota-bytes", String(4 << 20), "--exec-memory-bytes", String(64 << 10)]);
    const other = await connect(small.socket);
    try {
      const tight = await other.session();
      const size = 24 << 20;
      const file = join(small.dir, "file");
      writeFileSync(file, Buffer.concat([...bytes(6, size)]));
      const read = createHash("sha256");
      for await (const piece of tight.files.stream(file)) {
        read.update(piece);
      }
      assert.equal(read.digest("hex"), createHash("sha256").update(readFileSync(file)).digest("hex"));
    } finally {
      await other.close();
      await small.stop();
    }
  });

  test("are replaced in one step, and keep their mode", async () => {
    await files.mkdir("atomic");
    const path = join(dir, "atomic", "file");
    writeFileSync(path, "old");
    chmodSync(path, 0o751);
    symlinkSync("file", join(dir, "atomic", "link"));
    const before = statSync(path);
    const failing = (async function* () {
      yield Buffer.from("half");
      assert.equal(readFileSync(path, "utf8"), "old");
      throw new Error("mine");
    })();
    await assert.rejects(files.write(path, failing), /mine/);
    await assert.rejects(files.write(path, ["text"]), TypeError);
    assert.deepEqual(readdirSync(join(dir, "atomic")).sort(), ["file", "link"]);
    assert.equal(readFileSync(path, "utf8"), "old");
    await files.write("atomic/link", "new");
    const now = statSync(path);
    assert.deepEqual([readFileSync(path, "utf8"), now.mode, now.ino === before.ino], ["new", before.mode, false]);
    assert.deepEqual(readdirSync(join(dir, "atomic")).sort(), ["file", "link"]);
    symlinkSync("made", join(dir, "atomic", "dangling"));
    await files.write("atomic/dangling", "made");
    assert.equal(readFileSync(join(dir, "atomic", "made"), "utf8"), "made");
    await files.write(path, "again", { mode: 0o600 });
    assert.equal(statSync(path).mode & 0o777, 0o600);
  });

  test("report errors by their code", async () => {
    await files.write("plain", "x");
    await files.mkdir("full/inner");
    symlinkSync("loop", join(dir, "loop"));
    const table = [
      ["ENOENT", () => files.read("missing"), join(dir, "missing")],
      ["ENOENT", () => files.write("no/such/file", "x")],
      ["ENOENT", () => files.list("missing")],
      ["ENOENT", () => files.remove("missing")],
      ["ENOENT", () => files.remove("missing", { recursive: true })],
      ["ENOENT", () => files.read("")],
      ["EINVAL", () => files.read("a\0b")],
      ["EISDIR", () => files.read("full")],
      ["EISDIR", () => files.write("full", "x")],
      ["ENOTDIR", () => files.read("plain/x")],
      ["ENOTDIR", () => files.list("plain")],
      ["EEXIST", () => files.mkdir("plain")],
      ["ENOTEMPTY", () => files.remove("full")],
      ["ELOOP", () => files.read("loop")],
      ["ELOOP", () => files.write("loop", "x")],
      ["ENAMETOOLONG", () => files.read("x".repeat(300))],
    ];
    for (const [code, call, path] of table) {
      await assert.rejects(call, failure(code, path), code);
    }
    assert.equal(await files.exists("plain/x"), false);
    await assert.rejects(client.open("s-0000000000").files.read("x"), { code: "SESSION_NOT_FOUND" });
  });
});
