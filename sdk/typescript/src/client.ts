// The client and its handles. This file decides what to repeat after a lost
// connection: calls that only read, and calls that the daemon recognises.

import { randomUUID } from "node:crypto";
import { inspect } from "node:util";

import { defaultReconnect, Backoff, isTransient, readOnly, type Transport, type ReconnectPolicy } from "./transport.js";
import { ConnectionLostError, isTrlError, NoDaemonError, ProtocolError, RuntimeUnavailableError, TrlError } from "./errors.js";
import { addressOf, socketPath, transportFor, type TLSOptions } from "./address.js";
import { Exec, type OutputCallbacks, type WaitOptions } from "./exec.js";
import { Files } from "./files.js";
import { input, toWire, type Camel } from "./options.js";
import { waitForPort } from "./port.js";
import { resultFrom, type Result } from "./result.js";
import { startDaemon } from "./start.js";
import { EventStream, ExecStream, type FollowOptions, type WatchOptions } from "./stream.js";
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
  /**
   * Start the user's daemon if there is none, as `trl mcp` does; it stays when
   * this program ends. A string is the path of the program `trl`; otherwise it
   * is $TRL_BINARY, or found in PATH. Only for a Unix socket.
   */
  start?: boolean | string;
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
 * default is $TRL_ADDRESS, $TRL_SOCKET, or the daemon's default socket.
 */
export async function connect(address?: string, options?: ConnectOptions): Promise<Client>;
export async function connect(options: ConnectOptions): Promise<Client>;
export async function connect(first?: string | ConnectOptions, second: ConnectOptions = {}): Promise<Client> {
  const [given, options] = typeof first === "object" ? [undefined, first] : [first, second];
  const address = addressOf(given);
  if (options.start && socketPath(address.where) === undefined) {
    throw new TypeError("start needs a Unix socket: start a daemon elsewhere on its own machine");
  }
  const transport = transportFor(address, options);
  try {
    await greet(transport, options).catch(async (error: unknown) => {
      if (!options.start || !(error instanceof NoDaemonError)) {
        throw error;
      }
      await startDaemon(options.start, address, options.signal);
      await greet(transport, options);
    });
  } catch (error) {
    transport.close();
    throw error;
  }
  return new Client(transport, { ...defaultReconnect, ...options.reconnect });
}

