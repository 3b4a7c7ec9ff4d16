"""A client of a daemon that is killed with SIGKILL again and again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
import unittest
from typing import Any, Iterator, List

from tests.support import Daemon, trl

LINES = 150
COMMAND = f"n=7; i=0; while [ $i -lt {LINES} ]; do echo line $i; echo error $i >&2; i=$((i+1)); sleep 0.01; done; exit 5"
EXPECTED = "".join(f"line {i}\n" for i in range(LINES)).encode()
RETRY = trl.Retry(initial=0.01, maximum=0.1, total=60)


@contextlib.contextmanager
def killing(daemon: Daemon) -> Iterator[List[int]]:
    """Kills the daemon at random moments, and records the pids."""
    killed: List[int] = []
    over = threading.Event()

    def kill() -> None:
        numbers = random.Random(7)
        while not over.wait(numbers.uniform(0.05, 0.25)):
            try:
                with trl.connect(daemon.socket, retry=RETRY) as client:
                    pid = client.system_info()["pid"]
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            except (trl.TRLError, ProcessLookupError):
                pass  # no daemon at this moment

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


class Killed(unittest.TestCase):
    def check(self, use_asyncio: bool, http: bool) -> None:
        with Daemon(http=http) as daemon, trl.connect(daemon.socket) as direct, direct.session() as session:
            address = daemon.url if http else daemon.socket
            ran = os.path.join(daemon.directory, "ran")
            once = f"echo once >>{ran}; sleep 0.6; (exit 3)"

            def enough(runs: List[Any]) -> bool:
                # A busy machine is slow to start daemons, so fewer are killed.
                return len(runs) >= 3 and (len(set(killed)) >= 5 or len(runs) >= 60)

            async def follow() -> Any:
                async with trl.aio.connect(address, token=daemon.token, retry=RETRY) as client:
                    out = b""
                    async with client.stream(session.id, COMMAND) as stream:
                        async for chunk in stream:
                            if chunk.type == "stdout":
                                out += chunk.data
                    runs: List[Any] = []
                    while not enough(runs):
                        runs.append(await client.run(session.id, once))
                    return out, stream.result, runs

            with killing(daemon) as killed:
                began = time.monotonic()
                if use_asyncio:
                    out, result, runs = asyncio.run(follow())
                else:
                    with trl.connect(address, token=daemon.token, retry=RETRY) as client:
                        out = b""
                        with client.stream(session.id, COMMAND) as stream:
                            for chunk in stream:
                                if chunk.type == "stdout":
                                    out += chunk.data
                        result = stream.result
                        runs = []
                        while not enough(runs):
                            runs.append(client.run(session.id, once))
                took = time.monotonic() - began
            self.assertEqual(out, EXPECTED)
            assert result is not None
            self.assertEqual((result.exit_code, result.stdout_bytes), (5, len(EXPECTED)))
            self.assertEqual([run.exit_code for run in runs], [3] * len(runs))
            with open(ran) as lines:
                self.assertEqual(lines.read(), "once\n" * len(runs))
            self.assertEqual(session.run("echo $n").stdout, "7\n")
            self.assertGreaterEqual(len(set(killed)), 5, f"killed {killed} in {took:.1f} s")

    def test_nothing_is_lost(self) -> None:
        for http in (False, True):
            for use_asyncio in (False, True):
                with self.subTest(http=http, asyncio=use_asyncio):
                    self.check(use_asyncio, http)


if __name__ == "__main__":
    unittest.main()
