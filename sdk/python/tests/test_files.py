"""Files of a session's machine, against a real daemon, and the scripts behind them with busybox."""

from __future__ import annotations

import asyncio
import io
import os
import random
import shutil
import stat
import subprocess
import tempfile
import tracemalloc
import unittest
from typing import Any, AsyncIterator, Iterator

from tests.support import Daemon, binary, check_unraised, trl
from trl_client import _scripts as scripts
from trl_client import aio
from trl_client._files import file_error, parse_entry

daemon: Daemon


def setUpModule() -> None:
    global daemon
    daemon = Daemon("--grace-ms=300", http=True)


def tearDownModule() -> None:
    daemon.stop()
    check_unraised()


def connect(transport: str = "unix", **options: Any) -> trl.Client:
    address = {"unix": daemon.socket, "http": daemon.url, "stdio": f"stdio:{binary()} serve --stdio --log-level=error"}
    return trl.connect(address[transport], token=daemon.token, **options)


HOSTILE_NAMES = ("with space", "-rf", "--", "new\nline", "trailing\n", "*", "$(id)", "'\"\\", "中文 🎉", ".hidden", "..x")


class InDirectory(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="py-files-")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, *names: str) -> str:
        return os.path.join(self.directory, *names)

    def put(self, name: str, data: bytes = b"old") -> str:
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def contents(self, name: str) -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()


