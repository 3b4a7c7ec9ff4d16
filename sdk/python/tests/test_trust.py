"""Which sockets a client trusts."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from tests.support import trl

OTHER = 64002

# Listens on the inherited socket as another user, and prints what it receives.
STRANGER = """
import os, socket, sys
os.setgid(%d); os.setuid(%d)
s = socket.socket(fileno=int(sys.argv[1])); s.listen()
print("listening", flush=True)
while True:
    c, _ = s.accept()
    got = c.makefile("rb").read()
    print(len(got), flush=True)
""" % (OTHER, OTHER)


class TestTrust(unittest.TestCase):
    def setUp(self) -> None:
        self.dir = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.path = os.path.join(self.dir, "s")
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.addCleanup(self.server.close)

    def refused(self, words: str) -> None:
        with self.assertRaisesRegex(trl.Forbidden, words):
            trl.connect(self.path).ping()

        async def later() -> None:
            async with trl.aio.connect(self.path) as client:
                await client.ping()

        with self.assertRaisesRegex(trl.Forbidden, words):
            asyncio.run(later())

    def test_directory_of_all(self) -> None:
        self.server.listen()
        for mode in (0o1777, 0o777, 0o770):
            os.chmod(self.dir, mode)
            self.refused("others may write")

    def test_directory_above(self) -> None:
        self.server.listen()
        below = os.path.join(self.dir, "below")
        os.mkdir(below, 0o700)
        os.rename(self.path, os.path.join(below, "s"))
        self.path = os.path.join(below, "s")
        os.chmod(self.dir, 0o777)
        self.refused("which is above")

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_files_of_another(self) -> None:
        self.server.listen()
        below = os.path.join(self.dir, "below")
        os.mkdir(below, 0o700)
        os.rename(self.path, os.path.join(below, "s"))
        self.path = os.path.join(below, "s")
        os.chown(self.dir, OTHER, OTHER)
        self.refused(f"belongs to another user .uid {OTHER}")

    @unittest.skipUnless(os.geteuid() == 0 and hasattr(socket, "SO_PEERCRED"), "needs root")
    def test_process_of_another(self) -> None:
        fd = self.server.fileno()
        args = [sys.executable, "-c", STRANGER, str(fd)]
        with subprocess.Popen(args, pass_fds=[fd], stdout=subprocess.PIPE, text=True) as stranger:
            assert stranger.stdout is not None
            self.assertEqual(stranger.stdout.readline(), "listening\n")
            self.refused(f"belongs to another user .uid {OTHER}")
            self.assertEqual([stranger.stdout.readline(), stranger.stdout.readline()], ["0\n", "0\n"])
            stranger.kill()
