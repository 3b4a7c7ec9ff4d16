"""The tests depend on no variable of whoever runs them."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

PRINT = "import json, os, tests.support; print(json.dumps(dict(os.environ)))"


class Environment(unittest.TestCase):
    def test_is_isolated(self) -> None:
        strange = {
            name: "/nonexistent"
            for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "TRL_SOCKET", "TRL_ADDRESS", "TRL_TOKEN", "TRL_LOG_LEVEL")
        }
        argv = [sys.executable, "-c", PRINT]
        root = Path(__file__).resolve().parent.parent
        ran = subprocess.run(
            argv, cwd=root, env={**os.environ, **strange, "TRL_BINARY": "/trl"}, check=True, capture_output=True, text=True
        )
        seen = json.loads(ran.stdout)
        self.assertEqual(seen["TRL_BINARY"], "/trl")
        self.assertEqual([name for name, value in seen.items() if value == "/nonexistent"], [])


if __name__ == "__main__":
    unittest.main()
