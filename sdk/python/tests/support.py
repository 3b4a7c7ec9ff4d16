"""Test support: a real daemon, and a proxy in front of it that cuts connections."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, List, Optional, Tuple, Union

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import trl_client as trl  # noqa: E402

_binary: Optional[str] = None

#: The environment of the person or program that runs the tests. Only a build uses it.
_outside = dict(os.environ)


def _isolate() -> None:
    """Keeps the tests from finding the daemon, tokens and settings of whoever runs them."""
    for name in list(os.environ):
        if name.startswith(("TRL_", "XDG_")) and name != "TRL_BINARY":
            del os.environ[name]
    home = tempfile.mkdtemp(prefix="py-client-home-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["HOME"] = home


_isolate()


def binary() -> str:
    """Returns the daemon's binary: ``$TRL_BINARY``, or a newly built one."""
    global _binary
    if _binary is None:
        _binary = os.environ.get("TRL_BINARY")
    if not _binary:
        directory = tempfile.mkdtemp(prefix="py-client-build-")
        atexit.register(shutil.rmtree, directory)
        _binary = os.path.join(directory, "trl")
        subprocess.run(["go", "build", "-o", _binary, "./cmd/trl"], cwd=ROOT.parent.parent, env=_outside, check=True)
    return _binary


class Daemon:
    """A private daemon, with its files in a private directory."""

    def __init__(self, *settings: str, http: bool = False) -> None:
        self.directory = tempfile.mkdtemp(prefix="py-client-")
        self.socket = os.path.join(self.directory, "s.sock")
        self.token: Optional[str] = None
        self.url = ""
        tokens = os.path.join(self.directory, "tokens")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRL_")}
        environment.update(HOME=self.directory, XDG_CONFIG_HOME=self.directory, TRL_TOKEN_FILE=tokens)
        argv = [binary(), "serve", "--socket", self.socket, *settings]
        if http:
            create = [binary(), "token", "create", "--scope", "run"]
            made = subprocess.run(create, env=environment, check=True, capture_output=True, text=True)
            self.token = made.stdout.split()[-1]
            argv += ["--http", "127.0.0.1:0"]
        self._process = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)
        self._log: List[str] = []
        self._serving = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._serving.wait(60)
        try:
            with trl.connect(self.socket) as client:
                if http:
                    config = client.system_info()["config"]
                    self.url = ("https://" if config.get("http_tls_cert") else "http://") + config["http"]
        except BaseException:
            self.stop()
            print("".join(self._log), file=sys.stderr)
            raise

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line)
            if "serving" in line:
                self._serving.set()
        self._serving.set()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class CuttingProxy:
    """Forwards to a Unix socket or a TCP port, and cuts connections after random numbers of bytes.

    Most connections get about ``mean`` bytes of what the daemon sends, every fifth only a few, so that cuts fall into
    answers and heads too. Some stall for a moment before. After ``cuts`` cuts it only forwards.
    """

    def __init__(
        self,
        target: Union[str, Tuple[str, int]],
        listen: Union[str, Tuple[str, int]],
        cuts: int,
        mean: int,
        seed: int,
    ) -> None:
        self._target = target
        self._random = random.Random(seed)
        self._mean = mean
        self._most = cuts
        self._lock = threading.Lock()
        self._sockets: List[socket.socket] = []
        self._threads: List[threading.Thread] = []
        self._ended = threading.Event()
        self.cuts = 0
        self._listener = self._socket(listen)
        self._listener.bind(listen)
        self._listener.listen(64)
        self.path = listen if isinstance(listen, str) else ""
        self.port = 0 if isinstance(listen, str) else self._listener.getsockname()[1]
        self._start(self._accept)

    @staticmethod
    def _socket(address: Union[str, Tuple[str, int]]) -> socket.socket:
        return socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = self._socket(self._target)
            with self._lock:
                if self._ended.is_set():
                    near.close()
                    far.close()
                    return
                self._sockets += [near, far]
            try:
                far.connect(self._target)
            except OSError:
                self._close(near, far)
                continue
            self._start(self._forward, near, far, False)
            self._start(self._forward, far, near, True)

    def _budget(self) -> Tuple[int, float]:
        """Returns after how many bytes from the daemon to cut a connection, and how long to stall it first."""
        with self._lock:
            few = self._random.random() < 0.2
            stall = 0.05 if self._random.random() < 0.1 else 0.0
            return self._random.randrange(2 * (min(self._mean, 200) if few else self._mean)), stall

    def _may_cut(self) -> bool:
        with self._lock:
            if self.cuts == self._most:
                return False
            self.cuts += 1
            return True

    def _forward(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        budget: Optional[int] = None
        stall = 0.0
        first = answers
        try:
            while True:
                data = source.recv(64 << 10)
                if not data:
                    break
                if first:
                    first = False
                    budget, stall = self._budget()
                if budget is not None and len(data) >= budget:
                    if self._may_cut():
                        sink.sendall(data[:budget])
                        self._ended.wait(stall)
                        break
                    budget = None
                sink.sendall(data)
                if budget is not None:
                    budget -= len(data)
        except OSError:
            pass
        self._close(source, sink)

    @staticmethod
    def _close(*sockets: socket.socket) -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut_all(self) -> None:
        """Closes the open connections."""
        with self._lock:
            self._close(*self._sockets)

    def stop(self) -> None:
        with self._lock:
            self._ended.set()
        self._close(self._listener, *self._sockets)
        self._listener.close()
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


_unraised: List[str] = []


def _record(args: Any) -> None:
    _unraised.append(f"{args.exc_value!r} in {args.object!r}")


sys.unraisablehook = _record


def check_unraised() -> None:
    """Fails for errors that could not be raised where they occurred, such as the warning for a socket left open."""
    gc.collect()
    found, _unraised[:] = list(_unraised), []
    assert not found, found
