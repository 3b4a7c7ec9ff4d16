// A private real daemon for a test file.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { connect } from "../dist/index.js";

export const sdk = dirname(dirname(fileURLToPath(import.meta.url)));
const repository = dirname(dirname(sdk));

// A test that is interrupted leaves no daemon behind: each one is stopped, and
// ends its sessions.
const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGTERM")));
process.on("SIGTERM", () => process.exit(143));

let built;

/** Returns the binary: $TRL_BINARY, or one built from this tree, once per process. */
export function binary() {
  if (process.env.TRL_BINARY) {
    return process.env.TRL_BINARY;
  }
  if (built === undefined) {
    const dir = mkdtempSync(join(tmpdir(), "sdk-bin-"));
    process.on("exit", () => rmSync(dir, { recursive: true, force: true }));
    built = join(dir, "trl");
    execFileSync("go", ["build", "-o", built, "./cmd/trl"], { cwd: repository, env: { ...process.env, CGO_ENABLED: "0" }, stdio: "inherit" });
  }
  return built;
}

/** Returns the pids of the daemon and the cleaner of a holder. */
function keepers(holder) {
  return readdirSync(`/proc/${holder}/task`)
    .flatMap((thread) => readFileSync(`/proc/${holder}/task/${thread}/children`, "utf8").split(" "))
    .filter((pid) => pid !== "" && /\0be-(daemon|cleaner)\0/.test(readFileSync(`/proc/${pid}/cmdline`, "utf8")))
    .map(Number);
}

/**
 * Starts a daemon in a private directory, which is removed with it. `args` follow
 * `trl serve --socket PATH`; `prepare` is called before.
 */
export async function startDaemon(args = [], prepare = () => {}) {
  const dir = mkdtempSync(join(tmpdir(), "sdk-"));
  const env = {
    PATH: process.env.PATH,
    HOME: join(dir, "home"),
    TMPDIR: join(dir, "tmp"),
    XDG_RUNTIME_DIR: join(dir, "run"),
    TRL_TOKEN_FILE: join(dir, "tokens.json"),
  };
  for (const sub of ["home", "tmp", "run", "run/trl"]) {
    mkdirSync(join(dir, sub), { mode: 0o700 });
  }
  const socket = join(dir, "run", "trl", "trl.sock");
  let child;
  let log = "";
  const alive = () => child.exitCode === null && child.signalCode === null;
  const daemon = {
    dir,
    env,
    socket,
    async start() {
      const started = spawn(binary(), ["serve", "--socket", socket, ...args], { env, stdio: ["ignore", "ignore", "pipe"] });
      child = started;
      running.add(started);
      started.once("exit", () => running.delete(started));
      child.stderr.on("data", (data) => (log += data));
      const gone = once(child, "exit").then(([code]) => {
        throw new Error(`the daemon ended with ${code}: ${log}`);
      });
      gone.catch(() => {}); // later it exits when it is stopped
      const ready = connect(socket, { waitForDaemonMs: 60_000 }).then((client) => client.close());
      ready.catch(() => {}); // reported by gone, if that is first
      await Promise.race([ready, gone]);
    },
    /** Kills it as a crash of the machine would, together with the processes that would restart it or clean up, and waits for its end. */
    async kill() {
      if (alive()) {
        const exit = once(child, "exit");
        // A daemon that sees its holder die tells its clients: all are stopped before the first is killed, and the
        // holder is stopped before its children are listed, since it starts new ones.
        child.kill("SIGSTOP");
        const others = keepers(child.pid);
        others.forEach((pid) => process.kill(pid, "SIGSTOP"));
        [...others, child.pid].forEach((pid) => process.kill(pid, "SIGKILL"));
        await exit;
      }
    },
    async stop() {
      if (alive()) {
        const exit = once(child, "exit");
        child.kill("SIGTERM");
        await exit;
      }
      rmSync(dir, { recursive: true, force: true });
    },
  };
  try {
    prepare(daemon);
    await daemon.start();
  } catch (error) {
    rmSync(dir, { recursive: true, force: true });
    throw error;
  }
  return daemon;
}

/** Polls for a condition. */
export async function until(what, condition, patienceMs = 60_000) {
  const end = performance.now() + patienceMs;
  while (!(await condition())) {
    if (performance.now() > end) {
      throw new Error(`${what}: not within ${patienceMs} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
