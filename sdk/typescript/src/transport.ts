// The interface of a transport (Unix socket, HTTP), and the parts that both
// share. A transport sends requests and receives chunks, and reports a lost
// connection; client.ts and stream.ts decide what to repeat, and when.

import { setTimeout as sleep } from "node:timers/promises";

import { CallTimeoutError, ConnectionLostError, errorClasses, NoDaemonError, ProtocolError, RuntimeUnavailableError, TrlError } from "./errors.js";
import type { Chunk, ErrorCode, ExecStreamParams, Methods, SessionEvent, SessionWatchParams } from "./types.js";

export interface Transport {
  /** The daemon's address, for display. It contains no secret. */
  readonly address: string;
  /** Sends one request and returns its result. */
  call(method: string, params: Record<string, unknown>, signal?: AbortSignal): Promise<unknown>;
  /** Starts a command. The feed starts at offset 0; a transport that has none yet omits it. */
  start(params: ExecStreamParams, signal?: AbortSignal): Promise<{ execId: string; feed?: Feed<Chunk> }>;
  /** Follows a command from an offset. */
  attach(execId: string, from: number, signal?: AbortSignal): Promise<Feed<Chunk>>;
  /** Follows session events. */
  watch(params: SessionWatchParams, signal?: AbortSignal): Promise<Feed<SessionEvent>>;
  /** Closes all connections. Unanswered calls fail. */
  close(): void;
}

/** Methods that change nothing. */
export const readOnly: ReadonlySet<string> = new Set<keyof Methods>([
  "system.ping",
  "system.info",
  "system.stats",
  "session.list",
  "session.info",
  "session.screen",
  "exec.output",
  "exec.info",
  "exec.list",
  "place.list",
]);

/** The connection that a feed reads from, which it can pause. */
export interface Source {
  pause(): void;
  resume(): void;
  destroy(): void;
}

/**
 * How many bytes of lines a feed buffers before it stops reading. A chunk of
 * the daemon has up to 128 KiB, a third more in base64: a few of them keep a
 * fast reader busy, and are all that a slow reader costs.
 */
const feedBytes = 512 << 10;

/**
 * The items that arrive over one connection, in order. When the reader falls
 * behind, the connection is not read, and the daemon waits. One reader at a
 * time.
 */
export class Feed<T> {
  readonly #source: Source;
  #items: { value: T; bytes: number }[] = [];
  #taken = 0; // read from #items
  #bytes = 0; // buffered in #items
  #paused = false;
  #end: { error: unknown } | undefined;
  #reader: { resolve(value: T): void; reject(error: unknown): void } | undefined;

  constructor(source: Source) {
    this.#source = source;
  }

  /** Adds an item that took `bytes` bytes on the wire. */
  push(value: T, bytes: number): void {
    if (this.#end !== undefined) {
      return;
    }
    const reader = this.#reader;
    if (reader !== undefined) {
      this.#reader = undefined;
      reader.resolve(value);
      return;
    }
    this.#items.push({ value, bytes });
    this.#bytes += bytes;
    if (this.#bytes >= feedBytes && !this.#paused) {
      this.#paused = true;
      this.#source.pause();
    }
  }

  /** Marks the end, with its reason. Buffered items can still be read. */
  end(error: unknown): void {
    if (this.#end !== undefined) {
      return;
    }
    this.#end = { error };
    this.#reader?.reject(error);
    this.#reader = undefined;
  }

  /** Returns the next item. After the last one it rejects with the reason of the end. */
  next(): Promise<T> {
    const item = this.#items[this.#taken];
    if (item !== undefined) {
      this.#take(item.bytes);
      return Promise.resolve(item.value);
    }
    if (this.#end !== undefined) {
      return Promise.reject(this.#end.error);
    }
    return new Promise((resolve, reject) => {
      this.#reader = { resolve, reject };
    });
  }

  #take(bytes: number): void {
    this.#taken++;
    this.#bytes -= bytes;
    if (this.#taken === this.#items.length) {
      this.#items = [];
      this.#taken = 0;
    }
    if (this.#paused && this.#bytes < feedBytes / 2 && this.#end === undefined) {
      this.#paused = false;
      this.#source.resume();
    }
  }

  /**
   * Closes the connection and drops buffered items. A waiting reader is
   * rejected with the reason.
   */
  close(reason: unknown): void {
    this.#items = [];
    this.#taken = 0;
    this.#bytes = 0;
    this.end(reason);
    this.#source.destroy();
  }
}

/** How to reconnect after a lost connection. */
export interface ReconnectPolicy {
  /**
   * The first delay is random, up to this; the limit doubles for each further
   * one. Default 50 ms.
   */
  firstDelayMs: number;
  /** The maximum delay. Default 5 s. */
  maxDelayMs: number;
  /**
   * How long to try without progress before the error is thrown. 0 disables
   * retries. Default 30 s.
   */
  limitMs: number;
}

