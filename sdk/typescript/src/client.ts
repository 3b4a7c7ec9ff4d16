// The client and the handles it gives out. Here is decided what is repeated
// after a lost connection: what only reads, and what the daemon recognises.

import { randomUUID } from "node:crypto";

import { defaultReconnect, Effort, mayPass, readOnly, type Carrier, type ReconnectPolicy } from "./carrier.js";
import { ConnectionLostError, isTrlError, NoDaemonError, ProtocolError } from "./errors.js";
import { carrierFor, type TLSOptions } from "./address.js";
import { input, resultFrom, toWire, type Camel, type Result } from "./result.js";
import { EventStream, ExecStream, type FollowOptions } from "./stream.js";
import type * as api from "./types.js";

/** The version of the contract that this client speaks. */
const protocol = 1;

/** How to reach a daemon. */
export interface ConnectOptions {
  /** For HTTP; default $TRL_TOKEN. Made by `trl token create`. */
  token?: string;
  /** For https: what to trust, and who to be. */
  tls?: TLSOptions;
  /** How calls that can be repeated and streams go on after the connection is lost. */
  reconnect?: Partial<ReconnectPolicy>;
  /**
   * After so long without a word from the daemon it is asked whether it is
   * there; after as long again the connection is given up. 0 is never.
   * Default 15 s.
   */
  keepAliveMs?: number;
  /** Go on trying for so long, for a daemon that is just being started. Default 0: fail at once. */
  waitForDaemonMs?: number;
  /** Ends the connecting. */
  signal?: AbortSignal;
}

/** Options of every call. */
export interface CallOptions {
  /** Ends the waiting with the signal's reason. What the daemon does of the call, it does. */
  signal?: AbortSignal;
  /** Overrides how long a lost connection is made again. */
  reconnect?: Partial<ReconnectPolicy>;
}

/** Methods that open a stream, which needs more than an answer: see stream(), exec().stream() and watch(). */
type Streaming = "exec.stream" | "exec.attach" | "session.watch" | "stream.close";

/** Every method that is one request and one answer. */
export type CallMethod = Exclude<keyof api.Methods, Streaming>;

const streaming: ReadonlySet<string> = new Set<Streaming>(["exec.stream", "exec.attach", "session.watch", "stream.close"]);

/** Whether doing it twice is as good as once. */
function repeatable(method: string, params: Record<string, unknown>): boolean {
  switch (method) {
    case "session.create":
    case "exec.run":
      return hasKey(params);
    case "exec.input":
      return hasKey(params) || params["at"] !== undefined;
    case "exec.cancel": // of one exec; of a session it could be the next one's turn
      return params["exec_id"] !== undefined && params["session_id"] === undefined;
    default:
      return readOnly.has(method);
  }
}

function hasKey(params: Record<string, unknown>): boolean {
  return typeof params["key"] === "string" && params["key"] !== "";
}

/**
 * Connects to a daemon: "unix:/path" or a path, or "http(s)://host:port".
 * Without an address it is $TRL_SOCKET, or where the daemon listens by itself.
 */
export async function connect(address?: string, options: ConnectOptions = {}): Promise<Client> {
  const carrier = carrierFor(address, options);
  const effort = new Effort({ ...defaultReconnect, limitMs: options.waitForDaemonMs ?? 0 });
  for (;;) {
    try {
      const pong = (await carrier.call("system.ping", {}, options.signal)) as api.PingResult;
      if (pong.protocol !== protocol) {
        throw new ProtocolError(`the daemon speaks version ${pong.protocol} of the protocol, and this client version ${protocol}`);
      }
      return new Client(carrier, { ...defaultReconnect, ...options.reconnect });
    } catch (error) {
      try {
        if (!mayPass(error)) {
          throw error;
        }
        await effort.failed(error, options.signal);
      } catch (last) {
        carrier.close();
        throw last;
      }
    }
  }
}

type ParamsArguments<P> = {} extends P ? [params?: P, options?: CallOptions] : [params: P, options?: CallOptions];

/** A client of one daemon. It connects again by itself, and may be used by many at once. */
export class Client implements AsyncDisposable {
  readonly #carrier: Carrier;
  readonly #reconnect: ReconnectPolicy;
  #keyless = false; // the daemon is of a version that takes keys with commands alone

  /** @internal */
  constructor(carrier: Carrier, reconnect: ReconnectPolicy) {
    this.#carrier = carrier;
    this.#reconnect = reconnect;
  }

  /** Where the daemon is. */
  get address(): string {
    return this.#carrier.address;
  }