class Files(InDirectory):
    def test_round_trip(self) -> None:
        data = bytes(range(256)) * 100
        for transport in ("unix", "http", "stdio"):
            with self.subTest(transport), connect(transport) as client:
                with client.session(cwd=self.directory, shell="bash") as s:
                    s.run("cat() { echo mine; }; mkdir -p sub; cd sub; umask 077")
                    busy = s.start("sleep 1000")  # it works while the session is busy
                    self.assertEqual(s.files.write("a", data), len(data))
                    self.assertEqual(self.contents("sub/a"), data)
                    self.assertEqual(s.files.read("a"), data)
                    self.assertEqual(s.files.read(self.path("sub", "a")), data)
                    s.files.write("text", "grüße\n")
                    self.assertEqual(s.files.read_text("text"), "grüße\n")
                    s.files.write("empty", b"")
                    self.assertEqual(s.files.read("empty"), b"")
                    self.assertEqual(os.listdir(self.path("sub")).count("a"), 1)
                    busy.kill()

    def test_names(self) -> None:
        with connect() as client, client.session(cwd=self.directory) as s:
            for name in HOSTILE_NAMES:
                with self.subTest(name):
                    s.files.write(name, name)
                    self.assertEqual(self.contents(name).decode(), name)
                    self.assertEqual(s.files.read_text(name), name)
                    self.assertTrue(s.files.exists(name))
            listed = s.files.list()
            self.assertEqual([each.name for each in listed], sorted(HOSTILE_NAMES))
            for each in listed:
                self.assertEqual((each.path, each.size), (self.path(each.name), len(each.name.encode())))
                s.files.remove(each.name)
            self.assertEqual(s.files.list(), [])
            for name in HOSTILE_NAMES:
                s.files.mkdir(name + "/deep")
                self.assertEqual([each.type for each in s.files.list(name)], ["directory"])
                s.files.remove(name, recursive=True)
            self.assertEqual(os.listdir(self.directory), [])
            with self.assertRaises(ValueError):
                s.files.read("a\0b")
            with self.assertRaises(ValueError):
                s.files.read(os.fsdecode(b"\xff"))

    def test_list(self) -> None:
        os.mkdir(self.path("d"))
        os.symlink("nowhere", self.path("l"))
        os.mkfifo(self.path("p"))
        os.chmod(self.put("f", b"12345"), 0o640)
        os.utime(self.path("f"), (1, 1_000_000_000))
        os.close(os.open(os.fsencode(self.directory) + b"/\xff", os.O_CREAT))
        with connect() as client, client.session(cwd="/") as s:
            found = {each.name: each for each in s.files.list(self.directory)}
            types = {"d": "directory", "l": "symlink", "p": "other", "f": "file", os.fsdecode(b"\xff"): "file"}
            self.assertEqual({name: each.type for name, each in found.items()}, types)
            self.assertEqual(found["f"], trl.FileInfo("f", self.path("f"), "file", 5, 0o640, 1_000_000_000.0))
            os.symlink(".", self.path("here"))
            self.assertEqual(len(s.files.list(self.path("here"))), 6)
            self.assertTrue(s.files.exists(self.path("l")))
            self.assertFalse(s.files.exists(self.path("l", "x")))
            self.assertFalse(s.files.exists(self.path("f", "x")))

    def test_errors(self) -> None:
        self.put("f")
        os.mkdir(self.path("full"))
        self.put("full/x")
        os.symlink("loop", self.path("loop"))
        with connect() as client, client.session(cwd=self.directory) as s:
            files = s.files
            for error, call in (
                (FileNotFoundError, lambda: files.read("nothing")),
                (FileNotFoundError, lambda: files.write("no/where", "")),
                (FileNotFoundError, lambda: files.list("nothing")),
                (FileNotFoundError, lambda: files.remove("nothing")),
                (FileNotFoundError, lambda: files.remove("nothing", recursive=True)),
                (IsADirectoryError, lambda: files.read(".")),
                (IsADirectoryError, lambda: files.write("full", "")),
                (NotADirectoryError, lambda: files.list("f")),
                (NotADirectoryError, lambda: files.write("f/x", "")),
                (FileExistsError, lambda: files.mkdir("f")),
                (OSError, lambda: files.write("loop", "")),
                (OSError, lambda: files.remove("full")),
            ):
                with self.subTest(error):
                    with self.assertRaises(error) as raised:
                        call()
                    self.assertIn(self.directory, raised.exception.filename)
            self.assertEqual(self.contents("full/x"), b"old")
            self.assertEqual(sorted(os.listdir(self.directory)), ["f", "full", "loop"])
            with self.assertRaises(trl.SessionTerminated):
                s.destroy()
                files.read("f")

    def test_permissions(self) -> None:
        """Errors of an account that may not do everything, which the tests' own may."""
        os.chmod(self.directory, 0o755)
        os.mkdir(self.path("locked"), 0o700)
        os.chmod(self.put("locked/f"), 0o600)
        os.chmod(self.put("f"), 0o600)
        for script, name in (
            (scripts.READ, "f"),
            (scripts.READ, "locked/f"),
            (scripts.LIST, "locked"),
            (scripts.EXISTS, "locked/f"),
            (scripts.WRITE, "f"),
            (scripts.WRITE, "new"),
            (scripts.MKDIR, "new"),
            (scripts.REMOVE, "f"),
        ):
            with self.subTest(script=script, name=name):
                arguments = {scripts.READ: ["1"], scripts.WRITE: [".trl-new", ""], scripts.REMOVE: [""]}
                argv = ["/bin/sh", "-c", script, "trl", self.path(name), *arguments.get(script, [])]
                user = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
                ran = subprocess.run(
                    argv, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, input=b"", capture_output=True, **user
                )
                if os.geteuid() == 0:
                    self.assertIsInstance(file_error(ran.stderr.decode(), name), PermissionError, ran.stderr)
        self.assertEqual(self.contents("f"), b"old")

    def test_atomic(self) -> None:
        target = self.put("f")
        os.chmod(target, 0o751)
        os.symlink("f", self.path("link"))
        if os.geteuid() == 0:
            os.chown(target, 65534, 65534)
        before = os.stat(target)
        with connect() as client, client.session(cwd=self.directory) as s:

            def broken() -> Iterator[bytes]:
                yield b"half"
                self.assertEqual(self.contents("f"), b"old")
                raise KeyError("mine")

            with self.assertRaises(KeyError):
                s.files.write("f", broken())
            self.assertEqual((self.contents("f"), sorted(os.listdir(self.directory))), (b"old", ["f", "link"]))
            with self.assertRaises(TypeError):
                s.files.write("f", ["text"])  # type: ignore[list-item]
            s.files.write("link", b"new")
            after = os.stat(target)
            self.assertEqual(self.contents("f"), b"new")
            self.assertTrue(os.path.islink(self.path("link")))
            self.assertNotEqual(after.st_ino, before.st_ino)
            for each in ("st_mode", "st_uid", "st_gid"):
                self.assertEqual(getattr(after, each), getattr(before, each))
            s.files.write("f", b"newer", mode=0o600)
            self.assertEqual(stat.S_IMODE(os.stat(target).st_mode), 0o600)
            self.assertEqual(s.files.write("/dev/null", b"x"), 1)
            self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
            self.assertEqual(sorted(os.listdir(self.directory)), ["f", "link"])

    def test_full_disk(self) -> None:
        """What is reported is the program's error, not that it no longer reads."""
        with connect() as client, client.session(cwd=self.directory) as s:
            with self.assertRaises(OSError) as full:
                s.files.write("/dev/full", bytes(8 << 20))
            self.assertEqual(full.exception.strerror, os.strerror(28))

    def test_large(self) -> None:
        """A large file goes through in both directions without being held in memory."""
        piece, count = random.Random(1).randbytes(1 << 20), 100
        with connect() as client, client.session(cwd=self.directory) as s:
            tracemalloc.start()
            self.addCleanup(tracemalloc.stop)
            self.assertEqual(s.files.write("big", (piece for _ in range(count))), count << 20)
            with open(self.path("big"), "rb") as file:
                self.assertTrue(all(file.read(1 << 20) == piece for _ in range(count)))
                file.seek(0)
                self.assertEqual(s.files.write("copy", file), count << 20)
            rest = 0
            with open(self.path("big"), "rb") as file:
                for part in s.files.stream("copy"):
                    self.assertEqual(file.read(len(part)), part)
                    rest += len(part)
            self.assertEqual(rest, count << 20)
            self.assertLess(tracemalloc.get_traced_memory()[1], 30 << 20)

    def test_left_early(self) -> None:
        with connect() as client, client.session(cwd=self.directory) as s:
            pieces = s.files.stream("/dev/zero")
            self.assertEqual(set(next(pieces)), {0})
            pieces.close()
            alive = [each for each in client.sessions(alive=True) if each.get("parent") == s.id]
            self.assertEqual(alive, [])

    def test_tags(self) -> None:
        with connect() as client, client.session(tags=["team-a"]) as s:
            s.files.read("/etc/passwd")
            self.assertTrue(any(each.get("parent") == s.id for each in client.sessions(tag="team-a")))


