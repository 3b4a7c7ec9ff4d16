// Every param of the contract can be given with the methods of this package.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect as dial, createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { connect } from "../dist/index.js";
import { LineSplitter } from "../dist/lines.js";
import { sdk, startDaemon } from "./daemon.mjs";

const { $defs } = JSON.parse(readFileSync(join(sdk, "..", "..", "docs", "schema.json"), "utf8"));
const suffix = ".request";
const methods = Object.keys($defs).filter((name) => name.endsWith(suffix)).map((name) => name.slice(0, -suffix.length));

/** The names of a method's params. */
function paramsOf(method) {
  const { $ref } = $defs[method + suffix].properties.params ?? {};
  return $ref === undefined ? [] : Object.keys($defs[$ref.slice("#/$defs/".length)].properties ?? {});
}

/** Options with a value for each param, except those that a method takes otherwise. */
function options(method, ...others) {
  const names = paramsOf(method).filter((name) => !others.includes(name));
  return Object.fromEntries(names.map((name) => [name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()), "1"]));
}

const data = new Uint8Array([0xff]); // needs an encoding

// How each method is called with all of its params. The daemon refuses their values.
const calls = {
  "system.ping": (client) => client.ping(),
  "system.info": (client) => client.info(),
  "system.stats": (client) => client.stats(),
  "session.create": (client) => client.session(options("session.create")),
  "session.list": (client) => client.sessions(options("session.list")),
  "session.info": (client) => client.open("s").info(),
  "session.destroy": (client) => client.open("s").destroy({ force: true }),
  "session.watch": (client) => client.open("s").watch(options("session.watch", "session_id")).start(),
  "session.resize": (client) => client.open("s").resize(1, 1, { lease: "1" }),
  "session.screen": (client) => client.open("s").screen(options("session.screen", "session_id")),
  "session.hold": (client) => client.open("s").hold("me", options("session.hold", "session_id", "holder")),
  "session.release": (client) => client.open("s").release("1"),
  "exec.run": (client) => client.open("s").run("c", { ...options("exec.run", "session_id", "command", "stdin_encoding"), stdin: data }),
  "exec.stream": (client) => client.open("s").stream("c", { ...options("exec.stream", "session_id", "command", "stdin_encoding"), stdin: data }).start(),
  "exec.attach": (client) => client.exec("e").stream({ from: 1 }).next(),
  "exec.output": (client) => client.exec("e").output(options("exec.output", "exec_id")),
  "exec.input": (client) => client.exec("e").sendInput(data, options("exec.input", "exec_id", "data", "encoding")),
  "exec.signal": (client) => client.exec("e").signal("TERM"),
  // Two calls, since the daemon takes only one of the two.
  "exec.cancel": (client) => Promise.allSettled([client.open("s").cancel(), client.exec("e").cancel()]),
  "exec.info": (client) => client.exec("e").info(),
  "exec.list": (client) => client.open("s").execs(),
  "place.list": (client) => client.places(),
  "place.add": (client) => client.addPlace("nowhere:1"),
  "place.check": (client) => client.checkPlace("nowhere:1"),
  "place.remove": (client) => client.removePlace("nowhere:1", options("place.remove", "runtime")),
  "place.upgrade": (client) => client.upgradePlace("nowhere:1"),
  "system.upgrade": (client) => client.call("system.upgrade"), // last, for it replaces the daemon
};

// The client closes the connection of a stream instead, and makes requests for its own user only.
const unused = ["stream.close", "system.delegate", "system.disconnect"];

describe("the contract", () => {
  let daemon, relay, client;
  const sent = [];
  before(async () => {
    daemon = await startDaemon();
    relay = createServer((socket) => {
      const upstream = dial(daemon.socket);
      const lines = new LineSplitter();
      socket.on("data", (part) => lines.push(part, (line) => sent.push(JSON.parse(line))));
      socket.on("error", () => {});
      socket.pipe(upstream).pipe(socket);
    }).listen(join(daemon.dir, "relay.sock"));
    await once(relay, "listening");
    client = await connect(join(daemon.dir, "relay.sock"));
  });
  after(async () => {
    await client?.close();
    relay?.close();
    await daemon?.stop();
  });

  test("has no method that is forgotten", () => {
    assert.deepEqual([...Object.keys(calls), ...unused].sort(), [...methods].sort());
  });

  for (const [method, call] of Object.entries(calls)) {
    test(`${method} is called with all its params`, async () => {
      sent.length = 0;
      await call(client).then(
        () => {},
        (error) => assert.notEqual(error.constructor, TypeError, error),
      );
      const names = new Set(sent.filter((request) => request.method === method).flatMap(({ params }) => Object.keys(params ?? {})));
      assert.deepEqual([...names].sort(), paramsOf(method).sort());
    });
  }
});
