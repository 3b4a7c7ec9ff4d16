// A proxy that cuts connections after a random number of bytes from the daemon,
// anywhere in a line, and sometimes after a pause.

import { once } from "node:events";
import { connect, createServer } from "node:net";

import { random } from "./bytes.mjs";

/** Connects a client to `target` and forwards what it sends. `end`, also in `open`, cuts the connection. */
function relay(client, target, open) {
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
  return { daemon, end };
}

async function closeServer(server, open) {
  server.close();
  for (const end of open) {
    end();
  }
  await once(server, "close");
}

/**
 * Listens at `listen` (a path, or a port of this host) for `target`. It cuts
 * `cuts` connections, each after up to 2 × `meanBytes`, then none. With
 * `freeze`, it does not cut but stops forwarding, which the client must detect.
 */
export async function startProxy({ listen, target, cuts, meanBytes, seed = 1, freeze = false }) {
  const next = random(seed);
  const open = new Set();
  const proxy = { cuts: 0, connections: 0, stalls: 0, address: undefined, close: () => closeServer(server, open) };

  const server = createServer({ pauseOnConnect: true }, (client) => {
    proxy.connections++;
    const { daemon, end } = relay(client, target, open);

    if (proxy.cuts >= cuts) {
      daemon.pipe(client);
      return;
    }
    // Some are cut before or inside the answer: then the request was executed, but
    // its answer is lost.
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
        client.write(part, end); // sent before the connection is cut
      } else {
        end();
      }
    });
  });

  server.listen(listen);
  await once(server, "listening");
  proxy.address = server.address();
  return proxy;
}

/**
 * Cuts `cuts` connections when the daemon answers: the call was executed, but its
 * answer is lost. The first answer, to the ping of connect(), is passed on.
 */
export async function startAnswerCutter({ listen, target, cuts }) {
  const open = new Set();
  let first = true;
  const server = createServer((client) => {
    const { daemon, end } = relay(client, target, open);
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
    close: () => closeServer(server, open),
  };
}
