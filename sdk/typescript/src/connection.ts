// JSON-RPC over one connection, one JSON object per line: requests, answers in
// any order, and notifications.

import type { Duplex } from "node:stream";

import { abortable, Feed, fromWire, parse, resultOf, type Message, type Source } from "./transport.js";
import { ClosedError, ConnectionLostError, UnauthorizedError, type TrlError } from "./errors.js";
import { LineSplitter } from "./lines.js";

/** A duplex stream of lines: a socket, or something like one. */
export interface Line extends Duplex {
  ref(): unknown;
  unref(): unknown;
}

interface Waiting {
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

/** One connection. When it fails, all unanswered calls fail. */
export class Connection implements Source {
  /** Called with the params of each notification and the size of its line in bytes. */
  notified: ((params: unknown, bytes: number) => void) | undefined;

  readonly #socket: Line;
  readonly #address: string;
  readonly #ended: (error: unknown) => void;
  readonly #waiting = new Map<number, Waiting>();
  readonly #lines = new LineSplitter();
  #lastId = 0;
  #failure: { error: unknown } | undefined;
  // An error without a request id: why the daemon closes the connection.
  #notice: TrlError | undefined;

  readonly #keepAliveMs: number;
  #watchdog: NodeJS.Timeout | undefined;
  #heardAt = performance.now();
  #asked = false; // pinged since data was last received

  constructor(socket: Line, address: string, keepAliveMs: number, ended: (error: unknown) => void) {
    this.#socket = socket;
    this.#address = address;
    this.#keepAliveMs = keepAliveMs;
    this.#ended = ended;
    socket.unref(); // an idle client does not keep the process alive
    socket.on("data", (data: Buffer) => this.#received(data));
    socket.on("error", (error: Error) => this.#fail(this.#lost(error)));
    socket.on("close", () => this.#fail(this.#lost()));
  }

  async call(method: string, params: unknown, signal?: AbortSignal): Promise<unknown> {
    signal?.throwIfAborted();
    if (this.#failure !== undefined) {
      if (this.#failure.error instanceof ClosedError) {
        throw this.#failure.error;
      }
      throw new ConnectionLostError(`the connection to ${this.#address} has ended`, "none", { cause: this.#failure.error });
    }
    const id = ++this.#lastId;
    // The id goes first: a daemon that refuses a line for its length still finds it.
    const line = JSON.stringify({ jsonrpc: "2.0", id, method, params });
    const answer = new Promise<unknown>((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    this.#hold();
    this.#socket.write(line + "\n");
    try {
      return await abortable(answer, signal);
    } finally {
      this.#waiting.delete(id);
      this.#hold();
    }
  }

  /** Keeps the process and the watchdog alive while an answer or a notification is awaited. */
  #hold(): void {
    const awaited = this.#failure === undefined && (this.#waiting.size > 0 || this.notified !== undefined);
    if (!awaited) {
      clearInterval(this.#watchdog);
      this.#watchdog = undefined;
      this.#socket.unref();
      return;
    }
    this.#socket.ref();
    if (this.#watchdog === undefined && this.#keepAliveMs > 0) {
      this.#heard();
      this.#watchdog = setInterval(() => this.#check(), this.#keepAliveMs);
      this.#watchdog.unref();
    }
  }

  #heard(): void {
    this.#heardAt = performance.now();
    this.#asked = false;
  }

  /**
   * Detects a silent peer that is gone where the system does not report it, as
   * with a socket forwarded from another machine. A command that writes nothing
   * looks the same, so the daemon is pinged.
   */
  #check(): void {
    if (this.#socket.isPaused() || performance.now() - this.#heardAt < this.#keepAliveMs) {
      return;
    }
    if (this.#asked) {
      this.destroy(new ConnectionLostError(`the daemon at ${this.#address} is silent`, "unknown", { silent: true }));
      return;
    }
    this.#asked = true;
    this.#socket.write(`{"jsonrpc":"2.0","id":"alive","method":"system.ping"}\n`);
  }

  #received(data: Buffer): void {
    this.#heard();
    try {
      this.#lines.push(data, (text, bytes) => {
        if (this.#failure === undefined && text !== "") {
          this.#message(parse(text), bytes);
        }
      });
    } catch (error) {
      this.destroy(error);
    }
  }

  #message(message: Message, bytes: number): void {
    if (typeof message.id === "number") {
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      try {
        waiting?.resolve(resultOf(message));
      } catch (error) {
        waiting?.reject(error);
      }
    } else if (message.method !== undefined) {
      this.notified?.(message.params, bytes);
    } else if (message.error !== undefined && message.id !== "alive") {
      this.#notice = fromWire(message.error);
    }
  }

  #lost(cause?: Error): Error {
    if (this.#notice instanceof UnauthorizedError) {
      return this.#notice;
    }
    return new ConnectionLostError(`the connection to ${this.#address} has ended`, "unknown", { cause: this.#notice ?? cause });
  }

  #fail(error: unknown): void {
    if (this.#failure !== undefined) {
      return;
    }
    this.#failure = { error };
    this.#socket.destroy();
    for (const { reject } of this.#waiting.values()) {
      reject(error);
    }
    this.#waiting.clear();
    this.#hold();
    this.#ended(error);
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#heard();
    this.#socket.resume();
  }

  destroy(reason?: unknown): void {
    this.#fail(reason ?? this.#lost());
  }
}

/** Opens a stream over a new connection, which ends with the stream. */
export async function follow<R, T>(
  connect: (ended: (error: unknown) => void) => Promise<Connection>,
  method: string,
  params: unknown,
  signal?: AbortSignal,
): Promise<{ result: R; feed: Feed<T> }> {
  let feed: Feed<T> | undefined;
  const opening = connect((error) => feed?.end(error));
  let connection: Connection;
  try {
    connection = await abortable(opening, signal);
  } catch (error) {
    opening.then(
      (late) => late.destroy(error),
      () => {},
    );
    throw error;
  }
  const items = new Feed<T>(connection);
  feed = items;
  connection.notified = (value, bytes) => items.push(value as T, bytes);
  try {
    return { result: (await connection.call(method, params, signal)) as R, feed };
  } catch (error) {
    connection.destroy(error);
    throw error;
  }
}
