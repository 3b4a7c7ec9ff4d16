"""Handles of commands: start, wait, callbacks, texts, idleness and ports; against a real daemon."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import threading
import time
import unittest
from typing import Any, List, Tuple

from tests.support import CuttingProxy, Daemon, binary, check_unraised, trl
from trl_client import aio
from trl_client._files import listeners

daemon: Daemon

TRANSPORTS = ("unix", "http", "stdio")


def setUpModule() -> None:
    global daemon
    daemon = Daemon("--grace-ms=300", http=True)


def tearDownModule() -> None:
    daemon.stop()
    check_unraised()


def connect(transport: str = "unix", **options: Any) -> trl.Client:
    address = {"unix": daemon.socket, "http": daemon.url, "stdio": f"stdio:{binary()} serve --stdio --log-level=error"}
    return trl.connect(address[transport], token=daemon.token, **options)


class Handles(unittest.TestCase):
    def test_wait(self) -> None:
        for transport in TRANSPORTS:
            with self.subTest(transport), connect(transport) as client, client.session(shell="bash") as s:
                started = s.start("read line; echo got $line; echo oops >&2; (exit 4)", stdin_open=True)
                with self.assertRaises(trl.CallTimeout):
                    started.wait(timeout=0.05)
                self.assertTrue(started.info().running)
                self.assertEqual(started.send_input("it\n", eof=True), 3)
                result = started.wait()
                self.assertEqual((result.stdout, result.stderr, result.exit_code), ("got it\n", "oops\n", 4))
                self.assertEqual(started.wait(max_output_bytes=0).stdout, "")
                self.assertEqual(started.output(stream="stdout").text, "got it\n")
                with started.attach() as stream:
                    self.assertEqual(stream.wait().exit_code, 4)
                known = client.exec(started.exec_id)
                self.assertEqual((known.wait().exit_code, known.wait().stdout), (4, ""))

    def test_iteration(self) -> None:
        with connect() as client, client.session() as s:
            started = s.start("printf 'a\\377'; read x; echo b >&2", stdin_open=True)
            chunks = []
            for chunk in started:
                chunks.append((chunk.type, chunk.data))
                if len(chunks) == 1:
                    started.send_input(eof=True)
            self.assertEqual(chunks, [("stdout", b"a\xff"), ("stderr", b"b\n")])
            self.assertEqual(list(started), [])

    def test_kill(self) -> None:
        with connect() as client, client.session() as s:
            started = s.start("sleep 1000")
            started.kill()
            self.assertTrue(started.wait().cancelled)
            left = s.start("sleep 1000 & echo $!")
            pid = int(left.wait().stdout)
            left.kill()
            self.assertEqual(s.run(f"while kill -0 {pid} 2>/dev/null; do :; done", timeout=20).outcome, "exited")

    def test_callbacks(self) -> None:
        for transport in TRANSPORTS:
            with self.subTest(transport), connect(transport) as client, client.session() as s:
                heard: List[Tuple[str, str]] = []
                to = dict(on_stdout=lambda t: heard.append(("out", t)), on_stderr=lambda t: heard.append(("err", t)))
                result = s.run("printf 'h\\303'; sleep 0.1; printf '\\251'; echo no >&2; exit 5", **to)
                self.assertEqual((result.stdout, result.stderr, result.exit_code), ("hé", "no\n", 5))
                text = {name: "".join(t for n, t in heard if n == name) for name in ("out", "err")}
                self.assertEqual(text, {"out": "hé", "err": "no\n"})
                heard.clear()
                started = s.start("echo one", on_stdout=to["on_stdout"])
                started.wait()
                started.wait()  # every piece once
                self.assertEqual(heard, [("out", "one\n")])
                heard.clear()
                self.assertEqual(s.run("printf 'a\\303'", **to).stdout_data, b"a\xc3")
                self.assertEqual("".join(t for _, t in heard), "a\ufffd")

    def test_callbacks_and_limits(self) -> None:
        with connect() as client, client.session() as s:
            heard: List[str] = []
            result = s.run("echo early; sleep 1000", on_stdout=heard.append, yield_after=0.3)
            self.assertEqual((result.running, result.stdout, heard), (True, "early\n", ["early\n"]))
            client.exec(result.exec_id).kill()
            with self.assertRaises(trl.CallTimeout):
                s.run("sleep 1000", on_stdout=heard.append, call_timeout=0.3)
            s.cancel()
            with self.assertRaises(TypeError):
                s.run("true", on_stdout=heard.append, yield_on_input=True)
            result = s.run("printf 12345678", on_stdout=heard.append, max_output_bytes=4)
            self.assertEqual((heard[-1], result.truncated), ("12345678", True))
            with self.assertRaisesRegex(TypeError, "^start"):
                s.start("true", yield_after=1)  # type: ignore[call-arg]

    def test_callback_on_a_terminal(self) -> None:
        with connect() as client, client.session(tty={"rows": 24, "cols": 80}) as s:
            heard: List[str] = []
            s.run("echo hello", on_stdout=heard.append)
            self.assertEqual("".join(heard), "hello\r\n")

    def test_failing_callback(self) -> None:
        def fail(_: str) -> None:
            raise KeyError("mine")

        with connect() as client, client.session() as s:
            started = s.start("echo a; read x; echo b", on_stdout=fail, stdin_open=True)
            with self.assertRaises(KeyError):
                started.wait()
            self.assertTrue(started.info().running)  # it is not the command's fault
            started.kill()

    def test_text(self) -> None:
        with connect() as client, client.session() as s:
            started = s.start("echo port 80 a.b; read x; echo port 90 >&2; read x; exit 3", stdin_open=True)
            self.assertEqual(started.wait_for_text(re.compile(r"port (\d+) "), timeout=60).group(1), "80")
            self.assertEqual(started.wait_for_text("a.b", timeout=60).group(), "a.b")
            started.send_input("\n")
            self.assertEqual(started.wait_for_text(re.compile(r"port (\d+)\n"), timeout=60).group(1), "90")
            with self.assertRaises(trl.CallTimeout):
                started.wait_for_text("port", timeout=0.1)  # each match once
            started.send_input(eof=True)
            with self.assertRaises(trl.ExecEnded) as ended:
                started.wait_for_text("port", timeout=20)
            self.assertEqual(ended.exception.result.exit_code, 3)
            self.assertEqual(ended.exception.details["exec_id"], started.exec_id)

    def test_text_of_a_repl(self) -> None:
        with connect() as client:
            with client.session(argv=["python3", "-q"], tty={"rows": 24, "cols": 80}, env={"TERM": "dumb"}) as s:
                repl = client.exec(s.exec_id or "")
                for sent, answer in (("x = 6", ""), ("x * 7", "42")):
                    repl.wait_for_text(">>> ", timeout=60)
                    repl.send_input(sent, keys=["enter"])
                    repl.wait_for_text(answer, timeout=60)

    def test_idle(self) -> None:
        with connect() as client, client.session() as s:
            started = s.start("echo a; sleep 0.2; echo b; read x", stdin_open=True)
            self.assertTrue(started.wait_for_idle(0.5).running)
            self.assertEqual(started.output().text, "a\nb\n")
            with self.assertRaises(trl.CallTimeout):
                started.wait_for_idle(1000, timeout=0.1)
            started.send_input(eof=True)
            self.assertFalse(started.wait_for_idle(1000).running)

    def test_lost_connections(self) -> None:
        """No piece is missing or repeated when connections are cut."""
        path = os.path.join(daemon.directory, "handle.sock")
        with CuttingProxy(daemon.socket, path, 20, 2000, 7) as proxy, trl.connect(path) as client:
            with client.session() as s:
                heard: List[str] = []
                result = s.run("for i in $(seq 100); do echo $i; sleep 0.01; done", on_stdout=heard.append)
                self.assertEqual("".join(heard), "".join(f"{n}\n" for n in range(1, 101)))
                self.assertEqual(result.stdout, "".join(heard))
            self.assertGreater(proxy.cuts, 3)

    def test_repr(self) -> None:
        with connect() as client, client.session(name="mine") as s:
            self.assertEqual(repr(client), f"Client('unix:{daemon.socket}')")
            self.assertEqual(repr(s), f"Session(id='{s.id}', name='mine')")
            self.assertEqual(repr(client.get_session(s.id)), f"Session(id='{s.id}')")
            started = s.start("true")
            self.assertEqual(repr(started), f"Exec(exec_id='{started.exec_id}')")
            result = started.wait()
            self.assertEqual(repr(result), f"Result(exec_id='{started.exec_id}', outcome='exited', exit_code=0)")
            with started.attach() as stream:
                self.assertEqual(repr(stream), f"Stream(exec_id='{started.exec_id}', offset=0)")
            self.assertEqual(repr(s.files), f"Files(session_id='{s.id}')")


class Ports(unittest.TestCase):
    def listener(self, family: int, host: str) -> socket.socket:
        sock = socket.socket(family)
        self.addCleanup(sock.close)
        sock.bind((host, 0))
        return sock

    def test_port(self) -> None:
        for transport in TRANSPORTS:
            for shell in ("dash", "bash"):
                with self.subTest(transport=transport, shell=shell), connect(transport) as client:
                    with client.session(shell=shell) as s:
                        sock = self.listener(socket.AF_INET, "127.0.0.1")
                        port = sock.getsockname()[1]
                        s.start("sleep 1000")  # it works while the session is busy
                        with self.assertRaises(trl.CallTimeout):
                            s.wait_for_port(port, timeout=0.2)  # bound is not listening
                        listening = threading.Timer(0.2, sock.listen)
                        listening.start()
                        s.wait_for_port(port)
                        s.wait_for_port(port, host="localhost")
                        listening.join()

    def test_host(self) -> None:
        with connect() as client, client.session() as s:
            one = self.listener(socket.AF_INET, "127.0.0.1")
            one.listen()
            port = one.getsockname()[1]
            s.wait_for_port(port, host="127.0.0.1")
            with self.assertRaises(trl.CallTimeout):
                s.wait_for_port(port, host="127.0.0.2", timeout=0.2)
            far = socket.create_connection(("127.0.0.1", port))
            self.addCleanup(far.close)
            with self.assertRaises(trl.CallTimeout):
                s.wait_for_port(far.getsockname()[1], timeout=0.2)  # connected is not listening
            every = self.listener(socket.AF_INET, "0.0.0.0")
            every.listen()
            s.wait_for_port(every.getsockname()[1], host="127.0.0.2")
            for port, host in ((0, None), (65536, None), (80, "nowhere.example")):
                with self.assertRaises(ValueError):
                    s.wait_for_port(port, host=host)

    def test_addresses(self) -> None:
        wildcards = ["0" * 8, "0" * 32]
        self.assertEqual(listeners(None), [])
        self.assertEqual(listeners("127.0.0.1"), [*wildcards, "0100007F", "0000000000000000FFFF00000100007F"])
        self.assertEqual(listeners("::1"), [*wildcards, "00000000000000000000000001000000"])
        self.assertIn("0100007F", listeners("localhost"))
        self.assertIn("00000000000000000000000001000000", listeners("localhost"))


class Async(unittest.TestCase):
    def test_handle(self) -> None:
        async def test() -> None:
            async with aio.connect(daemon.socket) as client, client.session() as s:
                heard: List[str] = []

                async def hear(text: str) -> None:
                    await asyncio.sleep(0)
                    heard.append(text)

                started = await s.start("echo ready; read x; echo $x", stdin_open=True, on_stdout=hear)
                await started.wait_for_text("ready")
                self.assertTrue((await started.wait_for_idle(0.1)).running)
                await started.send_input("end\n")
                self.assertEqual((await started.wait()).stdout, "ready\nend\n")
                self.assertEqual("".join(heard), "ready\nend\n")
                quick = await s.start("echo x")
                self.assertEqual([chunk.text async for chunk in quick], ["x\n"])
                self.assertEqual((await s.run("echo y", on_stdout=hear)).stdout, "y\n")
                self.assertEqual(repr(client), f"Client('unix:{daemon.socket}')")

        asyncio.run(test())

    def test_cancelled_wait(self) -> None:
        """A cancelled task leaves the handle usable."""

        async def test() -> None:
            async with aio.connect(daemon.socket) as client, client.session() as s:
                started = await s.start("read x; echo $x", stdin_open=True)
                begun = time.monotonic()
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(started.wait_for_text("never"), 0.1)
                self.assertLess(time.monotonic() - begun, 20)
                await started.send_input("again\n")
                await started.wait_for_text("again", timeout=60)

        asyncio.run(test())


if __name__ == "__main__":
    unittest.main()
