"""The wheel: built without the network, installed in a fresh environment, and used as in the README."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
from pathlib import Path

from tests.support import ROOT, Daemon


class Package(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="py-client-"))
        self.addCleanup(shutil.rmtree, self.directory)
        # A copy, since pip leaves files in a source tree.
        self.tree = self.directory / "tree"
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns("__pycache__"))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
        self.environment.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", HOME=str(self.directory))

    def run_python(self, python: object, *args: object) -> str:
        argv = [str(python), *map(str, args)]
        where = self.directory
        ran = subprocess.run(argv, env=self.environment, cwd=where, capture_output=True, text=True, timeout=300)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def build(self, name: str, *options: str) -> Path:
        out = self.directory / name
        self.run_python(sys.executable, "-m", "pip", "wheel", "--no-deps", *options, "-w", out, self.tree)
        [wheel] = out.glob("*.whl")
        return wheel

    def backend(self, tree: Path, hook: str) -> str:
        script = f"import build_wheel, sys; print(build_wheel.{hook}(sys.argv[1]))"
        self.environment["PYTHONPATH"] = str(tree / "_build")
        return self.run_python(sys.executable, "-c", script, self.directory).strip()

    def test_wheel(self) -> None:
        first, second = self.build("a", "--no-build-isolation"), self.build("b")
        digest = hashlib.sha256(first.read_bytes()).hexdigest()
        self.assertEqual(digest, hashlib.sha256(second.read_bytes()).hexdigest(), "the wheel is not reproducible")

        venv.create(self.directory / "venv", with_pip=True)
        python = self.directory / "venv" / "bin" / "python"
        self.run_python(python, "-m", "pip", "install", first)
        self.run_python(python, "-m", "pip", "check")
        listed = self.run_python(python, "-m", "pip", "show", "-f", "trl-client")
        for line in ("Name: trl-client", "License: Apache-2.0", "trl_client/py.typed", "trl_client/_types.py"):
            self.assertIn(line, listed)
        with Daemon() as daemon:
            self.environment["TRL_SOCKET"] = daemon.socket
            for readme in (ROOT / "README.md", ROOT.parent.parent / "README.md"):
                [start, *_] = re.findall(r"^```python\n(.*?)^```$", readme.read_text(), re.DOTALL | re.MULTILINE)
                self.assertIn("bonjour from /usr/lib\n", self.run_python(python, "-W", "error", "-c", start))
        self.run_python(python, "-m", "pip", "uninstall", "-y", "trl-client")
        self.run_python(python, "-m", "pip", "install", "-e", self.tree)
        where = self.run_python(python, "-c", "import trl_client; print(trl_client.__file__)")
        self.assertEqual(Path(where.strip()), self.tree / "src" / "trl_client" / "__init__.py")

    def test_sdist_builds_the_same_wheel(self) -> None:
        sdist = self.backend(self.tree, "build_sdist")
        subprocess.run(["tar", "xzf", sdist], cwd=self.directory, check=True)
        wheel = self.backend(self.tree, "build_wheel")
        wanted = (self.directory / wheel).read_bytes()
        (self.directory / wheel).unlink()
        self.backend(self.directory / sdist[: -len(".tar.gz")], "build_wheel")
        self.assertEqual((self.directory / wheel).read_bytes(), wanted)
        del self.environment["PYTHONPATH"]
        installed = self.directory / "installed"
        self.run_python(sys.executable, "-m", "pip", "install", "--target", installed, self.directory / sdist)
        self.assertTrue((installed / "trl_client" / "_scripts.py").is_file())


if __name__ == "__main__":
    unittest.main()
