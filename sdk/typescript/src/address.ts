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

export function transportFor(address: string | undefined, options: AddressOptions): Transport {
  const where = address ?? (process.env["TRL_SOCKET"] || defaultSocket());
  const keepAliveMs = options.keepAliveMs ?? defaultKeepAliveMs;
  if (/^https?:\/\//i.test(where)) {
    return new HttpTransport(new URL(where), options.token ?? process.env["TRL_TOKEN"], options.tls, keepAliveMs);
  }
  const path = where.startsWith("unix:") ? where.slice("unix:".length).replace(/^\/\/(?=\/)/, "") : where;
  if (path === "" || /^[a-z][a-z0-9+.-]*:\/\//i.test(path)) {
    throw new TypeError("the address must be unix:PATH, a path, http://HOST:PORT or https://HOST:PORT");
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
