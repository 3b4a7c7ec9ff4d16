// A proxy that cuts connections: after a random number of bytes of what the
// daemon sends, wherever that is in a line, and sometimes after a silence.

import { once } from "node:events";
import { connect, createServer } from "node:net";

import { random } from "./bytes.mjs";

/**
 * Listens at `listen` (a path, or a port of this host) for `target`. It cuts
 * `cuts` connections, each after up to 2 × `meanBytes`, then none. With
 * `freeze`, it does not cut: it falls silent for good, and lets the client
 * find out.
 */
export async function startProxy({ listen, target, cuts, meanBytes, seed = 1, freeze = false }) {
  const next = random(seed);
  const open = new Set();
  const proxy = { cuts: 0, connections: 0, stalls: 0, address: undefined, close };

  const server = createServer({ pauseOnConnect: true }, (client) => {
    proxy.connections++;
    const daemon = connect(target);
    const end = () => {
      client.destroy();
      daemon.destroy();
      open.delete(end);
    };
    open.add(end);
    for (const socket of [client, daemon]) {
      socket.on("error", end);
      socket.on("close", end);
    }
    client.pipe(daemon);

    if (proxy.cuts >= cuts) {
      daemon.pipe(client);
      return;
    }
    // Some are cut before the answer, or inside it: the request is done then,
    // and nobody has heard of it.
    let left = Math.floor(next() < 0.15 ? next() * 200 : next() * 2 * meanBytes);
    const stallMs = next() < 0.15 ? 20 + next() * 100 : 0;
    let done = false;
    daemon.on("data", (data) => {
      if (done) {
        return;
      }
      if (data.length < left) {
        left -= data.length;
        if (!client.write(data)) {
          daemon.pause();
          client.once("drain", () => daemon.resume());
        }
        return;
      }
      done = true;
      if (proxy.cuts >= cuts) {
        client.write(data);
        daemon.pipe(client);
        return;
      }
      proxy.cuts++;
      const part = data.subarray(0, left);
      if (freeze) {
        client.write(part);
        daemon.pause();
      } else if (stallMs > 0) {
        proxy.stalls++;
        client.write(part);
        daemon.pause();
        setTimeout(end, stallMs);
      } else if (part.length > 0) {
        client.write(part, end); // it is on its way when the line is cut
      } else {
        end();
      }
    });
  });

  server.listen(listen);
  await once(server, "listening");
  proxy.address = server.address();
  return proxy;

  async function close() {
    server.close();
    for (const end of open) {
      end();
    }
    await once(server, "close");
  }
}

/**
 * Cuts `cuts` connections at the moment the daemon answers: the call is done
 * then, and nobody has heard of it. The first answer, that to the ping of
 * connect(), is let through.
 */
export async function startAnswerCutter({ listen, target, cuts }) {
  const open = new Set();
  let first = true;
  const server = createServer((client) => {
    const daemon = connect(target);
    const end = () => {
      client.destroy();
      daemon.destroy();
      open.delete(end);
    };
    open.add(end);
    for (const socket of [client, daemon]) {
      socket.on("error", end);
      socket.on("close", end);
    }
    client.pipe(daemon);
    daemon.on("data", (data) => {
      if (!first && cuts > 0) {
        cuts--;
        end();
        return;
      }
      first = false;
      client.write(data);
    });
  });
  server.listen(listen);
  await once(server, "listening");
  return {
    address: server.address(),
    cutsLeft: () => cuts,
    async close() {
      server.close();
      for (const end of open) {
        end();
      }
      await once(server, "close");
    },
  };
}
