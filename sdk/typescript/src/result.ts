// The names and values of the contract in the form this language has for them.

import type { ExecResult } from "./types.js";

type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelCase<Tail>>}` : S;

/** The fields of an object of the contract, with names as TypeScript has them: `timeout_ms` is `timeoutMs`. */
export type Camel<T> = { [K in keyof T as K extends string ? CamelCase<K> : never]: T[K] };

/** Renames the fields of params. Fields that are undefined are left out. */
export function toWire(options: object): Record<string, unknown> {
  const params: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined) {
      params[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value;
    }
  }
  return params;
}

/** What is known of a command: how it ended, and what it wrote. */
export interface Result extends Omit<Camel<ExecResult>, "stdoutEncoding" | "stderrEncoding"> {
  /** It ended by itself with exit code 0. */
  readonly ok: boolean;
  /** `stdout` as bytes, for output that is not text. */
  readonly stdoutData: Uint8Array;
  /** `stderr` as bytes. */
  readonly stderrData: Uint8Array;
}

/** Makes a Result. Fields that a newer daemon adds are there too, under their new names. */
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

/** Bytes that a command reads, in the form of the contract. */
export function input(data: string | Uint8Array): { text: string; encoding?: "base64" } {
  if (typeof data === "string") {
    return { text: data };
  }
  return { text: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64"), encoding: "base64" };
}