  /**
   * Calls any method of the contract that is one request and one answer, with
   * the names of the contract. After a lost connection it is repeated if that
   * is safe: if it only reads, is an exec.run with a key or an exec.cancel of
   * an exec, or can't have reached the daemon. Else it throws a
   * ConnectionLostError.
   */
  async call<M extends CallMethod>(method: M, ...[params, options]: ParamsArguments<api.Methods[M]["params"]>): Promise<api.Methods[M]["result"]> {
    if (streaming.has(method)) {
      throw new TypeError(`${method} is not one answer: use session.stream(), exec.stream() or watch()`);
    }
    const fields = (params ?? {}) as Record<string, unknown>;
    return (await this.#call(method, fields, options ?? {}, repeatable(method, fields))) as api.Methods[M]["result"];
  }

  async #call(method: string, params: Record<string, unknown>, options: CallOptions, repeat: boolean): Promise<unknown> {
    const effort = new Effort({ ...this.#reconnect, ...options.reconnect });
    for (;;) {
      options.signal?.throwIfAborted();
      try {
        return await this.#carrier.call(method, params, options.signal);
      } catch (error) {
        const unsent = error instanceof NoDaemonError || (error instanceof ConnectionLostError && error.effect === "none");
        if (!mayPass(error) || !(repeat || unsent)) {
          throw error;
        }
        await effort.failed(error, options.signal);
      }
    }
  }

  /** @internal Calls with a key of its own, unless the daemon is of a version that has none for the method. */
  async callKeyed<M extends "session.create" | "exec.input">(method: M, params: api.Methods[M]["params"], options: CallOptions): Promise<api.Methods[M]["result"]> {
    if (this.#keyless) {
      return this.call(method, params, options);
    }
    try {
      return await this.call(method, { ...params, key: randomUUID() }, options);
    } catch (error) {
      if (!isTrlError(error, "INVALID_PARAMS") || error.details["field"] !== "key") {
        throw error;
      }
      this.#keyless = true;
      return this.call(method, params, options);
    }
  }

  /** Starts a session. `await using` destroys it at the end of its block. `key` is random if not given. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const { signal, reconnect, key, ...create } = options;
    const params = toWire(create) as api.SessionCreateParams;
    const made =
      key === undefined
        ? await this.callKeyed("session.create", params, { signal, reconnect })
        : await this.call("session.create", key === "" ? params : { ...params, key }, { signal, reconnect });
    return new Session(this, made.session_id, made);
  }

  /** A handle of a session that exists. `await using` does not destroy it. */
  open(sessionId: string): Session {
    return new Session(this, sessionId);
  }

  /** A handle of a command, by its id. */
  exec(execId: string): Exec {
    return new Exec(this, execId);
  }

  /** Sessions, oldest first. Every field given must match. */
  async sessions(filter: api.SessionListParams = {}, options: CallOptions = {}): Promise<api.Session[]> {
    return (await this.call("session.list", filter, options)).sessions;
  }

  /** What happens to one session, or to all. */
  watch(options: { sessionId?: string } & FollowOptions = {}): EventStream {
    const { sessionId, ...follow } = options;
    return new EventStream(this.#carrier, this.#reconnect, toWire({ sessionId }) as api.SessionWatchParams, follow);
  }

  /** Checks that the daemon answers. */
  ping(options: CallOptions = {}): Promise<api.PingResult> {
    return this.call("system.ping", {}, options);
  }

  /** What the daemon is, and what it can enforce on its machine. */
  info(options: CallOptions = {}): Promise<api.SystemInfo> {
    return this.call("system.info", {}, options);
  }

  /** What the daemon does and holds, counted. */
  stats(options: CallOptions = {}): Promise<api.SystemStats> {
    return this.call("system.stats", {}, options);
  }

  /** Ends the connections. Calls and streams under way fail; sessions and commands go on. */
  async close(): Promise<void> {
    this.#carrier.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  async destroySession(params: api.SessionDestroyParams, options: CallOptions): Promise<void> {
    try {
      // Repeated, since a session can't be destroyed into anything but gone.
      await this.#call("session.destroy", { ...params }, options, true);
    } catch (error) {
      if (!isTrlError(error, "SESSION_TERMINATED") && !isTrlError(error, "SESSION_NOT_FOUND")) {
        throw error;
      }
    }
  }

  /** @internal */
  follow(what: ConstructorParameters<typeof ExecStream>[2], options: FollowOptions): ExecStream {
    return new ExecStream(this.#carrier, this.#reconnect, what, options);
  }
}

/** How to start a session; see `session.create` in the contract. */
export type SessionOptions = Camel<api.SessionCreateParams> & CallOptions;

/** How to write to a command; see `exec.input` in the contract. */
export type InputOptions = Camel<Omit<api.ExecInputParams, "exec_id" | "data" | "encoding">> & CallOptions;

interface Stdin {
  /** What the command reads; default: the end of input at once. */
  stdin?: string | Uint8Array;
}

/** How to run a command; see `exec.run` in the contract. `key` is random if not given. */
export type RunOptions = Camel<Omit<api.ExecRunParams, "session_id" | "command" | "stdin" | "stdin_encoding">> & Stdin & CallOptions;

/** How to run a command and follow it; see `exec.stream` in the contract. `key` is random if not given. */
export type StreamOptions = Camel<Omit<api.ExecStreamParams, "session_id" | "command" | "stdin" | "stdin_encoding">> & Stdin & FollowOptions;

/** One long-lived shell, or one direct command. */
export class Session implements AsyncDisposable {
  readonly id: string;
  /** As it was created; undefined for a handle that was made by id. */
  readonly created: api.Session | undefined;
  readonly #client: Client;

  /** @internal */
  constructor(client: Client, id: string, created?: api.Session) {
    this.#client = client;
    this.id = id;
    this.created = created;
  }

  /**
   * Runs a command, and returns when it is over or `yieldMs` have passed. A
   * command that fails is a result, not an error. After a lost connection the
   * same command is waited for again, and never run a second time.
   */
  async run(command: string, options: RunOptions = {}): Promise<Result> {
    const { signal, reconnect, ...rest } = options;
    return resultFrom(await this.#client.call("exec.run", this.#params(command, rest), { signal, reconnect }));
  }

  /** Runs a command, and gives its output as it is written. It begins when it is first read. */
  stream(command: string, options: StreamOptions = {}): ExecStream {
    const { signal, reconnect, ...rest } = options;
    return this.#client.follow({ begin: this.#params(command, rest) }, { signal, reconnect });
  }

  #params(command: string, options: { key?: string; stdin?: string | Uint8Array }): api.ExecRunParams & { key: string } {
    const { stdin, key = randomUUID(), ...rest } = options;
    const params: Record<string, unknown> = { session_id: this.id, command, key, ...toWire(rest) };
    if (stdin !== undefined) {
      const { text, encoding } = input(stdin);
      Object.assign(params, toWire({ stdin: text, stdinEncoding: encoding }));
    }
    return params as unknown as api.ExecRunParams & { key: string };
  }

  /** The command of a direct session, which runs from the start. */
  get exec(): Exec | undefined {
    return this.created?.argv !== undefined && this.created.exec_id !== undefined ? this.#client.exec(this.created.exec_id) : undefined;
  }

  /** Its state, the running and the last command, and every process in its tree. */
  info(options: CallOptions = {}): Promise<api.SessionInfo> {
    return this.#client.call("session.info", { session_id: this.id }, options);
  }

  /** Its commands, oldest first, without output. */
  async execs(options: CallOptions = {}): Promise<Result[]> {
    return (await this.#client.call("exec.list", { session_id: this.id }, options)).execs.map(resultFrom);
  }

  /** Stops what runs in it, and returns when that is gone. The session lives on. */
  cancel(options: CallOptions = {}): Promise<api.ExecCancelResult> {
    return this.#client.call("exec.cancel", { session_id: this.id }, options);
  }

  /** What happens to it. */
  watch(options: FollowOptions = {}): EventStream {
    return this.#client.watch({ ...options, sessionId: this.id });
  }

  /** Ends it, and returns when none of its processes is left. Fine if it has ended already. */
  async destroy(options: { force?: boolean } & CallOptions = {}): Promise<void> {
    const { force, ...call } = options;
    await this.#client.destroySession({ session_id: this.id, ...(force === undefined ? {} : { force }) }, call);
  }

  /** Destroys the session if this handle made it. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.created !== undefined) {
      await this.destroy();
    }
  }
}

/** A command that was begun, running or over, by its id. */
export class Exec {
  readonly id: string;
  readonly #client: Client;

  /** @internal */
  constructor(client: Client, id: string) {
    this.#client = client;
    this.id = id;
  }

  /** Its output from an offset on: what there is, what comes, and its exit. */
  stream(options: { from?: number } & FollowOptions = {}): ExecStream {
    const { from = 0, ...follow } = options;
    return this.#client.follow({ execId: this.id, from }, follow);
  }

  /** A part of its output, by polling. */
  output(params: Camel<Omit<api.ExecOutputParams, "exec_id">> = {}, options: CallOptions = {}): Promise<api.ExecOutputResult> {
    return this.#client.call("exec.output", { ...toWire(params), exec_id: this.id }, options);
  }

  /**
   * Writes to its stdin, which `stdinOpen` keeps open, and ends that with `eof`.
   * On a terminal, `keys` are typed after it by name, and `paste` gives it as
   * pasted. `key` makes a repeat write nothing twice, and is random if neither it
   * nor `at` is given; see `exec.input` in the contract.
   */
  input(data: string | Uint8Array, options: InputOptions = {}): Promise<api.ExecInputResult> {
    const { eof, keys, paste, lease, key, at, whole, ...call } = options;
    const { text, encoding } = input(data);
    const params = { ...toWire({ data: text, encoding, eof, keys, paste, lease, at, whole }), exec_id: this.id };
    if (key === undefined && at === undefined) {
      return this.#client.callKeyed("exec.input", params, call);
    }
    return this.#client.call("exec.input", key ? { ...params, key } : params, call);
  }

  /** Sends a signal to its processes: a name or a number. */
  signal(signal: string | number, options: CallOptions = {}): Promise<api.ExecSignalResult> {
    return this.#client.call("exec.signal", { exec_id: this.id, signal: String(signal) }, options);
  }

  /** Stops it, and returns when it is gone. */
  cancel(options: CallOptions = {}): Promise<api.ExecCancelResult> {
    return this.#client.call("exec.cancel", { exec_id: this.id }, options);
  }

  /** How it ended, or that it runs, without its output. */
  async info(options: CallOptions = {}): Promise<Result> {
    return resultFrom(await this.#client.call("exec.info", { exec_id: this.id }, options));
  }
}
