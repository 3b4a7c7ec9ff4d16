// The files of a session, read and written by small programs on its machine.

import { randomBytes } from "node:crypto";
import { inspect } from "node:util";

import type { CallOptions, Client } from "./client.js";
import { FileError } from "./errors.js";
import { startBeside, type Program } from "./program.js";
import * as scripts from "./scripts.js";

/** An entry of a directory. */
export interface FileInfo {
  readonly name: string;
  /** Absolute. */
  readonly path: string;
  readonly type: "file" | "directory" | "symlink" | "other";
  /** In bytes. */
  readonly size: number;
  /** The permissions, such as 0o644. */
  readonly mode: number;
  readonly modified: Date;
}

/** What write() takes: text, bytes, or pieces of bytes, such as a stream of Node. */
export type FileData = string | Uint8Array | Iterable<Uint8Array> | AsyncIterable<Uint8Array>;

/** How often a file is read again at the same byte, after a quota dropped what follows it. */
const maxRetries = 20;

/** How much of a file is sent in one call: far below the 8 MiB limit of a request. */
const pieceBytes = 1 << 20;

const types: Record<string, FileInfo["type"]> = { f: "file", d: "directory", l: "symlink" };

/** The end of a program's message, and the error it reports. The last two are those of dash and busybox. */
const reasons: ReadonlyArray<readonly [string, string]> = [
  ["No such file or directory", "ENOENT"],
  ["Permission denied", "EACCES"],
  ["Operation not permitted", "EPERM"],
  ["Is a directory", "EISDIR"],
  ["Not a directory", "ENOTDIR"],
  ["File exists", "EEXIST"],
  ["Directory not empty", "ENOTEMPTY"],
  ["Read-only file system", "EROFS"],
  ["No space left on device", "ENOSPC"],
  ["Disk quota exceeded", "EDQUOT"],
  ["File name too long", "ENAMETOOLONG"],
  ["Too many levels of symbolic links", "ELOOP"],
  ["Directory nonexistent", "ENOENT"],
  ["nonexistent directory", "ENOENT"],
];

function fileError(message: string, path: string): FileError {
  const line = message.slice(message.lastIndexOf("\n") + 1);
  const reason = reasons.find(([end]) => line.endsWith(end));
  return reason === undefined ? new FileError("EIO", line || "the program failed", path) : new FileError(reason[1], `${reason[0].toLowerCase()}: ${path}`, path);
}

/** A program, and the file that it works on. */
interface Operation {
  program: Program;
  path: string;
}

/**
 * The files of a session's machine. Relative paths start in the session's
 * current directory. Errors are a FileError with the system's `code`. The names
 * must be valid UTF-8.
 */
export class Files {
  readonly #client: Client;
  readonly #sessionId: string;

  /** @internal */
  constructor(client: Client, sessionId: string) {
    this.#client = client;
    this.#sessionId = sessionId;
  }

  /** Reads a file of any size in pieces. */
  async *stream(path: string, options: CallOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    let at = 0;
    for (let retries = 0; retries < maxRetries; retries++) {
      const { program, path: file } = await this.#start(path, scripts.read, [String(at + 1)], options);
      try {
        for await (const piece of program.output()) {
          at += piece.length;
          retries = 0;
          yield piece;
        }
      } finally {
        await program.end();
      }
      if (program.result !== undefined) {
        check(program, file);
        return;
      }
    }
    throw new FileError("EIO", "the daemon's quota drops the file faster than it can be read", path);
  }

