// Converts names and values between the contract and JavaScript.

import type { ExecResult } from "./types.js";

type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelCase<Tail>>}` : S;

/** The fields of an object of the contract in camel case: `timeout_ms` becomes `timeoutMs`. */
export type Camel<T> = { [K in keyof T as K extends string ? CamelCase<K> : never]: T[K] };

/** Converts the names of params. Undefined fields are omitted. */
export function toWire(options: object): Record<string, unknown> {
  const params: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined) {
      params[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value;
    }
  }
  return params;
}

/** The outcome and output of a command. */
export interface Result extends Omit<Camel<ExecResult>, "stdoutEncoding" | "stderrEncoding"> {
  /** Whether it ended by itself with exit code 0. */
  readonly ok: boolean;
  /** `stdout` as bytes, for output that is not text. */
  readonly stdoutData: Uint8Array;
  /** `stderr` as bytes. */
  readonly stderrData: Uint8Array;
}

/** Returns a Result. Fields added by a newer daemon are included, in camel case. */
export function resultFrom(wire: ExecResult): Result {
  const { stdout, stderr, stdout_encoding, stderr_encoding, ...rest } = wire;
  const fields: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(rest)) {
    fields[name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())] = value;
  }
  const out = bytes(stdout, stdout_encoding);
  const err = bytes(stderr, stderr_encoding);
  return Object.assign(fields as Omit<Camel<typeof rest>, never>, {
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

/** Encodes the input of a command. */
export function input(data: string | Uint8Array): { text: string; encoding?: "base64" } {
  if (typeof data === "string") {
    return { text: data };
  }
  return { text: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64"), encoding: "base64" };
}