class SmallQuota(InDirectory):
    def test_reader_that_is_overtaken(self) -> None:
        """Where the daemon's quota dropped output, the file is read again from there."""
        data = random.Random(2).randbytes(6 << 20)
        self.put("f", data)
        with Daemon("--exec-quota-bytes=1048576") as small, trl.connect(small.socket) as client:
            with client.session(cwd=self.directory) as s:
                self.assertEqual(s.files.read("f"), data)


class Async(InDirectory):
    def test_files(self) -> None:
        async def parts() -> AsyncIterator[bytes]:
            for part in (b"a", b"b"):
                await asyncio.sleep(0)
                yield part

        async def test() -> None:
            async with aio.connect(daemon.socket) as client, client.session(cwd=self.directory) as s:
                self.assertEqual(await s.files.write("f", parts()), 2)
                await s.files.write("g", io.BytesIO(b"g" * 10))
                texts = await asyncio.gather(*(s.files.read_text(name) for name in ("f", "g")))
                self.assertEqual(texts, ["ab", "g" * 10])
                self.assertEqual([each.name for each in await s.files.list()], ["f", "g"])
                await s.files.mkdir("d")
                await s.files.remove("d")
                self.assertFalse(await s.files.exists("d"))
                self.assertEqual([piece async for piece in s.files.stream("f")], [b"ab"])

        asyncio.run(test())


class Busybox(InDirectory):
    """The scripts need no more than busybox has."""

    def setUp(self) -> None:
        super().setUp()
        self.programs = tempfile.mkdtemp(prefix="py-busybox-")
        self.addCleanup(shutil.rmtree, self.programs)
        busybox = shutil.which("busybox")
        assert busybox is not None, "the tests need busybox"
        for name in ("cat", "chmod", "chown", "find", "ls", "mkdir", "mv", "readlink", "rm", "rmdir", "sh", "sleep", "stat", "tail"):
            os.symlink(busybox, os.path.join(self.programs, name))

    def sh(self, script: str, *arguments: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        argv = [os.path.join(self.programs, "sh"), "-c", script, "trl", *arguments]
        environment = {"PATH": self.programs, "LC_ALL": "C"}
        return subprocess.run(argv, env=environment, input=stdin, capture_output=True, timeout=60)

    def output(self, script: str, *arguments: str, stdin: bytes = b"") -> bytes:
        ran = self.sh(script, *arguments, stdin=stdin)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        return ran.stdout

    def test_scripts(self) -> None:
        for name in HOSTILE_NAMES:
            self.output(scripts.WRITE, self.path(name), ".trl-new", "640", stdin=name.encode())
            self.assertEqual(self.output(scripts.READ, self.path(name), "1").decode(), name)
            self.assertEqual(self.output(scripts.READ, self.path(name), "2"), name.encode()[1:])
            self.output(scripts.EXISTS, self.path(name))
        entries = self.output(scripts.LIST, self.directory).split(b"\0")[:-1]
        found = sorted((parse_entry(each, self.directory) for each in entries), key=lambda each: each.name)
        self.assertEqual([each.name for each in found], sorted(HOSTILE_NAMES))
        self.assertEqual({(each.type, each.mode) for each in found}, {("file", 0o640)})
        for each in found:
            self.output(scripts.REMOVE, each.path, "")
        os.symlink("target\n", self.path("link"))
        self.output(scripts.WRITE, self.path("link"), ".trl-new", "", stdin=b"x")
        self.assertEqual(self.contents("target\n"), b"x")
        self.output(scripts.MKDIR, self.path("d", "e"))
        self.output(scripts.REMOVE, self.path("d"), "all")
        for script, path, error in (
            (scripts.READ, "nothing", FileNotFoundError),
            (scripts.WRITE, "no/where", FileNotFoundError),
            (scripts.WRITE, "link/x", NotADirectoryError),
            (scripts.LIST, "nothing", FileNotFoundError),
            (scripts.LIST, "link", NotADirectoryError),
            (scripts.EXISTS, "nothing", FileNotFoundError),
            (scripts.REMOVE, "nothing", FileNotFoundError),
        ):
            with self.subTest(script=script, path=path):
                arguments = {scripts.READ: ["1"], scripts.WRITE: [".trl-new", ""], scripts.REMOVE: [""]}
                ran = self.sh(script, self.path(path), *arguments.get(script, []))
                self.assertIsInstance(file_error(ran.stderr.decode(), path), error, ran.stderr)


if __name__ == "__main__":
    unittest.main()
