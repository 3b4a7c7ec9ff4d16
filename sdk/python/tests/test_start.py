"""connect(start=True): starts the user's daemon if there is none."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any, List, Sequence
from unittest import mock

from tests.support import binary, check_unraised, trl
from trl_client import aio
from trl_client._wire import default_socket, parse_address


def tearDownModule() -> None:
    check_unraised()


class Start(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="py-start-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRL_", "XDG_"))}
        kept.update(HOME=self.directory, XDG_RUNTIME_DIR=self.directory, TRL_BINARY=binary(), MY_SECRET="hush")
        environment = mock.patch.dict(os.environ, kept, clear=True)
        environment.start()
        self.addCleanup(environment.stop)

    def started(self, address: Any = None, **options: Any) -> trl.Client:
        client = trl.connect(address, **options)
        self.addCleanup(client.close)
        return client

    def stop_at_end(self, *paths: str) -> None:
        self.addCleanup(self.stop, paths)

    def stop(self, paths: Sequence[str]) -> None:
        """Stops the daemons, and one that was still starting when another answered."""
        deadline = time.monotonic() + 60
        while self.processes():
            self.assertLess(time.monotonic(), deadline, "processes are left")
            for path in paths:
                subprocess.run([binary(), "stop", "--socket", path], capture_output=True)

    def processes(self) -> List[str]:
        """Returns the processes with this test's environment."""
        mark = f"XDG_RUNTIME_DIR={self.directory}".encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(name)
            except OSError:
                pass  # it has ended
        return found

    def test_start(self) -> None:
        with self.assertRaises(trl.NoDaemon) as none:
            trl.connect()
        self.assertIn("trl serve --detach", none.exception.hint)
        self.assertIn("start=True", none.exception.hint)
        self.stop_at_end(default_socket())
        with self.started(start=True) as client:
            session = client.session(inherit_env="all", env={"MINE": "1"})
            variables = session.run("env; pwd").stdout.splitlines()
            self.assertIn("MINE=1", variables)
            self.assertEqual([each for each in variables if "hush" in each or each.startswith("TRL_")], [])
        with self.started() as again:  # it has outlived the client
            self.assertEqual([each["session_id"] for each in again.sessions()], [session.id])
            pid = again.info()["pid"]
        with self.started(start=True) as same:
            self.assertEqual(same.info()["pid"], pid)
        logs = list(Path(self.directory).rglob("*.log"))
        self.assertTrue(logs)
        for log in logs:
            self.assertNotIn("TRL_BINARY", log.read_text())

    def test_at_once(self) -> None:
        self.stop_at_end(default_socket())
        pids: List[int] = []

        def start() -> None:
            with trl.connect(start=True) as client:
                pids.append(client.info()["pid"])

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(pids), len(set(pids))), (4, 1))

    def test_socket(self) -> None:
        paths = {name: os.path.join(self.directory, name + ".sock") for name in ("given", "variable")}
        self.stop_at_end(*paths.values())
        for name, path in paths.items():
            variables = {"TRL_SOCKET": path} if name == "variable" else {}
            with self.subTest(name), mock.patch.dict(os.environ, variables):
                with trl.connect(path if name == "given" else None, start=binary()) as client:
                    self.assertEqual((client.address, client.info()["config"]["socket"]), (f"unix:{path}", path))

    def test_async(self) -> None:
        self.stop_at_end(default_socket())

        async def test() -> None:
            async with aio.connect(start=True) as client:
                self.assertEqual((await client.ping())["protocol"], 1)

        asyncio.run(test())

    def test_no_binary(self) -> None:
        del os.environ["TRL_BINARY"]
        programs = os.path.join(self.directory, "bin")
        os.mkdir(programs)
        with mock.patch.dict(os.environ, PATH=programs):
            with self.assertRaisesRegex(trl.NoDaemon, "no trl in the PATH"):
                trl.connect(start=True)
            os.symlink(binary(), os.path.join(programs, "trl"))
            self.stop_at_end(default_socket())
            self.started(start=True).close()

    def test_failures(self) -> None:
        for start, message in (
            (os.path.join(self.directory, "nothing"), "cannot be run"),
            ("/bin/false", "failed with status 1"),
        ):
            with self.subTest(start), self.assertRaisesRegex(trl.NoDaemon, message):
                trl.connect(start=start)
        with mock.patch.dict(os.environ, TRL_LOG_LEVEL="loud"):
            with self.assertRaisesRegex(trl.NoDaemon, "TRL_LOG_LEVEL") as refused:
                trl.connect(start=True)
        self.assertFalse(refused.exception.message.startswith("trl:"))
        with self.assertRaises(trl.NoDaemon):
            trl.connect("http://127.0.0.1:9", start=True)  # only what can be started is started

    def test_address_of_the_environment(self) -> None:
        with mock.patch.dict(os.environ, TRL_SOCKET="/s", TRL_ADDRESS="http://h:1"):
            self.assertEqual(str(parse_address(None)), "http://h:1")
        with mock.patch.dict(os.environ, TRL_SOCKET="/s", TRL_ADDRESS=""):
            self.assertEqual(str(parse_address(None)), "unix:/s")
        for address in ("unix:/a b", "https://[::1]:7/x", "stdio:trl serve '--a b'"):
            self.assertEqual(str(parse_address(address)), address)


if __name__ == "__main__":
    unittest.main()