export const defaultReconnect: ReconnectPolicy = { firstDelayMs: 50, maxDelayMs: 5_000, limitMs: 30_000 };

/**
 * Whether an error is transient: one of the connection, after which a new
 * connection may work, or one of a daemon that says when to retry.
 */
export function isTransient(error: unknown): boolean {
  return error instanceof ConnectionLostError || error instanceof NoDaemonError || retryAfterMs(error) > 0;
}

function retryAfterMs(error: unknown): number {
  const ms = error instanceof RuntimeUnavailableError ? error.details["retry_after_ms"] : undefined;
  return typeof ms === "number" ? ms : 0;
}

/** The delays of a series of attempts, with a limit. */
export class Backoff {
  readonly #policy: ReconnectPolicy;
  #failures = 0;
  #since = 0; // time of the first of them
  #triedAt = 0;

  constructor(policy: ReconnectPolicy) {
    this.#policy = policy;
  }

  /** Resets the delays and the limit after something was received. */
  progress(): void {
    this.#failures = 0;
  }

  /**
   * Waits before the next attempt, or throws the error when the limit is
   * reached. The delay is random from 0 up, so that clients which were
   * disconnected together do not reconnect together.
   */
  async failed(error: unknown, signal?: AbortSignal): Promise<void> {
    const now = performance.now();
    if (this.#held(error, now)) {
      this.progress();
    }
    if (this.#failures === 0) {
      this.#since = now;
    }
    const ceiling = Math.min(this.#policy.maxDelayMs, this.#policy.firstDelayMs * 2 ** this.#failures);
    this.#failures++;
    const left = this.#policy.limitMs - (now - this.#since);
    if (left <= 0) {
      throw error;
    }
    await abortable(sleep(Math.min(retryAfterMs(error) + Math.random() * ceiling, left)), signal);
    this.#triedAt = performance.now();
  }

  /**
   * Whether the connection lasted for a while before it was lost again. A call
   * that waits for a long command shows no other progress.
   */
  #held(error: unknown, now: number): boolean {
    return error instanceof ConnectionLostError && error.effect === "unknown" && !error.silent && now - this.#triedAt > this.#policy.maxDelayMs;
  }
}

/** Waits for a promise, but not after the signal; the promise itself continues. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) {
      promise.catch(() => {}); // no longer awaited
      abort();
      return;
    }
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Waits for a promise, but no longer than `timeoutMs`: then it throws a CallTimeoutError. */
export async function within<T>(timeoutMs: number | undefined, signal: AbortSignal | undefined, message: string, wait: (signal: AbortSignal | undefined) => Promise<T>): Promise<T> {
  if (timeoutMs === undefined) {
    return wait(signal);
  }
  const limit = new AbortController();
  const abort = () => limit.abort(signal!.reason);
  const timer = setTimeout(() => limit.abort(new CallTimeoutError(`${message} within ${timeoutMs} ms`)), timeoutMs);
  signal?.addEventListener("abort", abort, { once: true });
  try {
    signal?.throwIfAborted();
    return await wait(limit.signal);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

/** A line or body from the daemon. */
export interface Message {
  id?: number | string | null;
  method?: string;
  params?: unknown;
  result?: unknown;
  error?: WireError;
}

/** The JSON-RPC error object. Servers other than TRL may omit the data. */
interface WireError {
  code: number;
  message: string;
  data?: Record<string, unknown>;
}

/** Parses one JSON-RPC object. */
export function parse(text: string): Message {
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch (error) {
    throw new ProtocolError("the answer is not JSON: is it a TRL daemon?", error);
  }
  if (typeof message !== "object" || message === null || (message as { jsonrpc?: unknown }).jsonrpc !== "2.0") {
    throw new ProtocolError("the answer is not JSON-RPC 2.0: is it a TRL daemon?");
  }
  return message;
}

/** Returns the result of an answer, or throws its error. */
export function resultOf(answer: Message): unknown {
  if (answer.error !== undefined) {
    throw fromWire(answer.error);
  }
  return answer.result;
}

/** Returns the error of an answer. An unknown code becomes a plain TrlError. */
export function fromWire(wire: WireError): TrlError {
  const { code, hint, ...details } = wire.data ?? {};
  const name = typeof code === "string" ? code : byNumber(wire.code);
  const make = Object.hasOwn(errorClasses, name) ? errorClasses[name as ErrorCode] : TrlError;
  return new make(name, wire.message, typeof hint === "string" ? hint : "", details);
}

/** Returns the code for a JSON-RPC number alone, from a server that is not quite TRL. */
function byNumber(code: number): ErrorCode {
  switch (code) {
    case -32700:
      return "PARSE_ERROR";
    case -32600:
      return "INVALID_REQUEST";
    case -32601:
      return "METHOD_NOT_FOUND";
    case -32602:
      return "INVALID_PARAMS";
    default:
      return "INTERNAL";
  }
}
