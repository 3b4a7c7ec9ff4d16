// The outcome of a command.

import { inspect } from "node:util";

import { CommandFailedError } from "./errors.js";
import { camelCase, type Camel } from "./options.js";
import type { ExecResult } from "./types.js";

/** The outcome and output of a command. */
export interface Result extends Omit<Camel<ExecResult>, "stdoutEncoding" | "stderrEncoding"> {
  /** Whether it ended by itself with exit code 0. */
  readonly ok: boolean;
  /** `stdout` as bytes, for output that is not text. */
  readonly stdoutData: Uint8Array;
  /** `stderr` as bytes. */
  readonly stderrData: Uint8Array;
  /** Returns this result, or throws a CommandFailedError if it is not `ok`. */
  check(): this;
}

/** What every result can do. */
class Checked {
  check(this: this & Result): this {
    if (!this.ok) {
      throw new CommandFailedError(this);
    }
    return this;
  }

  /** Shows a result in one line, with the beginning of its output. */
  [inspect.custom](this: Result): string {
    const ended = this.exitCode === null ? this.outcome : `${this.outcome} ${this.exitCode}`;
    const shown = (["stdout", "stderr"] as const).filter((name) => this[name] !== "").map((name) => `, ${name} ${beginning(this[name])}`);
    return `Result(${this.execId}: ${ended} in ${this.durationMs} ms${shown.join("")})`;
  }
}

/** How much of an output inspect shows. */
const shownChars = 200;

function beginning(text: string): string {
  return text.length <= shownChars ? JSON.stringify(text) : `${JSON.stringify(text.slice(0, shownChars))}…`;
}

/** Returns a Result. Fields added by a newer daemon are included, in camel case. */
export function resultFrom(wire: ExecResult): Result {
  const { stdout, stderr, stdout_encoding, stderr_encoding, ...rest } = wire;
  const fields: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(rest)) {
    fields[camelCase(name)] = value;
  }
  const out = bytes(stdout, stdout_encoding);
  const err = bytes(stderr, stderr_encoding);
  return Object.assign(new Checked(), fields as Camel<typeof rest>, {
    ok: wire.state === "exited" && wire.exit_code === 0 && !wire.timed_out && !wire.cancelled,
    stdout: stdout_encoding === "base64" ? out.toString("utf8") : stdout,
    stderr: stderr_encoding === "base64" ? err.toString("utf8") : stderr,
    stdoutData: out,
    stderrData: err,
  });
}

function bytes(data: string, encoding: string | undefined): Buffer {
  return Buffer.from(data, encoding === "base64" ? "base64" : "utf8");
}
