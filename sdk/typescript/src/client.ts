// The client and its handles. This file decides what to repeat after a lost
// connection: calls that only read, and calls that the daemon recognises.

import { randomUUID } from "node:crypto";

import { defaultReconnect, Backoff, isTransient, readOnly, type Transport, type ReconnectPolicy } from "./transport.js";
import { ConnectionLostError, isTrlError, NoDaemonError, ProtocolError } from "./errors.js";
import { transportFor, type TLSOptions } from "./address.js";
import { input, resultFrom, toWire, type Camel, type Result } from "./result.js";
import { EventStream, ExecStream, type FollowOptions } from "./stream.js";
import type * as api from "./types.js";

/** The version of the contract that this client speaks. */
const protocol = 1;

/** How to reach a daemon. */
export interface ConnectOptions {
  /** For HTTP; default $TRL_TOKEN. Create one with `trl token create`. */
  token?: string;
  /** For https: trusted certificates, and the client's own. */
  tls?: TLSOptions;
  /** How streams, and calls that can be repeated, recover from a lost connection. */
  reconnect?: Partial<ReconnectPolicy>;
  /**
   * After this long without data the client pings the daemon; after the same
   * time again it drops the connection. 0 disables this. Default 15 s.
   */
  keepAliveMs?: number;
  /** Keep trying for this long, for a daemon that is just starting. Default 0: fail at once. */
  waitForDaemonMs?: number;
  /** Aborts connecting. */
  signal?: AbortSignal;
}

/** Options of every call. */
export interface CallOptions {
  /** Stops waiting with the signal's reason. The daemon may still execute the call. */
  signal?: AbortSignal;
  /** Overrides how to reconnect after a lost connection. */
  reconnect?: Partial<ReconnectPolicy>;
}

/**
 * Methods that open a stream and need more than one answer: see stream(),
 * exec().stream() and watch().
 */
type Streaming = "exec.stream" | "exec.attach" | "session.watch" | "stream.close";

/** Every method with one request and one answer. */
export type CallMethod = Exclude<keyof api.Methods, Streaming>;

const streaming: ReadonlySet<string> = new Set<Streaming>(["exec.stream", "exec.attach", "session.watch", "stream.close"]);

/** Whether repeating the call has the same effect as making it once. */
function repeatable(method: string, params: Record<string, unknown>): boolean {
  switch (method) {
    case "session.create":
    case "exec.run":
      return hasKey(params);
    case "exec.input":
      return hasKey(params) || params["at"] !== undefined;
    case "exec.cancel": // by exec id; by session it could cancel the next command
      return params["exec_id"] !== undefined && params["session_id"] === undefined;
    default:
      return readOnly.has(method);
  }
}

function hasKey(params: Record<string, unknown>): boolean {
  return typeof params["key"] === "string" && params["key"] !== "";
}

/**
 * Connects to a daemon: "unix:/path" or a path, or "http(s)://host:port". The
 * default is $TRL_SOCKET, or the daemon's default socket.
 */
export async function connect(address?: string, options: ConnectOptions = {}): Promise<Client> {
  const transport = transportFor(address, options);
  const backoff = new Backoff({ ...defaultReconnect, limitMs: options.waitForDaemonMs ?? 0 });
  for (;;) {
    try {
      const pong = (await transport.call("system.ping", {}, options.signal)) as api.PingResult;
      if (pong.protocol !== protocol) {
        throw new ProtocolError(`the daemon speaks protocol version ${pong.protocol}, but this client speaks version ${protocol}`);
      }
      return new Client(transport, { ...defaultReconnect, ...options.reconnect });
    } catch (error) {
      try {
        if (!isTransient(error)) {
          throw error;
        }
        await backoff.failed(error, options.signal);
      } catch (last) {
        transport.close();
        throw last;
      }
    }
  }
}

type ParamsArguments<P> = {} extends P ? [params?: P, options?: CallOptions] : [params: P, options?: CallOptions];

/** A client of one daemon. It reconnects by itself, and is safe for concurrent use. */
export class Client implements AsyncDisposable {
  readonly #transport: Transport;
  readonly #reconnect: ReconnectPolicy;
  #keyless = false; // the daemon is an older version that accepts keys only for commands