/** Checks that a daemon answers that speaks this version of the protocol. */
async function greet(transport: Transport, options: ConnectOptions): Promise<void> {
  const backoff = new Backoff({ ...defaultReconnect, limitMs: options.waitForDaemonMs ?? 0 });
  for (;;) {
    try {
      const pong = (await transport.call("system.ping", {}, options.signal)) as api.PingResult;
      if (pong.protocol !== protocol) {
        throw new ProtocolError(`the daemon speaks protocol version ${pong.protocol}, but this client speaks version ${protocol}`);
      }
      return;
    } catch (error) {
      if (!isTransient(error)) {
        throw error;
      }
      await backoff.failed(error, options.signal);
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
    let executed = false; // whether an attempt may have been executed
    for (;;) {
      options.signal?.throwIfAborted();
      try {
        return await this.#transport.call(method, params, options.signal);
      } catch (caught) {
        let error = caught;
        const unsent =
          error instanceof NoDaemonError ||
          (error instanceof ConnectionLostError && error.effect === "none") ||
          (error instanceof RuntimeUnavailableError && error.details["sent"] !== "maybe");
        executed ||= !unsent;
        if (executed && !readOnly.has(method) && error instanceof RuntimeUnavailableError && error.details["sent"] === "no") {
          error = error.maybeSent(); // the daemon knows only of the last attempt
        }
        if (!isTransient(error) || !(repeat || unsent)) {
          throw error;
        }
        await backoff.failed(error, options.signal);
      }
    }
  }

  /** @internal Calls for a method whose options are in camel case, and so are they in its errors. */
  async callWithOptions<M extends CallMethod>(method: M, params: api.Methods[M]["params"], options: CallOptions): Promise<api.Methods[M]["result"]> {
    try {
      return await this.call(method, ...([params, options] as ParamsArguments<api.Methods[M]["params"]>));
    } catch (error) {
      throw error instanceof TrlError ? error.withOptionNames() : error;
    }
  }

  /** @internal Calls with a generated key, unless an older daemon does not accept one for the method. */
  async callKeyed<M extends "session.create" | "exec.input">(method: M, params: api.Methods[M]["params"], options: CallOptions): Promise<api.Methods[M]["result"]> {
    if (this.#keyless) {
      return this.callWithOptions(method, params, options);
    }
    try {
      return await this.callWithOptions(method, { ...params, key: randomUUID() }, options);
    } catch (error) {
      if (!isTrlError(error, "INVALID_PARAMS") || error.details["field"] !== "key") {
        throw error;
      }
      this.#keyless = true;
      return this.callWithOptions(method, params, options);
    }
  }

  /** Starts a session. `await using` destroys it at the end of its block. `key` is random if not given. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const { signal, reconnect, key, ...create } = options;
    const params = toWire(create) as api.SessionCreateParams;
    const made =
      key === undefined
        ? await this.callKeyed("session.create", params, { signal, reconnect })
        : await this.callWithOptions("session.create", key === "" ? params : { ...params, key }, { signal, reconnect });
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

  /**
   * Lists sessions, oldest first. Every given field must match. Those in places
   * out of reach are missing; `unreachable` of `call("session.list", {})` names
   * the places.
   */
  async sessions(filter: api.SessionListParams = {}, options: CallOptions = {}): Promise<api.Session[]> {
    return (await this.call("session.list", filter, options)).sessions;
  }

  /** Follows the events of one session, or of all. */
  watch(options: { sessionId?: string } & WatchOptions = {}): EventStream {
    const { sessionId, snapshot, execs, ...follow } = options;
    const params = toWire({ sessionId, snapshot, execs }) as api.SessionWatchParams;
    return new EventStream(this.#transport, this.#reconnect, params, follow);
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

  /** Lists the places where sessions can run besides the daemon's machine. */
  async places(options: CallOptions = {}): Promise<api.Place[]> {
    return (await this.call("place.list", {}, options)).places;
  }

  /** Adds a place such as `docker:web` or `ssh:host` and connects to it. */
  addPlace(runtime: string, options: CallOptions = {}): Promise<api.Place> {
    return this.call("place.add", { runtime }, options);
  }

  /** Connects to a place now. One that can't be reached is returned too, with the reason. */
  checkPlace(runtime: string, options: CallOptions = {}): Promise<api.Place> {
    return this.call("place.check", { runtime }, options);
  }

  /**
   * Removes a place and everything TRL put there. `force` ends its sessions
   * first. `forget` does nothing there: for a place that is gone for good.
   */
  removePlace(runtime: string, options: { force?: boolean; forget?: boolean } & CallOptions = {}): Promise<api.PlaceRemoveResult> {
    const { force, forget, ...call } = options;
    return this.call("place.remove", { runtime, ...toWire({ force, forget }) }, call);
  }

  /** Replaces the TRL of a place with the daemon's version. The sessions in it continue. */
  upgradePlace(runtime: string, options: CallOptions = {}): Promise<api.Place> {
    return this.call("place.upgrade", { runtime }, options);
  }

  /** Closes the connections. Pending calls and streams fail; sessions and commands continue. */
  async close(): Promise<void> {
    this.#transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  [inspect.custom](): string {
    return `Client(${this.address})`;
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
export type RunOptions = Camel<Omit<api.ExecRunParams, "session_id" | "command" | "stdin" | "stdin_encoding">> & Stdin & OutputCallbacks & CallOptions;

/** How to start a command: as to run it, but it is answered at once. */
export type StartOptions = Omit<RunOptions, "yieldMs" | "yieldOnInput">;

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
   * command that fails is a result, not an error: see `result.check()`. After a
   * lost connection the client waits for the same command again, and never runs
   * it twice. `onStdout` and `onStderr` receive its output as it is written.
   */
  async run(command: string, options: RunOptions = {}): Promise<Result> {
    const { signal, reconnect, onStdout, onStderr, yieldMs, yieldOnInput, ...rest } = options;
    const early = toWire({ yieldMs, yieldOnInput });
    if (onStdout === undefined && onStderr === undefined) {
      return resultFrom(await this.#client.callWithOptions("exec.run", { ...this.#params(command, rest), ...early }, { signal, reconnect }));
    }
    const exec = await this.start(command, { ...rest, signal, reconnect, onStdout, onStderr });
    return exec.answered(early, { signal, reconnect });
  }

  /**
   * Starts a command, and returns a handle to it once the daemon has accepted
   * it. The session is busy until the command ends: start a server that other
   * commands of the session need with `&`.
   */
  async start(command: string, options: StartOptions = {}): Promise<Exec> {
    const { signal, reconnect, onStdout, onStderr, ...rest } = options;
    const request = this.#params(command, rest);
    const { exec_id } = await this.#client.callWithOptions("exec.run", { ...request, yield_ms: 1, max_output_bytes: 0 }, { signal, reconnect });
    return new Exec(this.#client, exec_id, request, { onStdout, onStderr });
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

  /** Its files. */
  get files(): Files {
    return new Files(this.#client, this.id);
  }

  /**
   * Waits until a socket listens on a TCP port of the session's machine, and
   * makes no connection to it. `host` is an IP address that it must listen on,
   * or "localhost"; default any. Throws a CallTimeoutError after `timeoutMs`,
   * default 30 s.
   */
  waitForPort(port: number, options: { host?: string } & WaitOptions = {}): Promise<void> {
    return waitForPort(this.#client, this.id, port, options);
  }

  /** Returns what its terminal shows. */
  screen(params: Omit<api.SessionScreenParams, "session_id"> = {}, options: CallOptions = {}): Promise<api.SessionScreenResult> {
    return this.#client.call("session.screen", { ...params, session_id: this.id }, options);
  }

  /** Changes the size of its terminal. `lease` proves that this client has the keyboard. */
  resize(rows: number, cols: number, options: { lease?: string } & CallOptions = {}): Promise<api.SessionResizeResult> {
    const { lease, ...call } = options;
    return this.#client.call("session.resize", { ...toWire({ lease }), session_id: this.id, rows, cols }, call);
  }

  /** Takes its keyboard, or renews the lease of it; see `session.hold` in the contract. */
  hold(holder: string, options: Camel<Omit<api.SessionHoldParams, "session_id" | "holder">> & CallOptions = {}): Promise<api.SessionHoldResult> {
    const { signal, reconnect, ...rest } = options;
    return this.#client.callWithOptions("session.hold", { ...toWire(rest), session_id: this.id, holder }, { signal, reconnect });
  }

  /** Releases its keyboard. */
  release(lease: string, options: CallOptions = {}): Promise<api.SessionReleaseResult> {
    return this.#client.call("session.release", { session_id: this.id, lease }, options);
  }

  /** Follows its events. */
  watch(options: WatchOptions = {}): EventStream {
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

  [inspect.custom](): string {
    const name = this.created?.name;
    return `Session(${this.id}${name === undefined ? "" : ` ${JSON.stringify(name)}`})`;
  }
}
