// Converts names and values between the contract and JavaScript.

import type * as api from "./types.js";

type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelCase<Tail>>}` : S;

/** The fields of an object of the contract in camel case: `timeout_ms` becomes `timeoutMs`. */
export type Camel<T> = { [K in keyof T as K extends string ? CamelCase<K> : never]: T[K] };

export function camelCase(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

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

/** Params that methods of this package take as options. */
type Params = api.SessionCreateParams & api.ExecRunParams & api.ExecStreamParams & api.ExecOutputParams & api.ExecInputParams & api.SessionHoldParams;

/** Those with another name here. Ids and encodings are no options. */
type Renamed = Exclude<Extract<keyof Params, `${string}_${string}`>, "session_id" | "exec_id" | "stdin_encoding">;

const renamed: Record<Renamed, true> = {
  create_timeout_ms: true,
  idle_timeout_ms: true,
  idle_ttl_ms: true,
  inherit_env: true,
  max_bytes: true,
  max_output_bytes: true,
  reconnect_ms: true,
  stdin_open: true,
  timeout_ms: true,
  ttl_ms: true,
  wait_ms: true,
  while_connected: true,
  yield_ms: true,
  yield_on_input: true,
};

/** Replaces the contract's names of options in a text by those of this package. */
export function optionWords(text: string): string {
  return text.replace(/\b[a-z]+(?:_[a-z]+)+\b/g, (word) => (Object.hasOwn(renamed, word) ? camelCase(word) : word));
}

/** Encodes the input of a command. */
export function input(data: string | Uint8Array): { text: string; encoding?: "base64" } {
  if (typeof data === "string") {
    return { text: data };
  }
  return { text: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64"), encoding: "base64" };
}
