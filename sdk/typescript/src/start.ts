// Starts the user's daemon, as `trl mcp` does.

import { spawn } from "node:child_process";
import { homedir } from "node:os";
import { resolve } from "node:path";

import { socketPath, type Address } from "./address.js";
import { NoDaemonError } from "./errors.js";
import { abortable } from "./transport.js";

/**
 * Starts a daemon that outlives this program, and returns when it answers:
 * `trl serve --detach` waits for that, and a daemon that another program
 * started meanwhile will do. It keeps the secrets of this program's environment
 * from the daemon, whose commands could read them. `program` is the path of
 * `trl`, if it is a string. The address must be that of a Unix socket.
 */
export async function startDaemon(program: boolean | string, { where, given }: Address, signal?: AbortSignal): Promise<void> {
  const path = socketPath(where)!;
  const { TRL_BINARY: named, ...env } = process.env;
  const trl = typeof program === "string" ? program : named || "trl";
  const args = ["serve", "--detach", ...(given ? ["--socket", resolve(path)] : [])];
  const failure = (why: string, hint: string, cause?: unknown) => new NoDaemonError(`unix:${path}`, { why, hint, cause });
  // Not in the current directory, which the daemon would keep in use.
  const child = spawn(trl, args, { cwd: homedir(), env, stdio: ["ignore", "ignore", "pipe"] });
  let printed = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (printed += text));
  const ended = new Promise<void>((done, fail) => {
    child.on("error", (error) => fail(failure(`can't run ${trl} to start one`, 'install TRL, or name its program: connect({ start: "/path/to/trl" })', error)));
    child.on("close", (status) => (status === 0 ? done() : fail(failure(said(printed, "trl: ") ?? "`trl serve --detach` failed", said(printed, "hint: ") ?? "run `trl doctor`"))));
  });
  await abortable(ended, signal);
}

/** The first line with a prefix, without it. */
function said(printed: string, prefix: string): string | undefined {
  const line = printed.split("\n").find((line) => line.startsWith(prefix));
  return line?.slice(prefix.length);
}
