// A handle to a command: what it writes, what it reads, and how it ends.

import { inspect, TextDecoder } from "node:util";

import type { CallOptions, Client, InputOptions } from "./client.js";
import { CallTimeoutError, ExecEndedError, isTrlError } from "./errors.js";
import { input, toWire, type Camel } from "./options.js";
import { resultFrom, type Result } from "./result.js";
import type { ExecStream, FollowOptions, GapChunk, OutputChunk } from "./stream.js";
import { within } from "./transport.js";
import type * as api from "./types.js";

/** How long a call waits, besides the options of every call. */
export interface WaitOptions extends CallOptions {
  /** How long to wait; default: as long as it takes. */
  timeoutMs?: number;
}

/** Called with output as it is written. The output of a terminal is stdout. */
export interface OutputCallbacks {
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
}

/** How much text waitForText() keeps for a match that is not complete. */
const searchedChars = 1 << 20;

/** How long one poll waits; a proxy may drop a request that takes longer. */
const pollMs = 30_000;

/** A handle to a running or finished command. Iterating it yields its output. */
export class Exec {
  readonly execId: string;
  readonly #client: Client;
  /** The request that started it, whose repeat returns its result with output. */
  readonly #request: api.ExecRunParams | undefined;
  /** Settled when the callbacks have received all output. */
  readonly #reported: Promise<void> | undefined;
  // What waitForText() has read: up to this offset, of which this text is after the last match.
  #searched = 0;
  #text = "";

  /** @internal */
  constructor(client: Client, execId: string, request?: api.ExecRunParams, callbacks: OutputCallbacks = {}) {
    this.#client = client;
    this.execId = execId;
    this.#request = request;
    if (callbacks.onStdout !== undefined || callbacks.onStderr !== undefined) {
      this.#reported = this.#report(callbacks);
      this.#reported.catch(() => {}); // wait() throws it
    }
  }

