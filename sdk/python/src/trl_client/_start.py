"""Starts the user's daemon, as ``connect(start=True)`` promises."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import List, Optional, Union

from ._errors import NoDaemon
from ._io import IO
from ._wire import Address, default_socket

#: Whether ``connect`` may start a daemon, or with which binary.
Start = Union[bool, str, "os.PathLike[str]"]

# START_SECONDS is how long ``trl serve --detach`` may take; it stops waiting for the daemon after ten.
START_SECONDS = 30.0

# BINARY_VARIABLE names the binary to start. It is no setting of a daemon, which would complain about it.
BINARY_VARIABLE = "TRL_BINARY"


def find_binary(start: Start) -> Optional[str]:
    """Returns the program to start: the one given, that of ``$TRL_BINARY``, or ``trl`` in the PATH."""
    given = os.environ.get(BINARY_VARIABLE) if start is True else os.fspath(start)
    return given or shutil.which("trl")


async def start_daemon(io: IO, address: Address, start: Start) -> None:
    """Runs ``trl serve --detach``, which returns when a daemon serves, also if another process started it.

    The daemon outlives this process. Its environment is chosen by ``trl``, which leaves out this process's secrets.
    """
    binary = find_binary(start)
    if binary is None:
        raise NoDaemon(
            f"no TRL daemon answers at {address.path}, and there is no trl in the PATH to start one",
            hint="install trl, or name the binary: connect(start=PATH)",
        )
    argv = [binary, "serve", "--detach"]
    if address.path != default_socket():
        argv += ["--socket", os.path.abspath(address.path)]
    with tempfile.TemporaryFile() as messages:
        try:
            process = _launch(argv, messages.fileno())
        except OSError as error:
            raise NoDaemon(f"{binary} cannot be run: {error}", hint="name the binary: connect(start=PATH)") from error
        if not await io.wait_process(process, START_SECONDS):
            process.kill()
            process.wait()
            raise NoDaemon(f"{binary} serve --detach did not return", hint="run it in a terminal to see why")
        if process.returncode != 0:
            messages.seek(0)
            raise _failure(argv, process.returncode, messages.read().decode("utf-8", "replace"))


def _launch(argv: List[str], messages: int) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if name != BINARY_VARIABLE}
    home = os.path.expanduser("~")
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=messages,
        env=environment,
        cwd=home if os.path.isdir(home) else "/",
    )


def _failure(argv: List[str], status: int, messages: str) -> NoDaemon:
    """Returns what the program reported: an error, and a line with a hint."""
    message, _, hint = messages.strip().partition("\nhint: ")
    if message.startswith("trl: "):
        return NoDaemon(message[len("trl: ") :], hint=hint)
    return NoDaemon(f"{' '.join(argv)} failed with status {status}: {message}", hint="is this the binary of TRL?")
