// A real daemon that also serves HTTP, with a token for it.

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";

import { connect, isTrlError } from "../dist/index.js";
import { binary, startDaemon, until } from "./daemon.mjs";

/** Returns a free port. */
async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** Starts it, with a token that may run commands. `args` are additional flags. */
export async function startHttpDaemon(args = [], scheme = "http") {
  const port = await freePort();
  let token;
  const daemon = await startDaemon(["--http", `127.0.0.1:${port}`, ...args], (prepared) => (token = makeToken(prepared, "run")));
  return { daemon, port, token, url: `${scheme}://127.0.0.1:${port}` };
}

/** Creates a token with a scope: read, run or admin. */
export function makeToken(daemon, scope) {
  return execFileSync(binary(), ["token", "create", "--scope", scope], { env: daemon.env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
}

/** Waits until a running daemon accepts a new token. */
export async function usable(url, options) {
  await until("the token is good", async () => {
    try {
      await (await connect(url, options)).close();
      return true;
    } catch (error) {
      if (!isTrlError(error, "UNAUTHORIZED")) {
        throw error;
      }
      return false;
    }
  });
}
