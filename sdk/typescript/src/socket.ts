// The contract over a Unix socket.

import { createConnection, type Socket } from "node:net";

import { abortable, type Transport, type Feed } from "./transport.js";
import { Connection, follow } from "./connection.js";
import { ClosedError, ConnectionLostError, ForbiddenError, NoDaemonError } from "./errors.js";
import { trustSocket } from "./trust.js";
import type { Chunk, ExecAttachResult, ExecStreamParams, ExecStreamResult, SessionEvent, SessionWatchParams } from "./types.js";

/** Error codes that mean that there is no socket, or that nothing listens on it. */
const absent = new Set(["ENOENT", "ECONNREFUSED"]);

export class SocketTransport implements Transport {
  readonly address: string;
  readonly #path: string;
  readonly #keepAliveMs: number;
  // All calls share one connection; each stream has its own, so that an unread
  // stream delays nothing else.
  #shared: Promise<Connection> | undefined;
  readonly #open = new Set<Connection>();
  #closed = false;

  constructor(path: string, keepAliveMs: number) {
    this.address = `unix:${path}`;
    this.#path = path;
    this.#keepAliveMs = keepAliveMs;
  }

  async call(method: string, params: unknown, signal?: AbortSignal): Promise<unknown> {
    let shared = this.#shared;
    if (shared === undefined) {
      shared = this.#connect(() => {
        if (this.#shared === shared) {
          this.#shared = undefined;
        }
      });
      this.#shared = shared;
    }
    const connection = await abortable(shared, signal);
    return connection.call(method, params, signal);
  }

  async start(params: ExecStreamParams, signal?: AbortSignal): Promise<{ execId: string; feed: Feed<Chunk> }> {
    const { result, feed } = await this.#follow<ExecStreamResult, Chunk>("exec.stream", params, signal);
    return { execId: result.exec_id, feed };
  }

  async attach(execId: string, from: number, signal?: AbortSignal): Promise<Feed<Chunk>> {
    return (await this.#follow<ExecAttachResult, Chunk>("exec.attach", { exec_id: execId, from }, signal)).feed;
  }

  async watch(params: SessionWatchParams, signal?: AbortSignal): Promise<Feed<SessionEvent>> {
    return (await this.#follow<unknown, SessionEvent>("session.watch", params, signal)).feed;
  }

  #follow<R, T>(method: string, params: unknown, signal?: AbortSignal): Promise<{ result: R; feed: Feed<T> }> {
    return follow<R, T>((ended) => this.#connect(ended), method, params, signal);
  }

  async #connect(ended: (error: unknown) => void): Promise<Connection> {
    if (this.#closed) {
      throw new ClosedError();
    }
    let connection: Connection | undefined;
    let early: { error: unknown } | undefined;
    const end = (error: unknown) => {
      early ??= { error };
      if (connection !== undefined) {
        this.#open.delete(connection);
      }
      ended(error);
    };
    try {
      connection = new Connection(await dial(this.#path, this.address), this.address, this.#keepAliveMs, end);
    } catch (error) {
      end(error);
      throw error;
    }
    if (early === undefined) {
      this.#open.add(connection);
    }
    if (this.#closed) {
      connection.destroy(new ClosedError());
    }
    return connection;
  }

  close(): void {
    this.#closed = true;
    for (const connection of this.#open) {
      connection.destroy(new ClosedError());
    }
  }
}

async function dial(path: string, address: string): Promise<Socket> {
  const failure = (error: NodeJS.ErrnoException) =>
    absent.has(error.code ?? "") ? new NoDaemonError(address, { cause: error }) : new ConnectionLostError(`can't connect to ${address}`, "none", { cause: error });
  try {
    await trustSocket(path);
  } catch (error) {
    throw error instanceof ForbiddenError ? error : failure(error as NodeJS.ErrnoException);
  }
  return new Promise((resolve, reject) => {
    const socket = createConnection({ path });
    const fail = (error: NodeJS.ErrnoException) => reject(failure(error));
    socket.once("error", fail);
    socket.once("connect", () => {
      socket.off("error", fail);
      resolve(socket);
    });
  });
}