  /** Returns the contents of a file. */
  async read(path: string, options: CallOptions = {}): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.stream(path, options)) {
      pieces.push(piece);
    }
    return Buffer.concat(pieces);
  }

  /** Returns the contents of a file as text, by default UTF-8; throws a TypeError if it is not. */
  async readText(path: string, options: { encoding?: string } & CallOptions = {}): Promise<string> {
    const { encoding = "utf-8", ...call } = options;
    return new TextDecoder(encoding, { fatal: true, ignoreBOM: true }).decode(await this.read(path, call));
  }

  /**
   * Writes a file, and returns the number of bytes. The file is replaced in one
   * step when everything has been written; until then, and after a failure, it
   * is as it was. It keeps its mode and its owner; `mode` sets the mode. Pieces
   * are sent as they come, and never held as a whole.
   */
  async write(path: string, data: FileData, options: { mode?: number } & CallOptions = {}): Promise<number> {
    const { mode, ...call } = options;
    const args = [`.trl-${randomBytes(8).toString("hex")}`, mode?.toString(8) ?? ""];
    const { program, path: file } = await this.#start(path, scripts.write, args, call);
    try {
      let sent = 0;
      let open = true;
      for await (const piece of pieces(data)) {
        open = await program.send(piece, sent);
        if (!open) {
          break; // it has failed, and says why
        }
        sent += piece.length;
      }
      if (open) {
        await program.send(new Uint8Array(0), sent, true);
      }
      await finish(program, file);
      return sent;
    } finally {
      await program.end();
    }
  }

  /** Lists a directory, sorted by name, without "." and "..". */
  async list(path = ".", options: CallOptions = {}): Promise<FileInfo[]> {
    const { program, path: directory } = await this.#start(path, scripts.list, [], options);
    const listing = (await finish(program, directory)).toString("utf8");
    const entries = listing.split("\0").slice(0, -1);
    return entries.map((entry) => fileInfo(entry, directory)).sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Whether there is something at the path; a symbolic link counts, whatever it leads to. */
  async exists(path: string, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.#run(path, scripts.exists, [], options);
      return true;
    } catch (error) {
      if (error instanceof FileError && (error.code === "ENOENT" || error.code === "ENOTDIR")) {
        return false;
      }
      throw error;
    }
  }

  /** Makes a directory, with the directories above it. One that exists is left as it is. */
  mkdir(path: string, options: CallOptions = {}): Promise<void> {
    return this.#run(path, scripts.mkdir, [], options);
  }

  /** Removes a file, a symbolic link or an empty directory; with `recursive` a directory and all in it. */
  remove(path: string, options: { recursive?: boolean } & CallOptions = {}): Promise<void> {
    const { recursive = false, ...call } = options;
    return this.#run(path, scripts.remove, [recursive ? "all" : ""], call);
  }

  async #run(path: string, script: string, args: string[], options: CallOptions): Promise<void> {
    const { program, path: file } = await this.#start(path, script, args, options);
    await finish(program, file);
  }

  /** Starts a program whose first argument is the absolute path. */
  async #start(path: string, script: string, args: string[], options: CallOptions): Promise<Operation> {
    if (path === "" || path.includes("\0")) {
      throw new FileError(path === "" ? "ENOENT" : "EINVAL", path === "" ? "the path is empty" : "the path contains a null character", path);
    }
    const session = await this.#client.call("session.info", { session_id: this.#sessionId }, options);
    const file = joined(session.cwd ?? "/", path);
    return { program: await startBeside(this.#client, session, "files", script, [file, ...args], options), path: file };
  }

  [inspect.custom](): string {
    return `Files(${this.#sessionId})`;
  }
}

/** Joins paths and leaves ".." to the system: what is before it may be a symbolic link. */
function joined(directory: string, path: string): string {
  if (path.startsWith("/")) {
    return path;
  }
  return path === "." ? directory : `${directory.replace(/\/$/, "")}/${path}`;
}

/** Waits for a program, and returns its output. */
async function finish(program: Program, path: string): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  try {
    for await (const piece of program.output()) {
      pieces.push(piece);
    }
  } finally {
    await program.end();
  }
  check(program, path);
  return Buffer.concat(pieces);
}

function check(program: Program, path: string): void {
  if (!program.result?.ok) {
    throw fileError(program.message, path);
  }
}

function fileInfo(entry: string, directory: string): FileInfo {
  const [, type = "", mode = "", size = "", seconds = "", name = ""] = /^(\S+) (\S+) (\S+) (\S+) ([^]*)$/.exec(entry) ?? [];
  return { name, path: joined(directory, name), type: types[type] ?? "other", size: Number(size), mode: parseInt(mode, 8), modified: new Date(Number(seconds) * 1000) };
}

/** Yields data in pieces that fit into one call. */
async function* pieces(data: FileData): AsyncGenerator<Uint8Array, void, undefined> {
  const parts = typeof data === "string" ? [Buffer.from(data)] : data instanceof Uint8Array ? [data] : data;
  for await (const part of parts) {
    if (!(part instanceof Uint8Array)) {
      throw new TypeError("the pieces of a file must be bytes (Uint8Array)");
    }
    for (let at = 0; at < part.length; at += pieceBytes) {
      yield part.subarray(at, at + pieceBytes);
    }
  }
}
