// What a carrier of the contract (Unix socket, HTTP) offers to the client, and
// the parts that both share. A carrier moves requests and chunks, and when a
// connection is lost it says so; what is repeated then, and when, is decided in
// client.ts and stream.ts.

import { setTimeout as sleep } from "node:timers/promises";

import { ConnectionLostError, errorClasses, NoDaemonError, ProtocolError, RuntimeUnavailableError, TrlError } from "./errors.js";
import type { Chunk, ErrorCode, ExecStreamParams, Methods, SessionEvent, SessionWatchParams } from "./types.js";

export interface Carrier {
  /** Where the daemon is, for people. Holds no secret. */
  readonly address: string;
  /** One request and its answer. */
  call(method: string, params: Record<string, unknown>, signal?: AbortSignal): Promise<unknown>;
  /** Starts a command. The feed begins at offset 0; a carrier that has none yet leaves it out. */
  start(params: ExecStreamParams, signal?: AbortSignal): Promise<{ execId: string; feed?: Feed<Chunk> }>;
  /** Follows a command from an offset on. */
  attach(execId: string, from: number, signal?: AbortSignal): Promise<Feed<Chunk>>;
  /** Follows what happens to sessions. */
  watch(params: SessionWatchParams, signal?: AbortSignal): Promise<Feed<SessionEvent>>;
  /** Ends all that is open. Calls without an answer fail. */
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
]);

/** What a feed reads from, and can be told not to. */
export interface Source {
  pause(): void;
  resume(): void;
  destroy(): void;
}

/**
 * How many bytes of lines a feed holds before it stops reading. A chunk of the
 * daemon has up to 128 KiB, in base64 a third more: a few of them keep a fast
 * reader busy, and are all that a slow one costs.
 */
const feedBytes = 512 << 10;

/**
 * The items that come over one connection, in order. It pulls: when its reader
 * falls behind, the connection is not read, and the daemon waits with what it
 * has. One reader at a time.
 */
export class Feed<T> {
  readonly #source: Source;
  #items: { value: T; bytes: number }[] = [];
  #taken = 0; // of #items
  #bytes = 0; // waiting in #items
  #paused = false;
  #end: { error: unknown } | undefined;
  #reader: { resolve(value: T): void; reject(error: unknown): void } | undefined;

  constructor(source: Source) {
    this.#source = source;
  }

  /** Hands over an item that took so many bytes. */
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

  /** Says that nothing more comes, and why. What has come is still given out. */
  end(error: unknown): void {
    if (this.#end !== undefined) {
      return;
    }
    this.#end = { error };
    this.#reader?.reject(error);
    this.#reader = undefined;
  }

  /** The next item. Once all are taken, it fails with the reason of the end. */
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

  /** Ends the connection and forgets what has come. A reader fails with the reason. */
  close(reason: unknown): void {
    this.#items = [];
    this.#taken = 0;
    this.#bytes = 0;
    this.end(reason);
    this.#source.destroy();
  }
}

/** How a lost connection is made again. */
export interface ReconnectPolicy {
  /** The first wait is random, up to this; each one after it up to twice the one before. Default 50 ms. */
  firstDelayMs: number;
  /** No wait is longer. Default 5 s. */
  maxDelayMs: number;
  /** How long to go on without any progress before the error is thrown. 0 is not at all. Default 30 s. */
  limitMs: number;
}

export const defaultReconnect: ReconnectPolicy = { firstDelayMs: 50, maxDelayMs: 5_000, limitMs: 30_000 };

/**
 * Whether an error may pass: one of the connection, after which another may do,
 * or one of a daemon that says when to come again.
 */
export function mayPass(error: unknown): boolean {
  return error instanceof ConnectionLostError || error instanceof NoDaemonError || retryAfterMs(error) > 0;
}

function retryAfterMs(error: unknown): number {
  const ms = error instanceof RuntimeUnavailableError ? error.details["retry_after_ms"] : undefined;
  return typeof ms === "number" ? ms : 0;
}

/** One effort to get through: backs off, and gives up in time. */
export class Effort {
  readonly #policy: ReconnectPolicy;
  #failures = 0;
  #since = 0; // the first of them
  #triedAt = 0;

  constructor(policy: ReconnectPolicy) {
    this.#policy = policy;
  }

  /** Something came through: patience is whole again. */
  progress(): void {
    this.#failures = 0;
  }

  /**
   * Waits before the next try, or throws the error when the limit is reached.
   * The wait is random from nothing on, so that clients which were cut off
   * together do not come back together.
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
   * Whether the connection held for a while before it was lost again. A call
   * that waits for a long command has no other progress to show.
   */
  #held(error: unknown, now: number): boolean {
    return error instanceof ConnectionLostError && error.effect === "unknown" && !error.silent && now - this.#triedAt > this.#policy.maxDelayMs;
  }
}

/** Waits for a promise no longer than until the signal; the promise itself goes on. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) {
      promise.catch(() => {}); // nobody waits for it any more
      abort();
      return;
    }
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** A line or body that the daemon sent. */
export interface Message {
  id?: number | string | null;
  method?: string;
  params?: unknown;
  result?: unknown;
  error?: WireError;
}

/** The error object of JSON-RPC. What is not quite TRL may leave out the data. */
interface WireError {
  code: number;
  message: string;
  data?: Record<string, unknown>;
}

/** Reads one JSON-RPC object. */
export function parse(text: string): Message {
  let message: unknown;
  try {
    message = JSON.parse(text);
  } catch (error) {
    throw new ProtocolError("what answers does not speak JSON: is it a TRL daemon?", error);
  }
  if (typeof message !== "object" || message === null || (message as { jsonrpc?: unknown }).jsonrpc !== "2.0") {
    throw new ProtocolError("what answers does not speak JSON-RPC 2.0: is it a TRL daemon?");
  }
  return message;
}

/** The result of an answer; throws the error that it is. */
export function resultOf(answer: Message): unknown {
  if (answer.error !== undefined) {
    throw fromWire(answer.error);
  }
  return answer.result;
}

/** Makes the error of an answer. A code of a newer daemon is a plain TrlError. */
export function fromWire(wire: WireError): TrlError {
  const { code, hint, ...details } = wire.data ?? {};
  const name = typeof code === "string" ? code : byNumber(wire.code);
  const make = Object.hasOwn(errorClasses, name) ? errorClasses[name as ErrorCode] : TrlError;
  return new make(name, wire.message, typeof hint === "string" ? hint : "", details);
}

/** Names an error by its number alone: what answered is JSON-RPC, and not quite TRL. */
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