  async #report({ onStdout, onStderr }: OutputCallbacks): Promise<void> {
    const decoders = { stdout: decoder(), stderr: decoder() };
    for await (const chunk of this) {
      if (chunk.type === "gap") {
        continue;
      }
      const stream = chunk.type === "stderr" ? "stderr" : "stdout";
      const text = decoders[stream].decode(chunk.data, { stream: true });
      if (text !== "") {
        (stream === "stderr" ? onStderr : onStdout)?.(text);
      }
    }
  }

  /** Yields its output from the beginning, as it is written, until the command ends. */
  async *[Symbol.asyncIterator](): AsyncGenerator<OutputChunk | GapChunk, void, undefined> {
    for await (const chunk of this.stream()) {
      if (chunk.type !== "exit") {
        yield chunk;
      }
    }
  }

  /** Streams its output from an offset: existing output, new output, and its exit. */
  stream(options: { from?: number } & FollowOptions = {}): ExecStream {
    const { from = 0, ...follow } = options;
    return this.#client.follow({ execId: this.execId, from }, follow);
  }

  /**
   * Waits for its end, and returns the result: with output, if session.start()
   * returned this handle. After `timeoutMs` it returns while the command runs
   * (`state` is "running"); the command continues.
   */
  wait(options: WaitOptions = {}): Promise<Result> {
    const { timeoutMs, ...call } = options;
    return this.answered(timeoutMs === undefined ? {} : { yield_ms: Math.max(1, timeoutMs) }, call);
  }

  /** @internal Waits for its end, or for what makes exec.run answer earlier. */
  async answered(early: Pick<api.ExecRunParams, "yield_ms" | "yield_on_input">, call: CallOptions): Promise<Result> {
    const result = this.#request === undefined ? await this.#ended(early.yield_ms, call) : resultFrom(await this.#client.callWithOptions("exec.run", { ...this.#request, ...early }, call));
    if (result.state === "exited") {
      await this.#reported;
    }
    return result;
  }

  async #ended(timeoutMs: number | undefined, call: CallOptions): Promise<Result> {
    try {
      return await within(timeoutMs, call.signal, "the command still runs", (signal) => this.stream({ ...call, signal }).result());
    } catch (error) {
      if (!(error instanceof CallTimeoutError)) {
        throw error;
      }
      return this.info(call);
    }
  }

  /** Stops it, or what it left running, and returns when the command is gone. The session continues. */
  async kill(options: CallOptions = {}): Promise<void> {
    const { cancelled } = await this.cancel(options);
    if (cancelled) {
      return;
    }
    try {
      await this.signal("KILL", options);
    } catch (error) {
      if (!isTrlError(error, "SESSION_TERMINATED")) {
        throw error;
      }
    }
  }

  /** Stops it, and returns when it is gone; `cancelled` is false if it had ended by itself. */
  cancel(options: CallOptions = {}): Promise<api.ExecCancelResult> {
    return this.#client.call("exec.cancel", { exec_id: this.execId }, options);
  }

  /** Sends a signal, given by name or number, to its processes. */
  signal(signal: string | number, options: CallOptions = {}): Promise<api.ExecSignalResult> {
    return this.#client.call("exec.signal", { exec_id: this.execId, signal: String(signal) }, options);
  }

  /** Returns its state and outcome, without its output. */
  async info(options: CallOptions = {}): Promise<Result> {
    return resultFrom(await this.#client.call("exec.info", { exec_id: this.execId }, options));
  }

  /** Reads a part of its output by polling. */
  output(params: Camel<Omit<api.ExecOutputParams, "exec_id">> = {}, options: CallOptions = {}): Promise<api.ExecOutputResult> {
    return this.#client.callWithOptions("exec.output", { ...toWire(params), exec_id: this.execId }, options);
  }

  /**
   * Writes to its stdin, which `stdinOpen` keeps open, and closes it with
   * `eof`. On a terminal, `keys` are typed after the data, by name, and `paste`
   * sends it as a paste. With the same `key` a repeated call writes only once;
   * `key` is random if neither it nor `at` is given; see `exec.input` in the
   * contract.
   */
  sendInput(data: string | Uint8Array, options: InputOptions = {}): Promise<api.ExecInputResult> {
    const { signal, reconnect, key, ...rest } = options;
    const { text, encoding } = input(data);
    const params = { ...toWire({ ...rest, data: text, encoding }), exec_id: this.execId };
    if (key === undefined && rest.at === undefined) {
      return this.#client.callKeyed("exec.input", params, { signal, reconnect });
    }
    return this.#client.callWithOptions("exec.input", key ? { ...params, key } : params, { signal, reconnect });
  }

  /**
   * Waits until its output contains a text, or matches a pattern, and returns
   * the match. The next call continues after it. Throws an ExecEndedError if
   * the command ends first, and a CallTimeoutError after `timeoutMs`.
   */
  waitForText(pattern: string | RegExp, options: WaitOptions = {}): Promise<RegExpExecArray> {
    const { timeoutMs, ...call } = options;
    const wanted = searchFor(pattern);
    return within(timeoutMs, call.signal, `no ${wanted} in the output`, async (signal) => {
      const earlier = this.#match(wanted);
      if (earlier !== undefined) {
        return earlier;
      }
      const decoders = new Map<string, TextDecoder>();
      for await (const chunk of this.stream({ ...call, from: this.#searched, signal })) {
        if (chunk.type === "exit") {
          throw new ExecEndedError(`the command ended without ${wanted} in its output`, chunk.result);
        }
        const decode = decoders.get(chunk.type) ?? decoder();
        decoders.set(chunk.type, decode);
        this.#text = (this.#text + decode.decode(chunk.data, { stream: true })).slice(-searchedChars);
        this.#searched = chunk.next;
        const match = this.#match(wanted);
        if (match !== undefined) {
          return match;
        }
      }
      throw new Error("the stream has no end"); // it would be its exit
    });
  }

  #match(wanted: RegExp): RegExpExecArray | undefined {
    const match = wanted.exec(this.#text);
    if (match === null) {
      return undefined;
    }
    this.#text = this.#text.slice(match.index + match[0].length);
    return match;
  }

  /**
   * Waits until it has written nothing for `idleMs`, or has ended, and returns
   * its state without output. Throws a CallTimeoutError after `timeoutMs`.
   */
  waitForIdle(idleMs: number, options: WaitOptions = {}): Promise<Result> {
    const { timeoutMs, ...call } = options;
    return within(timeoutMs, call.signal, `the command was not idle for ${idleMs} ms`, async (signal) => {
      let from = 0;
      let since = performance.now();
      for (;;) {
        const left = Math.ceil(idleMs - (performance.now() - since));
        if (left <= 0) {
          return this.info({ ...call, signal });
        }
        const { next, state } = await this.output({ from, waitMs: Math.min(left, pollMs) }, { ...call, signal });
        if (state === "exited") {
          return this.info({ ...call, signal });
        }
        if (next > from) {
          from = next;
          since = performance.now();
        }
      }
    });
  }

  [inspect.custom](): string {
    return `Exec(${this.execId})`;
  }
}

function decoder(): TextDecoder {
  return new TextDecoder("utf-8", { ignoreBOM: true });
}

/** A RegExp that has no state, for a pattern or a literal text. */
function searchFor(pattern: string | RegExp): RegExp {
  if (typeof pattern === "string") {
    return new RegExp(pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  }
  return new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, ""));
}
