// A command's output as chunks, over any number of connections.

import { inspect } from "node:util";

import { Backoff, Feed, fromWire, isTransient, type Transport, type ReconnectPolicy } from "./transport.js";
import { ProtocolError, TrlError } from "./errors.js";
import { resultFrom, type Result } from "./result.js";
import type { Chunk, ExecStreamParams, SessionEvent, SessionWatchParams } from "./types.js";

interface ChunkBase {
  /** The offset of its first byte in the command's output. */
  readonly offset: number;
  /** The offset after it: continue from here with `exec.stream({ from })`. */
  readonly next: number;
  /** Its bytes; empty for a gap and an exit, so that all chunks can be handled alike. */
  readonly data: Uint8Array;
  /** Its bytes as text. The daemon never splits a character of valid text. */
  readonly text: string;
}

/** Output of the command. */
export interface OutputChunk extends ChunkBase {
  readonly type: "stdout" | "stderr" | "tty";
}

/** Output that the daemon's quota has dropped. */
export interface GapChunk extends ChunkBase {
  readonly type: "gap";
  readonly bytes: number;
}

/** The end of the command: always the last chunk, and exactly one. */
export interface ExitChunk extends ChunkBase {
  readonly type: "exit";
  /** How it ended, without output. */
  readonly result: Result;
}

export type StreamChunk = OutputChunk | GapChunk | ExitChunk;

const none = new Uint8Array(0);

/** Converts to text or bytes on first use, since few readers need both. */
class Output implements OutputChunk {
  readonly #wire: string;
  readonly #base64: boolean;
  #data: Buffer | undefined;

  constructor(
    readonly type: OutputChunk["type"],
    readonly offset: number,
    readonly next: number,
    wire: string,
    base64: boolean,
  ) {
    this.#wire = wire;
    this.#base64 = base64;
  }

  get data(): Uint8Array {
    return this.#bytes();
  }

  get text(): string {
    return this.#base64 ? this.#bytes().toString("utf8") : this.#wire;
  }

  #bytes(): Buffer {
    this.#data ??= Buffer.from(this.#wire, this.#base64 ? "base64" : "utf8");
    return this.#data;
  }
}

/** Converts a chunk. It throws the error of a chunk that ends a stream because the place of its command has forgotten it. */
function chunkFrom(wire: Chunk): StreamChunk {
  const { offset } = wire;
  const next = wire.next ?? 0; // omitted when it is 0
  switch (wire.type) {
    case "exit":
      if (wire.result === undefined) {
        throw new ProtocolError("the daemon sent an exit chunk without a result");
      }
      return { type: "exit", offset, next, data: none, text: "", result: resultFrom(wire.result) };
    case "gap":
      return { type: "gap", offset, next, data: none, text: "", bytes: wire.bytes ?? next - offset };
    case "error":
      throw wire.error === undefined ? new ProtocolError("the daemon sent an error chunk without an error") : fromWire(wire.error);
    case "resize":
      throw new ProtocolError("the daemon sent a resize chunk, which only exec.output returns");
    default:
      return new Output(wire.type, offset, next, wire.data ?? "", wire.encoding === "base64");
  }
}

export interface FollowOptions {
  /** Ends the stream with the signal's reason. The command continues; `cancel` stops it. */
  signal?: AbortSignal;
  /** How to recover from a lost connection; see ConnectOptions. */
  reconnect?: Partial<ReconnectPolicy>;
}

/** What to watch, besides the sessions' own events. */
export interface WatchOptions extends FollowOptions {
  /** Begin with the sessions that there are: a `snapshot` event each, then `snapshot_end`. */
  snapshot?: boolean;
  /** Report commands too, and whether they wait for input. */
  execs?: boolean;
}

/** A stream of items from the daemon. It has one reader, like any iterator. */
abstract class Following<W extends object, T> implements AsyncIterableIterator<T>, AsyncDisposable {
  protected readonly transport: Transport;
  /** The feed of the current connection, if there is one. */
  protected feed: Feed<W> | undefined;
  readonly #backoff: Backoff;
  readonly #signal: AbortSignal | undefined;
  // Aborts pending operations. The reason is the caller's signal, an error, or
  // that the reader is gone.
  readonly #ending = new AbortController();
  readonly #abort = () => this.#end(this.#signal?.reason);
  #over = false; // next() returns done
  #busy = false;

  constructor(transport: Transport, reconnect: ReconnectPolicy, options: FollowOptions) {
    this.transport = transport;
    this.#backoff = new Backoff({ ...reconnect, ...options.reconnect });
    this.#signal = options.signal;
    if (this.#signal?.aborted) {
      this.#abort();
    } else {
      this.#signal?.addEventListener("abort", this.#abort, { once: true });
    }
  }

  /** Returns the next item, or undefined at the end. */
  protected abstract pull(): Promise<T | undefined>;

  async next(): Promise<IteratorResult<T, undefined>> {
    if (this.#busy) {
      throw new Error("a stream has only one reader: await next() before you call it again");
    }
    if (this.#over) {
      return { done: true, value: undefined };
    }
    this.#busy = true;
    try {
      const value = await this.pull();
      if (value !== undefined) {
        return { done: false, value };
      }
      await this.return();
      return { done: true, value: undefined };
    } catch (error) {
      if (this.#over) {
        // It was closed while it waited.
        return { done: true, value: undefined };
      }
      this.#over = true;
      this.#end(error);
      throw error;
    } finally {
      this.#busy = false;
    }
  }

