"""Sessions with limits and isolation."""

from __future__ import annotations

import tempfile
import unittest

from tests.support import Daemon, check_unraised, trl


def tearDownModule() -> None:
    check_unraised()


class Confinement(unittest.TestCase):
    def test_limits_and_isolation(self) -> None:
        daemon = Daemon()
        self.addCleanup(daemon.stop)
        with trl.connect(daemon.socket) as client, tempfile.TemporaryDirectory() as work:
            if "filesystem" not in client.info()["isolation"]:
                self.skipTest("this machine can't confine sessions")
            with client.session(cwd=work, isolation="offline", limits={"open_files": 64, "wall_ms": 600_000}) as s:
                info = s.info()
                self.assertEqual(info["isolation"]["profile"], "offline")
                self.assertEqual(info["limits"]["open_files"], 64)
                self.assertEqual(s.run("ulimit -n; touch here && echo yes").stdout, "64\nyes\n")
                self.assertNotEqual(s.run("touch /usr/there").exit_code, 0)
            with self.assertRaises(trl.InvalidParams):
                client.session(cwd=work, isolation={"profile": "offline", "network": {"allow": ["a.example:443"]}})
