// Reads the output of a command through a proxy that cuts connections, and checks
// that every byte arrives once and in order, and the exit once.
//
//   node test/exactly-once.mjs --transport unix|http --bytes 268435456 --cuts 200 [--seed 1]

import { createHash } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { connect } from "../dist/index.js";
import { bytes as generate } from "./bytes.mjs";
import { sdk, startDaemon } from "./daemon.mjs";
import { startHttpDaemon } from "./http-daemon.mjs";
import { startProxy } from "./proxy.mjs";

/** Runs the check and returns statistics. Throws at the first wrong byte. */
export async function exactlyOnce({ transport, bytes, cuts, seed = 1 }) {
  const http = transport === "http" ? await startHttpDaemon() : undefined;
  const daemon = http?.daemon ?? (await startDaemon());
  // A random byte takes 4/3 bytes in base64. Somewhat less than an equal share for
  // each cut, so that all cuts come before the end.
  const meanBytes = Math.floor((bytes * 4) / 3 / cuts / 1.3);
  const path = join(daemon.dir, "run", "proxy.sock");
  const proxy = await startProxy({
    listen: http ? { host: "127.0.0.1", port: 0 } : path,
    target: http ? { host: "127.0.0.1", port: http.port } : daemon.socket,
    cuts,
    meanBytes,
    seed,
  });
  // Only the stream goes through the proxy, not the start of the session.
  const direct = await connect(daemon.socket);
  const through = await connect(http ? `http://127.0.0.1:${proxy.address.port}` : path, {
    token: http?.token,
    waitForDaemonMs: 10_000,
  });
  try {
    const session = await direct.session({ shell: "bash" });
    const expected = createHash("sha256");
    for (const piece of generate(seed, bytes)) {
      expected.update(piece);
    }
    const seen = createHash("sha256");
    const counts = { chunks: 0, exits: 0, gaps: 0, bytes: 0 };
    let offset = 0;
    const began = performance.now();
    const command = `"${process.execPath}" "${join(sdk, "test", "bytes.mjs")}" ${seed} ${bytes}`;
    const stream = through.open(session.id).stream(command);
    for await (const chunk of stream) {
      if (counts.exits > 0) {
        throw new Error("a chunk came after the exit");
      }
      if (chunk.offset !== offset) {
        throw new Error(`a chunk begins at ${chunk.offset}, not at ${offset}`);
      }
      counts.chunks++;
      if (chunk.type === "exit") {
        counts.exits++;
        if (!chunk.result.ok) {
          throw new Error(`the command ended with ${chunk.result.exitCode}: ${chunk.result.outcome}`);
        }
      } else if (chunk.type === "gap") {
        counts.gaps++;
      } else {
        seen.update(chunk.data);
        counts.bytes += chunk.data.length;
      }
      offset = chunk.next;
    }
    const seconds = (performance.now() - began) / 1000;
    const commands = (await session.execs()).length;
    await session.destroy();
    return {
      ...counts,
      same: seen.digest("hex") === expected.digest("hex"),
      commands,
      cuts: proxy.cuts,
      stalls: proxy.stalls,
      connections: proxy.connections,
      seconds: Number(seconds.toFixed(2)),
    };
  } finally {
    await through.close();
    await direct.close();
    await proxy.close();
    await daemon.stop();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: { transport: { type: "string", default: "unix" }, bytes: { type: "string" }, cuts: { type: "string" }, seed: { type: "string", default: "1" } },
  });
  const wanted = { transport: values.transport, bytes: Number(values.bytes ?? 256 << 20), cuts: Number(values.cuts ?? 200), seed: Number(values.seed) };
  const seen = await exactlyOnce(wanted);
  console.log(JSON.stringify({ ...wanted, ...seen, cuts: seen.cuts }));
  const good = seen.same && seen.bytes === wanted.bytes && seen.exits === 1 && seen.gaps === 0 && seen.commands === 1 && seen.cuts >= wanted.cuts;
  process.exitCode = good ? 0 : 1;
}