  /** Repeats a step that opens a feed until it succeeds. */
  protected async open(step: (signal: AbortSignal) => Promise<Feed<W> | undefined>): Promise<void> {
    for (;;) {
      this.#ending.signal.throwIfAborted();
      try {
        const feed = await step(this.#ending.signal);
        if (this.#ending.signal.aborted) {
          feed?.close(this.#ending.signal.reason);
          continue;
        }
        this.feed = feed;
        return;
      } catch (error) {
        await this.#lost(error);
      }
    }
  }

  /** Returns the next item of the feed, or undefined if it was lost and must be opened again. */
  protected async take(): Promise<W | undefined> {
    try {
      this.#ending.signal.throwIfAborted();
      const item = await this.feed!.next();
      this.#backoff.progress();
      return item;
    } catch (error) {
      await this.#lost(error);
      return undefined;
    }
  }

  /** Waits after a lost connection; throws any other error. */
  async #lost(error: unknown): Promise<void> {
    this.feed?.close(error);
    this.feed = undefined;
    this.#ending.signal.throwIfAborted();
    if (!isTransient(error)) {
      throw error;
    }
    await this.#backoff.failed(error, this.#ending.signal);
  }

  #end(reason: unknown): void {
    this.#signal?.removeEventListener("abort", this.#abort);
    this.#ending.abort(reason);
    this.feed?.close(reason);
    this.feed = undefined;
  }

  /** Ends the stream, as leaving a `for await` does. The command continues. */
  async return(): Promise<IteratorResult<T, undefined>> {
    this.#over = true;
    this.#end(new Error("the stream was closed"));
    return { done: true, value: undefined };
  }

  /** Ends the stream. The command or session continues. */
  async close(): Promise<void> {
    await this.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}

/** What an ExecStream follows: a new command, or an existing one. */
export type Followed = { begin: ExecStreamParams & { key: string } } | { execId: string; from: number };

/**
 * The output of one command: every byte once and in order, then its exit,
 * however often the connection is lost. It starts with the first call of
 * next(), start() or result().
 *
 * It reads no faster than its reader: a reader that pauses for an hour buffers
 * about half a megabyte and delays no one.
 */
export class ExecStream extends Following<Chunk, StreamChunk> {
  readonly #what: Followed;
  #execId: string | undefined;
  #starting: Promise<string> | undefined;
  #offset = 0;
  #result: Result | undefined;

  /** @internal */
  constructor(transport: Transport, reconnect: ReconnectPolicy, what: Followed, options: FollowOptions) {
    super(transport, reconnect, options);
    this.#what = what;
    if ("execId" in what) {
      this.#execId = what.execId;
      this.#offset = what.from;
    }
  }

  /** The offset after the last chunk that was returned. */
  get offset(): number {
    return this.#offset;
  }

  /** The id of the command, once it is known; see start(). */
  get execId(): string | undefined {
    return this.#execId;
  }

  /** Starts, and returns the id of the command once the daemon has accepted it. */
  start(): Promise<string> {
    this.#starting ??= this.#start();
    return this.#starting;
  }

  async #start(): Promise<string> {
    const what = this.#what;
    if ("execId" in what) {
      return what.execId;
    }
    let execId = "";
    await this.open(async (signal) => {
      // Repeated with the same key, this returns the same command.
      const started = await this.transport.start(what.begin, signal);
      execId = started.execId;
      return started.feed;
    }).catch((error: unknown) => {
      throw error instanceof TrlError ? error.withOptionNames() : error;
    });
    this.#execId = execId;
    return execId;
  }

  protected async pull(): Promise<StreamChunk | undefined> {
    if (this.#result !== undefined) {
      return undefined;
    }
    const execId = await this.start();
    let wire: Chunk | undefined;
    while (wire === undefined) {
      if (this.feed === undefined) {
        await this.open((signal) => this.transport.attach(execId, this.#offset, signal));
      }
      wire = await this.take();
    }
    const chunk = chunkFrom(wire);
    if (chunk.offset !== this.#offset || chunk.next < chunk.offset) {
      throw new ProtocolError(`the output should continue at ${this.#offset}, but the daemon sent ${chunk.offset} to ${chunk.next}`);
    }
    this.#offset = chunk.next;
    if (chunk.type === "exit") {
      this.#result = chunk.result;
      this.feed?.close(undefined); // nothing follows it
      this.feed = undefined;
    }
    return chunk;
  }

  [inspect.custom](): string {
    return `ExecStream(${this.#execId ?? "not started"} at ${this.#offset})`;
  }

  /** Reads and discards the rest, and returns how the command ended. */
  async result(): Promise<Result> {
    for await (const _ of this);
    if (this.#result === undefined) {
      throw new Error("the stream was closed before the command ended");
    }
    return this.#result;
  }
}

/**
 * The events of sessions. Events have no offsets: after a lost connection a
 * `gap` event stands for those that may be missing, and session.list returns
 * the current state.
 */
export class EventStream extends Following<SessionEvent, SessionEvent> {
  readonly #params: SessionWatchParams;
  #begun = false;

  /** @internal */
  constructor(transport: Transport, reconnect: ReconnectPolicy, params: SessionWatchParams, options: FollowOptions) {
    super(transport, reconnect, options);
    this.#params = params;
  }

  /** Starts watching, and returns when all later events will be received. */
  async start(): Promise<void> {
    if (!this.#begun) {
      await this.open((signal) => this.transport.watch(this.#params, signal));
      this.#begun = true;
    }
  }

  protected async pull(): Promise<SessionEvent | undefined> {
    await this.start();
    const event = await this.take();
    if (event !== undefined) {
      return event;
    }
    await this.open((signal) => this.transport.watch(this.#params, signal));
    return { stream_id: "", type: "gap", at: new Date().toISOString() };
  }
}
