// Addresses of daemons, and the transport for each.

import { isAbsolute, join } from "node:path";

import type { Transport } from "./transport.js";
import { HttpTransport } from "./http.js";
import { SocketTransport } from "./socket.js";

/** TLS settings, as in node:tls. */
export interface TLSOptions {
  /** Certificates to trust instead of the system's, as PEM. */
  ca?: string | Uint8Array | Array<string | Uint8Array>;
  /** The certificate of this client and its key, as PEM. */
  cert?: string | Uint8Array;
  key?: string | Uint8Array;
  /** The name that the daemon's certificate must have; default the host of the address. */
  servername?: string;
}

export interface AddressOptions {
  token?: string;
  tls?: TLSOptions;
  keepAliveMs?: number;
}

/** Long enough to cost nothing, short enough that a dead connection is detected within half a minute. */
const defaultKeepAliveMs = 15_000;

/** Where a daemon is, and whether the caller or $TRL_ADDRESS said so. */
export interface Address {
  where: string;
  given: boolean;
}

/** The address of the caller, or the one that the command line would use without flags. */
export function addressOf(address: string | undefined, env: NodeJS.ProcessEnv = process.env): Address {
  const given = address ?? (env["TRL_ADDRESS"] || undefined);
  return { where: given ?? (env["TRL_SOCKET"] || defaultSocket(env)), given: given !== undefined };
}

const overHttp = /^https?:\/\//i;

/** The path of a Unix socket, or undefined for HTTP. */
export function socketPath(where: string): string | undefined {
  if (overHttp.test(where)) {
    return undefined;
  }
  const path = where.startsWith("unix:") ? where.slice("unix:".length).replace(/^\/\/(?=\/)/, "") : where;
  if (path === "" || /^[a-z][a-z0-9+.-]*:\/\//i.test(path)) {
    throw new TypeError("the address must be unix:PATH, a path, http://HOST:PORT or https://HOST:PORT");
  }
  return path;
}

export function transportFor({ where }: Address, options: AddressOptions): Transport {
  const keepAliveMs = options.keepAliveMs ?? defaultKeepAliveMs;
  const path = socketPath(where);
  if (path === undefined) {
    return new HttpTransport(new URL(where), options.token ?? process.env["TRL_TOKEN"], options.tls, keepAliveMs);
  }
  return new SocketTransport(path, keepAliveMs);
}

/** The default socket of a daemon, by the same rule as the daemon's. */
export function defaultSocket(env: NodeJS.ProcessEnv = process.env, root = process.geteuid?.() === 0): string {
  const runtime = env["XDG_RUNTIME_DIR"];
  if (runtime !== undefined && isAbsolute(runtime)) {
    return join(runtime, "trl", "trl.sock");
  }
  const home = env["HOME"];
  return root || !home ? "/run/trl/trl.sock" : join(home, ".local", "state", "trl", "trl.sock");
}
