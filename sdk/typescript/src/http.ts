// The contract over HTTP: a request is a POST to /rpc, a stream of chunks is
// Server-Sent Events, and session events come over a WebSocket.

import * as http from "node:http";
import * as https from "node:https";

import type { Duplex } from "node:stream";

import type { TLSOptions } from "./address.js";
import { Feed, parse, readOnly, resultOf, type Transport, type Message } from "./transport.js";
import { Connection, follow } from "./connection.js";
import { ClosedError, ConnectionLostError, ForbiddenError, NoDaemonError, ProtocolError, UnauthorizedError } from "./errors.js";
import { LineSplitter } from "./lines.js";
import type { Chunk, ExecResult, ExecStreamParams, ExecStreamResult, SessionEvent, SessionWatchParams } from "./types.js";
import { handshake, WebSocketLine } from "./websocket.js";

/**
 * Idle connections are closed after this time. It is less than any server keeps
 * them: a call must not be sent into a connection that is being closed, since
 * then it is unknown whether it arrived.
 */
const idleMs = 4_000;

/** The longest timer; see setTimeout. */
const maxTimerMs = 2 ** 31 - 1;

/** Error codes that mean that nothing listens. */
const absent = new Set(["ECONNREFUSED", "ENOTFOUND"]);

/**
 * A stream that is silent for longer is considered lost. The daemon sends
 * something every 15 s, so two keep-alives in a row are then missing.
 */
const silenceMs = 40_000;

/** Statuses of a proxy that cannot reach the daemon. */
const gateway = new Set([502, 503, 504]);

/** The head of an answer, and the socket if the connection was upgraded. */
interface Head {
  response: http.IncomingMessage;
  /** Ends the request when no data arrives for too long. */
  limit: NodeJS.Timeout | undefined;
  upgraded?: { socket: Duplex; head: Buffer };
}

export class HttpTransport implements Transport {
  readonly address: string;
  readonly #base: URL;
  readonly #token: string | undefined;
  readonly #tls: TLSOptions | undefined;
  readonly #keepAliveMs: number;
  readonly #agent: http.Agent;
  readonly #open = new Set<http.ClientRequest>();
  readonly #sockets = new Set<Connection>();
  #lastId = 0;
  #closed = false;

  constructor(base: URL, token: string | undefined, tls: TLSOptions | undefined, keepAliveMs: number) {
    this.address = base.origin;
    this.#base = base;
    this.#token = token;
    this.#tls = tls;
    this.#keepAliveMs = keepAliveMs;
    const settings = { keepAlive: true, timeout: idleMs };
    this.#agent = base.protocol === "https:" ? new https.Agent(settings) : new http.Agent(settings);
  }

  async call(method: string, params: Record<string, unknown>, signal?: AbortSignal): Promise<unknown> {
    const asked = Number(params["wait_ms"] ?? params["yield_ms"] ?? 0); // how long the daemon may take to answer
    if (method === "exec.run" && params["key"] && asked === 0 && this.#keepAliveMs > 0) {
      return this.#run(params, signal);
    }
    const bounded = readOnly.has(method) || (method === "exec.run" && asked > 0);
    return this.#post(method, params, bounded ? asked : Infinity, signal);
  }

  /**
   * Waits for a command with repeated requests, which its key makes safe. A
   * request without an answer looks like a dead connection, and
   * proxies drop it after a minute or less.
   */
  async #run(params: Record<string, unknown>, signal?: AbortSignal): Promise<unknown> {
    const yieldMs = this.#keepAliveMs;
    for (;;) {
      const result = (await this.#post("exec.run", { ...params, yield_ms: yieldMs }, yieldMs, signal)) as ExecResult;
      if (result.state === "exited") {
        return result;
      }
    }
  }

