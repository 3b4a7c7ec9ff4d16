// Small programs that run beside a session, on its machine: each is a direct session
// of its own that ends with the session. So they work while the session is busy, and
// neither see nor change the state of its shell.

import type { CallOptions, Client } from "./client.js";
import type { Exec } from "./exec.js";
import { TrlError } from "./errors.js";
import type { Result } from "./result.js";
import type { SessionInfo } from "./types.js";

/** How much of a program's messages is kept. */
const messageChars = 4096;

/** Starts a shell script beside a session. */
export async function startBeside(client: Client, session: SessionInfo, name: string, script: string, args: string[], options: { timeoutMs?: number } & CallOptions = {}): Promise<Program> {
  const direct = await client.session({
    ...options,
    argv: ["/bin/sh", "-c", script, "trl", ...args],
    name,
    cwd: "/",
    env: { LC_ALL: "C" },
    parent: session.session_id,
    tags: session.tags, // a token may require them
  });
  return new Program(direct.exec!, options);
}

/** The program of one operation. */
export class Program {
  readonly #exec: Exec;
  readonly #options: CallOptions;
  #message = "";
  #result: Result | undefined;

  constructor(exec: Exec, { signal, reconnect }: CallOptions) {
    this.#exec = exec;
    this.#options = { signal, reconnect };
  }

  /** How it ended, once its output has been read to the end. */
  get result(): Result | undefined {
    return this.#result;
  }

  /** The end of what it wrote to stderr. */
  get message(): string {
    return this.#message.trim();
  }

  /** Yields its stdout until it has ended, or until output is missing because of a quota. */
  async *output(): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const chunk of this.#exec.stream(this.#options)) {
      switch (chunk.type) {
        case "stdout":
          yield chunk.data;
          break;
        case "stderr":
          this.#message = (this.#message + chunk.text).slice(-messageChars);
          break;
        case "gap":
          return;
        case "exit":
          this.#result = chunk.result;
      }
    }
  }

  /** Writes to its stdin, and reports whether it still takes input. */
  async send(data: Uint8Array, at: number, eof = false): Promise<boolean> {
    try {
      await this.#exec.sendInput(data, { ...this.#options, at, eof });
      return true;
    } catch (error) {
      if (error instanceof TrlError && (await this.#exec.info(this.#options)).state === "exited") {
        return false;
      }
      throw error;
    }
  }

  /** Stops it, if it still runs. */
  async end(): Promise<void> {
    if (this.#result === undefined) {
      await this.#exec.cancel().catch(() => {}); // its session ends with its parent
    }
  }
}
