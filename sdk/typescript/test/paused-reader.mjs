// A check that holds over every transport.

import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { until } from "./daemon.mjs";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc");

function memoryUse() {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Stops reading a large output until the command is over: the client must not have read ahead. */
export async function checkPausedReader(client) {
  const session = await client.session({ shell: "bash" });
  const size = 96 << 20;
  const stream = session.stream(`head -c ${size} /dev/zero | tr '\\0' a`);
  let seen = (await stream.next()).value.data.length;
  const before = memoryUse();
  await until("the command is over", async () => (await client.exec(stream.execId).info()).state === "exited");
  // Everything has been written. A client that read ahead would hold it now.
  const grown = memoryUse() - before;
  assert.ok(grown < 24 << 20, `holds ${grown} bytes more`);
  for await (const chunk of stream) {
    seen += chunk.data.length;
  }
  assert.equal(seen, size);
  await session.destroy();
}
