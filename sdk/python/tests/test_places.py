"""Sessions in places: a real one, and one that has forgotten a command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socketserver
import tempfile
import threading
import unittest
from typing import Any, Dict, List

from tests.support import Daemon, binary, check_unraised, trl
from trl_client import aio


def tearDownModule() -> None:
    check_unraised()


class Places(unittest.TestCase):
    """A place behind a command, which is this machine with another home."""

    def setUp(self) -> None:
        self.home = tempfile.mkdtemp(prefix="py-place-")
        self.addCleanup(shutil.rmtree, self.home)
        config = os.path.join(self.home, "config.toml")
        with open(config, "w") as file:
            file.write(f'[place.here]\ncommand = ["env", "HOME={self.home}"]\ndeliver = true\n')
        self.daemon = Daemon("--config", config)
        self.addCleanup(self.daemon.stop)

    def test_session(self) -> None:
        with trl.connect(self.daemon.socket) as client:
            try:
                with client.session(runtime="cmd:here") as s, client.session() as other:
                    self.assertEqual(s.run("echo $HOME").stdout, self.home + "\n")
                    self.assertEqual(b"".join(c.data for c in s.stream("echo out")), b"out\n")
                    self.assertEqual(s.info()["runtime"], "cmd:here")
                    self.assertEqual(other.info()["runtime"], "host")
                    self.assertEqual([x["session_id"] for x in client.sessions(runtime="cmd:here")], [s.id])
                    s.run("cd")
                    s.files.write("notes", "in the place\n")  # beside the session, so in its place
                    self.assertEqual(s.files.read_text("notes"), "in the place\n")
                self.assertEqual([(p["runtime"], p["state"]) for p in client.places()], [("cmd:here", "connected")])
            finally:
                client.remove_place("cmd:here", force=True)
            # The configuration still names it.
            self.assertEqual([(p["runtime"], p["name"]) for p in client.places()], [("cmd:here", "")])

    def test_async_session(self) -> None:
        async def test() -> None:
            async with aio.connect(self.daemon.socket) as client:
                try:
                    async with client.session(runtime="cmd:here") as s:
                        self.assertEqual((await s.run("echo $HOME")).stdout, self.home + "\n")
                finally:
                    await client.remove_place("cmd:here", force=True)

        asyncio.run(test())


class Relay(unittest.TestCase):
    def test_heartbeats_are_skipped(self) -> None:
        with Daemon() as daemon, trl.connect(daemon.socket) as direct:
            relay = f"exec {binary()} connect --socket {daemon.socket}"
            with trl.connect(f"stdio:sh -c 'echo; echo; {relay}'") as client:
                s = client.session()
                self.assertEqual(s.run("echo hi").stdout, "hi\n")
            self.assertEqual(direct.session_info(s.id)["state"], "idle")  # the daemon is not the client's


class ForgetfulDaemon(socketserver.StreamRequestHandler):
    """Two bytes of output, and then the place no longer knows the command. A client has a connection for its calls and
    one for each stream."""

    def handle(self) -> None:
        for line in self.rfile:
            request = json.loads(line)
            result = {"protocol": 1}
            if request["method"] == "exec.attach":
                self.server.attached.append(request["params"])  # type: ignore[attr-defined]
                result = {"stream_id": "st-1", "exec_id": "e-k7-1", "from": 0, "state": "running"}
            self.send(id=request["id"], result=result)
            if request["method"] == "exec.attach":
                self.chunk(type="stdout", offset=0, data="ab", next=2)
                data = {"code": "EXEC_NOT_FOUND", "hint": "call exec.list", "runtime": "docker:web"}
                self.chunk(type="error", offset=2, next=2, error={"code": -32004, "message": "forgotten", "data": data})

    def chunk(self, **params: Any) -> None:
        self.send(method="exec.chunk", params={"stream_id": "st-1", "exec_id": "e-k7-1", **params})

    def send(self, **message: Any) -> None:
        with contextlib.suppress(ConnectionError):  # the client has left
            self.wfile.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


class Forgotten(unittest.TestCase):
    """The stream ends with the error, which is not repeated, and neither is the call."""

    def setUp(self) -> None:
        directory = tempfile.mkdtemp(prefix="py-place-")
        self.addCleanup(shutil.rmtree, directory)
        self.path = os.path.join(directory, "d.sock")
        server = socketserver.ThreadingUnixStreamServer(self.path, ForgetfulDaemon)
        self.attached: List[Dict[str, Any]] = []
        server.attached = self.attached  # type: ignore[attr-defined]
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        self.addCleanup(serving.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

    def check(self, data: bytes, errors: List[trl.ExecNotFound], offset: int) -> None:
        self.assertEqual((data, offset), (b"ab", 2))
        for error in errors:
            got = (error.code, error.message, error.hint, error.details)
            self.assertEqual(got, ("EXEC_NOT_FOUND", "forgotten", "call exec.list", {"runtime": "docker:web"}))
        self.assertEqual(self.attached, [{"exec_id": "e-k7-1", "from": 0}])

    def test_stream(self) -> None:
        with trl.connect(self.path) as client, client.attach("e-k7-1") as stream:
            data, errors = b"", []
            with self.assertRaises(trl.ExecNotFound) as first:
                for chunk in stream:
                    data += chunk.data
            errors.append(first.exception)
            with self.assertRaises(trl.ExecNotFound) as second:
                stream.wait()
            errors.append(second.exception)
            self.check(data, errors, stream.offset)

    def test_async_stream(self) -> None:
        async def test() -> None:
            async with aio.connect(self.path) as client, client.attach("e-k7-1") as stream:
                data, errors = b"", []
                with self.assertRaises(trl.ExecNotFound) as first:
                    async for chunk in stream:
                        data += chunk.data
                errors.append(first.exception)
                with self.assertRaises(trl.ExecNotFound) as second:
                    await stream.wait()
                errors.append(second.exception)
                self.check(data, errors, stream.offset)

        asyncio.run(test())


if __name__ == "__main__":
    unittest.main()