  /** @internal */
  constructor(transport: Transport, reconnect: ReconnectPolicy) {
    this.#transport = transport;
    this.#reconnect = reconnect;
  }

  /** The address of the daemon. */
  get address(): string {
    return this.#transport.address;
  }

  /**
   * Calls any method of the contract with one request and one answer, with the
   * names of the contract. After a lost connection the call is repeated if that
   * is safe: if it only reads, has a key, is an exec.cancel of an exec, or
   * cannot have reached the daemon. Otherwise it throws a ConnectionLostError.
   */
  async call<M extends CallMethod>(method: M, ...[params, options]: ParamsArguments<api.Methods[M]["params"]>): Promise<api.Methods[M]["result"]> {
    if (streaming.has(method)) {
      throw new TypeError(`${method} opens a stream: use session.stream(), exec.stream() or watch()`);
    }
    const fields = (params ?? {}) as Record<string, unknown>;
    return (await this.#call(method, fields, options ?? {}, repeatable(method, fields))) as api.Methods[M]["result"];
  }

  async #call(method: string, params: Record<string, unknown>, options: CallOptions, repeat: boolean): Promise<unknown> {
    const backoff = new Backoff({ ...this.#reconnect, ...options.reconnect });
    for (;;) {
      options.signal?.throwIfAborted();
      try {
        return await this.#transport.call(method, params, options.signal);
      } catch (error) {
        const unsent = error instanceof NoDaemonError || (error instanceof ConnectionLostError && error.effect === "none");
        if (!isTransient(error) || !(repeat || unsent)) {
          throw error;
        }
        await backoff.failed(error, options.signal);
      }
    }
  }

  /** @internal Calls with a generated key, unless an older daemon does not accept one for the method. */
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

  /** Returns a handle to an existing session. `await using` does not destroy it. */
  open(sessionId: string): Session {
    return new Session(this, sessionId);
  }

  /** Returns a handle to a command by its id. */
  exec(execId: string): Exec {
    return new Exec(this, execId);
  }

  /** Lists sessions, oldest first. Every given field must match. */
  async sessions(filter: api.SessionListParams = {}, options: CallOptions = {}): Promise<api.Session[]> {
    return (await this.call("session.list", filter, options)).sessions;
  }

  /** Follows the events of one session, or of all. */
  watch(options: { sessionId?: string } & FollowOptions = {}): EventStream {
    const { sessionId, ...follow } = options;
    return new EventStream(this.#transport, this.#reconnect, toWire({ sessionId }) as api.SessionWatchParams, follow);
  }

  /** Checks that the daemon answers. */
  ping(options: CallOptions = {}): Promise<api.PingResult> {
    return this.call("system.ping", {}, options);
  }

  /** Describes the daemon and what it can enforce on its machine. */
  info(options: CallOptions = {}): Promise<api.SystemInfo> {
    return this.call("system.info", {}, options);
  }

  /** Counts what the daemon does and holds. */
  stats(options: CallOptions = {}): Promise<api.SystemStats> {
    return this.call("system.stats", {}, options);
  }

  /** Closes the connections. Pending calls and streams fail; sessions and commands continue. */
  async close(): Promise<void> {
    this.#transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  async destroySession(params: api.SessionDestroyParams, options: CallOptions): Promise<void> {
    try {
      // Repeated: destroying a session twice has the same effect as once.
      await this.#call("session.destroy", { ...params }, options, true);
    } catch (error) {
      if (!isTrlError(error, "SESSION_TERMINATED") && !isTrlError(error, "SESSION_NOT_FOUND")) {
        throw error;
      }
    }
  }

  /** @internal */
  follow(what: ConstructorParameters<typeof ExecStream>[2], options: FollowOptions): ExecStream {
    return new ExecStream(this.#transport, this.#reconnect, what, options);
  }
}

/** How to start a session; see `session.create` in the contract. */
export type SessionOptions = Camel<api.SessionCreateParams> & CallOptions;

/** How to write to a command; see `exec.input` in the contract. */
export type InputOptions = Camel<Omit<api.ExecInputParams, "exec_id" | "data" | "encoding">> & CallOptions;

interface Stdin {
  /** The standard input of the command; default: empty. */
  stdin?: string | Uint8Array;
}

/** How to run a command; see `exec.run` in the contract. `key` is random if not given. */
export type RunOptions = Camel<Omit<api.ExecRunParams, "session_id" | "command" | "stdin" | "stdin_encoding">> & Stdin & CallOptions;

/** How to run a command and follow it; see `exec.stream` in the contract. `key` is random if not given. */
export type StreamOptions = Camel<Omit<api.ExecStreamParams, "session_id" | "command" | "stdin" | "stdin_encoding">> & Stdin & FollowOptions;

/** One long-lived shell, or one direct command. */
export class Session implements AsyncDisposable {
  readonly id: string;
  /** The answer of session.create; undefined for a handle made by id. */
  readonly created: api.Session | undefined;
  readonly #client: Client;

  /** @internal */
  constructor(client: Client, id: string, created?: api.Session) {
    this.#client = client;
    this.id = id;
    this.created = created;
  }

  /**
   * Runs a command, and returns when it has ended or `yieldMs` have passed. A
   * command that fails is a result, not an error. After a lost connection the
   * client waits for the same command again, and never runs it twice.
   */
  async run(command: string, options: RunOptions = {}): Promise<Result> {
    const { signal, reconnect, ...rest } = options;
    return resultFrom(await this.#client.call("exec.run", this.#params(command, rest), { signal, reconnect }));
  }

  /** Runs a command and streams its output. It starts when it is first read. */
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

  /** Returns its state, the running and the last command, and every process in its tree. */
  info(options: CallOptions = {}): Promise<api.SessionInfo> {
    return this.#client.call("session.info", { session_id: this.id }, options);
  }

  /** Lists its commands, oldest first, without output. */
  async execs(options: CallOptions = {}): Promise<Result[]> {
    return (await this.#client.call("exec.list", { session_id: this.id }, options)).execs.map(resultFrom);
  }

  /** Stops the running command, and returns when it is gone. The session continues. */
  cancel(options: CallOptions = {}): Promise<api.ExecCancelResult> {
    return this.#client.call("exec.cancel", { session_id: this.id }, options);
  }

  /** Follows its events. */
  watch(options: FollowOptions = {}): EventStream {
    return this.#client.watch({ ...options, sessionId: this.id });
  }

  /** Ends it, and returns when none of its processes is left. Not an error if it has already ended. */
  async destroy(options: { force?: boolean } & CallOptions = {}): Promise<void> {
    const { force, ...call } = options;
    await this.#client.destroySession({ session_id: this.id, ...(force === undefined ? {} : { force }) }, call);
  }

  /** Destroys the session if this handle created it. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.created !== undefined) {
      await this.destroy();
    }
  }
}

/** A handle to a running or finished command. */
export class Exec {
  readonly id: string;
  readonly #client: Client;

  /** @internal */
  constructor(client: Client, id: string) {
    this.#client = client;
    this.id = id;
  }

  /** Streams its output from an offset: existing output, new output, and its exit. */
  stream(options: { from?: number } & FollowOptions = {}): ExecStream {
    const { from = 0, ...follow } = options;
    return this.#client.follow({ execId: this.id, from }, follow);
  }

  /** Reads a part of its output by polling. */
  output(params: Camel<Omit<api.ExecOutputParams, "exec_id">> = {}, options: CallOptions = {}): Promise<api.ExecOutputResult> {
    return this.#client.call("exec.output", { ...toWire(params), exec_id: this.id }, options);
  }

  /**
   * Writes to its stdin, which `stdinOpen` keeps open, and closes it with
   * `eof`. On a terminal, `keys` are typed after the data, by name, and `paste`
   * sends it as a paste. With the same `key` a repeated call writes only once;
   * `key` is random if neither it nor `at` is given; see `exec.input` in the
   * contract.
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

  /** Sends a signal, given by name or number, to its processes. */
  signal(signal: string | number, options: CallOptions = {}): Promise<api.ExecSignalResult> {
    return this.#client.call("exec.signal", { exec_id: this.id, signal: String(signal) }, options);
  }

  /** Stops it, and returns when it is gone. */
  cancel(options: CallOptions = {}): Promise<api.ExecCancelResult> {
    return this.#client.call("exec.cancel", { exec_id: this.id }, options);
  }

  /** Returns its state and outcome, without its output. */
  async info(options: CallOptions = {}): Promise<Result> {
    return resultFrom(await this.#client.call("exec.info", { exec_id: this.id }, options));
  }
}
