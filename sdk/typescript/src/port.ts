// Waits for a server on the session's machine.

import { isIPv4, isIPv6 } from "node:net";

import type { Client } from "./client.js";
import { CallTimeoutError, ExecEndedError } from "./errors.js";
import type { WaitOptions } from "./exec.js";
import { startBeside } from "./program.js";
import * as scripts from "./scripts.js";

const defaultTimeoutMs = 30_000;

/** Waits until a socket of the session's machine listens on a TCP port. */
export async function waitForPort(client: Client, sessionId: string, port: number, options: { host?: string } & WaitOptions): Promise<void> {
  const { host, timeoutMs = defaultTimeoutMs, ...call } = options;
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    throw new RangeError("a port is a number from 1 to 65535");
  }
  const args = [port.toString(16).toUpperCase().padStart(4, "0"), ...listeners(host)];
  const session = await client.call("session.info", { session_id: sessionId }, call);
  const program = await startBeside(client, session, "port", scripts.port, args, { ...call, timeoutMs: Math.max(1, timeoutMs) });
  try {
    for await (const _ of program.output());
  } finally {
    await program.end();
  }
  const { result } = program;
  if (result?.timedOut) {
    throw new CallTimeoutError(`nothing listens on port ${port} within ${timeoutMs} ms`);
  }
  if (result !== undefined && !result.ok) {
    throw new ExecEndedError(`waiting for port ${port} has ended`, result);
  }
}

/** The addresses of sockets that a connection to a host reaches, as in /proc/net/tcp; none means any. */
export function listeners(host: string | undefined): string[] {
  if (host === undefined) {
    return [];
  }
  const named = (host === "localhost" ? ["127.0.0.1", "::1"] : [host]).map(bytesOf);
  const mapped = named.filter((address) => address.length === 4).map((address) => [...Array<number>(10).fill(0), 0xff, 0xff, ...address]);
  const wildcards = [4, 16].map((size) => Array<number>(size).fill(0));
  return [...wildcards, ...named, ...mapped].map(kernelForm);
}

function bytesOf(host: string): number[] {
  if (isIPv4(host)) {
    return host.split(".").map(Number);
  }
  if (!isIPv6(host) || host.includes("%") || host.includes(".")) {
    throw new TypeError('host must be an IP address or "localhost"');
  }
  const [head = "", tail] = host.split("::");
  const words = (text: string) => (text === "" ? [] : text.split(":").map((word) => parseInt(word, 16)));
  const [before, after] = [words(head), words(tail ?? "")];
  const all = tail === undefined ? before : [...before, ...Array<number>(8 - before.length - after.length).fill(0), ...after];
  return all.flatMap((word) => [word >> 8, word & 0xff]);
}

/** An address as the kernel of a little-endian machine writes it: by words of four bytes. */
function kernelForm(address: number[]): string {
  let text = "";
  for (let at = 0; at < address.length; at += 4) {
    text += Buffer.from(address.slice(at, at + 4).reverse()).toString("hex").toUpperCase();
  }
  return text;
}