  /** Sends one request, which the daemon answers within `takesMs`. */
  async #post(method: string, params: unknown, takesMs: number, signal?: AbortSignal): Promise<unknown> {
    const id = ++this.#lastId;
    const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    const headers = { "content-type": "application/json", "content-length": body.length };
    return this.#answer(await this.#request("POST", "rpc", headers, body, takesMs, signal), signal);
  }

  async start(params: ExecStreamParams, signal?: AbortSignal): Promise<{ execId: string }> {
    const result = (await this.#post("exec.stream", params, 0, signal)) as ExecStreamResult;
    return { execId: result.exec_id };
  }

  async attach(execId: string, from: number, signal?: AbortSignal): Promise<Feed<Chunk>> {
    const headers: http.OutgoingHttpHeaders = { accept: "text/event-stream", "cache-control": "no-store" };
    if (from > 0) {
      headers["last-event-id"] = String(from);
    }
    const path = `v1/execs/${encodeURIComponent(execId)}/stream`;
    const head = await this.#request("GET", path, headers, undefined, 0, signal);
    const { response } = head;
    if (response.statusCode !== 200 || !response.headers["content-type"]?.startsWith("text/event-stream")) {
      await this.#answer(head, signal);
      throw new ProtocolError(`${this.address} did not open a stream: is it a TRL daemon?`);
    }
    clearTimeout(head.limit); // events have no time limit
    return this.#events(response);
  }

  async watch(params: SessionWatchParams, signal?: AbortSignal): Promise<Feed<SessionEvent>> {
    const connect = async (ended: (error: unknown) => void) => {
      const { headers, accept } = handshake();
      const answered = await this.#request("GET", "ws", headers, undefined, 0, signal);
      const { response, upgraded } = answered;
      if (upgraded === undefined) {
        await this.#answer(answered, signal);
      }
      if (upgraded === undefined || response.headers["sec-websocket-accept"] !== accept) {
        upgraded?.socket.destroy();
        throw new ProtocolError(`${this.address} did not open a WebSocket: is it a TRL daemon?`);
      }
      const line = new WebSocketLine(upgraded.socket, upgraded.head);
      const connection = new Connection(line, this.address, this.#keepAliveMs, (error) => {
        this.#sockets.delete(connection);
        ended(error);
      });
      this.#sockets.add(connection);
      if (this.#closed) {
        connection.destroy(new ClosedError());
      }
      return connection;
    };
    return (await follow<unknown, SessionEvent>(connect, "session.watch", params, signal)).feed;
  }

  /**
   * Sends a request, and returns when the head of the answer has arrived, which
   * takes the daemon at most `takesMs`. A stream has its own connection (no
   * agent), which it may leave unread.
   */
  #request(method: string, path: string, headers: http.OutgoingHttpHeaders, body: Buffer | undefined, takesMs: number, signal?: AbortSignal): Promise<Head> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      if (this.#closed) {
        throw new ClosedError();
      }
      const tls = this.#base.protocol === "https:";
      const url = new URL(this.#base);
      url.pathname = `${url.pathname.replace(/\/$/, "")}/${path}`;
      const options: https.RequestOptions = { method, headers: { ...headers, ...this.#authorization() }, agent: body === undefined ? false : this.#agent };
      const request = tls ? https.request(url, { ...options, ...(this.#tls as https.RequestOptions) }) : http.request(url, options);
      this.#open.add(request);

      let reached = false; // the daemon may have received it
      request.on("socket", (socket) => {
        if (socket.connecting) {
          socket.once(tls ? "secureConnect" : "connect", () => (reached = true));
          socket.setNoDelay(true);
          // A call may wait long for its answer: this lets the system detect a
          // peer that is gone.
          socket.setKeepAlive(true, this.#keepAliveMs);
        } else {
          reached = true;
        }
      });
      // Ends the request in any state, also while the answer is being read.
      const abort = () => request.destroy(signal!.reason instanceof Error ? signal!.reason : new Error("aborted"));
      signal?.addEventListener("abort", abort, { once: true });
      const silent = () => request.destroy(Object.assign(new Error("no answer in time"), { code: "ETIMEDOUT" }));
      const limitMs = this.#keepAliveMs > 0 ? takesMs + 2 * this.#keepAliveMs : Infinity;
      const limit = limitMs <= maxTimerMs ? setTimeout(silent, limitMs) : undefined;
      request.on("close", () => {
        clearTimeout(limit);
        this.#open.delete(request);
        signal?.removeEventListener("abort", abort);
      });
      request.on("error", (error) => reject(signal?.aborted ? signal.reason : this.#lost(error, reached)));
      request.on("response", (response) => resolve({ response, limit }));
      request.on("upgrade", (response, socket, head) => {
        this.#open.delete(request); // the WebSocket owns it now
        signal?.removeEventListener("abort", abort);
        clearTimeout(limit);
        resolve({ response, limit, upgraded: { socket, head } });
      });
      request.end(body);
    });
  }

  #authorization(): http.OutgoingHttpHeaders {
    return this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` };
  }

  #lost(error: NodeJS.ErrnoException, reached: boolean): Error {
    if (this.#closed) {
      return new ClosedError();
    }
    const code = error.code ?? "";
    if (!reached && absent.has(code)) {
      return new NoDaemonError(this.address, { cause: error });
    }
    // Error codes of the system are one word. Others are errors of HTTP or TLS,
    // which a retry does not fix.
    if (/^E[A-Z0-9]+$/.test(code)) {
      return new ConnectionLostError(`the connection to ${this.address} has ended`, reached ? "unknown" : "none", { cause: error, silent: code === "ETIMEDOUT" });
    }
    return new ProtocolError(`${this.address}: ${error.message}`, error);
  }

  /** Reads a complete answer. */
  async #answer({ response, limit }: Head, signal?: AbortSignal): Promise<unknown> {
    const text = await new Promise<string>((resolve, reject) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => {
        parts.push(part);
        limit?.refresh();
      });
      response.on("end", () => resolve(Buffer.concat(parts).toString("utf8")));
      response.on("error", (error) => reject(signal?.aborted ? signal.reason : this.#lost(error, true)));
    });
    const status = response.statusCode ?? 0;
    let message: Message;
    try {
      message = parse(text);
    } catch (error) {
      throw this.#refusal(status, error);
    }
    return resultOf(message);
  }

  /** Returns the error for an answer that is not JSON-RPC, or not from the daemon. */
  #refusal(status: number, cause: unknown): Error {
    if (gateway.has(status)) {
      return new ConnectionLostError(`${this.address} cannot reach the daemon (HTTP ${status})`, "unknown", { cause });
    }
    switch (status) {
      case 401:
        return new UnauthorizedError("UNAUTHORIZED", "the daemon does not accept the token", "create one with `trl token create`, and pass it to connect()");
      case 403:
        return new ForbiddenError("FORBIDDEN", "the token does not allow this");
      default:
        return new ProtocolError(`${this.address} answered HTTP ${status} without JSON-RPC: is it a TRL daemon?`, cause);
    }
  }

  /** Reads Server-Sent Events. An incomplete event is dropped: it is sent again. */
  #events(response: http.IncomingMessage): Feed<Chunk> {
    const feed = new Feed<Chunk>(response);
    const lines = new LineSplitter();
    let data: string | undefined;
    let bytes = 0;
    const line = (text: string, length: number) => {
      if (text.endsWith("\r")) {
        text = text.slice(0, -1);
      }
      if (text === "") {
        if (data !== undefined) {
          feed.push(JSON.parse(data) as Chunk, bytes);
        }
        data = undefined;
        bytes = 0;
      } else if (text.startsWith("data:")) {
        const value = text.slice(text.charCodeAt(5) === 0x20 ? 6 : 5);
        data = data === undefined ? value : `${data}\n${value}`;
        bytes += length;
      }
    };
    const watchdog = setInterval(() => {
      if (!response.isPaused() && this.#keepAliveMs > 0 && performance.now() - heardAt > Math.max(silenceMs, 2 * this.#keepAliveMs)) {
        feed.close(new ConnectionLostError(`the stream of ${this.address} is silent`, "unknown", { silent: true }));
      }
    }, silenceMs / 8).unref();
    let heardAt = performance.now();
    response.on("resume", () => (heardAt = performance.now()));
    response.on("data", (part: Buffer) => {
      heardAt = performance.now();
      try {
        lines.push(part, line);
      } catch (error) {
        feed.close(new ProtocolError("the daemon sent an event that is not JSON", error));
      }
    });
    response.on("error", (error) => feed.end(this.#lost(error, true)));
    response.on("close", () => {
      clearInterval(watchdog);
      feed.end(this.#closed ? new ClosedError() : new ConnectionLostError(`the stream of ${this.address} has ended`, "unknown"));
    });
    return feed;
  }

  close(): void {
    this.#closed = true;
    for (const request of this.#open) {
      request.destroy();
    }
    for (const socket of this.#sockets) {
      socket.destroy(new ClosedError());
    }
    this.#agent.destroy();
  }
}
