// Where a daemon is, and by which carrier it is reached.

import { isAbsolute, join } from "node:path";

import type { Carrier } from "./carrier.js";
import { HttpCarrier } from "./http.js";
import { SocketCarrier } from "./socket.js";

/** What of TLS can be set; as of node:tls. */
export interface TLSOptions {
  /** Certificates to trust instead of the system's, as PEM. */
  ca?: string | Uint8Array | Array<string | Uint8Array>;
  /** The certificate of this client and its key, as PEM. */
  cert?: string | Uint8Array;
  key?: string | Uint8Array;
  /** The name that the daemon's certificate must be for; default the host of the address. */
  servername?: string;
}

export interface AddressOptions {
  token?: string;
  tls?: TLSOptions;
  keepAliveMs?: number;
}

/** Long enough not to be noticed, short enough that a dead line costs half a minute. */
const defaultKeepAliveMs = 15_000;

export function carrierFor(address: string | undefined, options: AddressOptions): Carrier {
  const where = address ?? (process.env["TRL_SOCKET"] || defaultSocket());
  const keepAliveMs = options.keepAliveMs ?? defaultKeepAliveMs;
  if (/^https?:\/\//i.test(where)) {
    return new HttpCarrier(new URL(where), options.token ?? process.env["TRL_TOKEN"], options.tls, keepAliveMs);
  }
  const path = where.startsWith("unix:") ? where.slice("unix:".length).replace(/^\/\/(?=\/)/, "") : where;
  if (path === "" || /^[a-z][a-z0-9+.-]*:\/\//i.test(path)) {
    throw new TypeError("the address of a daemon is unix:PATH, a path, http://HOST:PORT or https://HOST:PORT");
  }
  return new SocketCarrier(path, keepAliveMs);
}

/** Where a daemon listens that was not told: the same rule as the daemon's. */
export function defaultSocket(env: NodeJS.ProcessEnv = process.env, root = process.geteuid?.() === 0): string {
  const runtime = env["XDG_RUNTIME_DIR"];
  if (runtime !== undefined && isAbsolute(runtime)) {
    return join(runtime, "trl", "trl.sock");
  }
  const home = env["HOME"];
  return root || !home ? "/run/trl/trl.sock" : join(home, ".local", "state", "trl", "trl.sock");
}
