"""The contract as values: addresses, requests, answers, chunks and results. No input or output."""

from __future__ import annotations

import binascii
import json
import os
import secrets
import shlex
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from ._errors import ConnectionLost, ProtocolError, TRLError, from_wire
from ._types import METHODS, ExecResult, ExecState, Outcome, Process, Usage

Json = Dict[str, Any]

# OPENING are the methods whose answer is followed by notifications on the same connection.
OPENING = frozenset({"exec.stream", "exec.attach", "session.watch"})


# --- where a daemon is ---


@dataclass(frozen=True)
class Address:
    """Where a daemon is: a Unix socket, an HTTP server, or a command that serves on its stdin and stdout."""

    kind: str  # "unix", "http" or "stdio"
    path: str = ""  # of the socket, or before the paths of HTTP
    host: str = ""
    port: int = 0
    tls: bool = False
    argv: Tuple[str, ...] = ()

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(address: Optional[Union[str, "os.PathLike[str]"]]) -> Address:
    """Reads an address; None is ``$TRL_SOCKET``, or where a daemon of this user serves by default."""
    if address is None:
        return Address("unix", path=os.environ.get("TRL_SOCKET") or default_socket())
    text = os.fspath(address)
    if text.startswith("unix:"):
        return Address("unix", path=text[len("unix:") :])
    if text.startswith("stdio:"):
        argv = tuple(shlex.split(text[len("stdio:") :]))
        if not argv:
            raise ValueError("stdio: needs a command, as in stdio:trl serve --stdio")
        return Address("stdio", argv=argv)
    if "://" in text:
        url = urlsplit(text)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or url.username:
            raise ValueError("an address is unix:PATH, http://HOST:PORT, https://HOST:PORT or stdio:COMMAND")
        tls = url.scheme == "https"
        port = url.port if url.port is not None else (443 if tls else 80)
        return Address("http", path=url.path.rstrip("/"), host=url.hostname, port=port, tls=tls)
    return Address("unix", path=text)


def default_socket() -> str:
    """Where ``trl serve`` of this user listens when nobody says where."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        return os.path.join(runtime, "trl", "trl.sock")
    home = os.environ.get("HOME", "")
    if os.geteuid() == 0 or not home:
        return "/run/trl/trl.sock"
    return os.path.join(home, ".local", "state", "trl", "trl.sock")


# --- requests and answers ---


def encode_request(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    """Makes a request line. The id goes first, where a daemon that refuses the line for its length finds it."""
    text = json.dumps(
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}, separators=(",", ":"), allow_nan=False
    )
    return text.encode() + b"\n"


def decode_message(line: Union[bytes, bytearray]) -> Json:
    """Reads one message of the daemon."""
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError("what answers does not speak JSON-RPC", hint="is it a TRL daemon?")
    return message


def answer_of(message: Mapping[str, Any]) -> Any:
    """Returns the result of an answer, or raises its error."""
    error = message.get("error")
    if error is not None:
        raise from_wire(error)
    return message.get("result")


def repeatable(method: str, params: Mapping[str, Any]) -> bool:
    """Reports whether doing a call twice is the same as doing it once."""
    if method in METHODS and METHODS[method][2] == "read":
        return True
    if params.get("key"):
        return True
    if method == "exec.input":
        return params.get("at") is not None
    # Neither id is ever used again. A cancel by session is different: it could hit the next command.
    return method == "session.destroy" or (method == "exec.cancel" and not params.get("session_id"))


def new_key() -> str:
    return "py-" + secrets.token_hex(12)


def encode_bytes(data: Union[str, bytes]) -> Tuple[str, Optional[str]]:
    """Returns bytes as a JSON string value and its encoding: text, or base64 where they are not text."""
    if isinstance(data, str):
        if "\0" not in data:
            return data, None
        data = data.encode()
    elif b"\0" not in data:
        try:
            return bytes(data).decode(), None
        except UnicodeDecodeError:
            pass
    return binascii.b2a_base64(data, newline=False).decode(), "base64"


def decode_bytes(data: str, encoding: Optional[str]) -> bytes:
    if not encoding:
        return data.encode()
    if encoding == "base64":
        return binascii.a2b_base64(data)
    raise ProtocolError(f"the encoding {encoding!r} is not known", hint="this client is older than the daemon")


def milliseconds(seconds: Optional[float]) -> Optional[int]:
    """Rounds up: a timeout that is not zero must not become zero, which is none."""
    return None if seconds is None else -int(-seconds * 1000 // 1)


def given(**params: Any) -> Json:
    """The parameters that are not None."""
    return {name: value for name, value in params.items() if value is not None}


# --- what comes back ---


class Chunk:
    """A piece of a command's output, in a stream or from ``output``.

    ``type`` is ``stdout``, ``stderr``, ``gap`` (the daemon's quota dropped ``size`` bytes here) or ``exit`` (always
    the last of a stream, with ``result``). ``offset`` is the place of its first byte in all of the output, ``next``
    that of the byte after it. From ``output`` with ``times``, ``at`` is when it came, in seconds after the command began,
    and ``tty`` the new size of the terminal (``rows`` and ``cols``) in a chunk of the type ``resize``.
    """

    __slots__ = ("type", "offset", "next", "at", "tty", "result", "_data", "_encoding")

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.type: str = raw["type"]
        self.offset: int = raw["offset"]
        self._data: Union[str, bytes] = raw.get("data", "")
        self._encoding: Optional[str] = raw.get("encoding")
        at = raw.get("at_ms")
        self.at: Optional[float] = None if at is None else at / 1000
        self.tty: Optional[Mapping[str, int]] = raw.get("tty")
        result = raw.get("result")
        self.result: Optional[Result] = None if result is None else Result(result)
        after = raw.get("next")
        if after is None:
            after = self.offset + (raw.get("bytes") or len(self.data))
        self.next: int = after

    @property
    def data(self) -> bytes:
        """The bytes, exactly as the command wrote them; empty in a gap and an exit."""
        if isinstance(self._data, str):
            self._data = decode_bytes(self._data, self._encoding)
        return self._data

    @property
    def text(self) -> str:
        """The bytes as text; what is not UTF-8 becomes U+FFFD."""
        if isinstance(self._data, str) and not self._encoding:
            return self._data
        return self.data.decode("utf-8", "replace")

    @property
    def size(self) -> int:
        """How many bytes of the output it stands for, also of a gap."""
        return self.next - self.offset

    def __repr__(self) -> str:
        return f"Chunk(type={self.type!r}, offset={self.offset}, size={self.size})"


class CommandFailed(Exception):
    """What ``Result.check`` raises. ``result`` has all that is known."""

    def __init__(self, result: "Result") -> None:
        self.result = result
        tail = result.stderr[-2000:].strip()
        ended = result.outcome if result.exit_code is None else f"{result.outcome}, exit code {result.exit_code}"
        super().__init__(f"the command did not succeed: {ended}" + (f"\n{tail}" if tail else ""))


class Result:
    """How a command ended, or that it still runs. ``raw`` is the answer as it came."""

    __slots__ = ("raw",)

    def __init__(self, raw: ExecResult) -> None:
        self.raw = raw

    @property
    def exec_id(self) -> str:
        return self.raw["exec_id"]

    @property
    def session_id(self) -> str:
        return self.raw["session_id"]

    @property
    def state(self) -> ExecState:
        return self.raw["state"]

    @property
    def outcome(self) -> Outcome:
        """How it ended, in one word."""
        return self.raw["outcome"]

    @property
    def exit_code(self) -> Optional[int]:
        """None while it runs, and if it never ran or was killed with its session."""
        return self.raw["exit_code"]

    @property
    def ok(self) -> bool:
        """It ended by itself with exit code 0."""
        return self.exit_code == 0 and self.outcome in ("exited", "shell_exited")

    @property
    def running(self) -> bool:
        """It is not over: it runs, or waits for its session."""
        return self.state != "exited"

    @property
    def signal(self) -> Optional[str]:
        return self.raw.get("signal")

    @property
    def stdout(self) -> str:
        """Standard output as text; what is not UTF-8 becomes U+FFFD. See ``truncated``."""
        return self.stdout_data.decode("utf-8", "replace") if self.raw.get("stdout_encoding") else self.raw["stdout"]

    @property
    def stderr(self) -> str:
        """Standard error as text; what is not UTF-8 becomes U+FFFD. See ``truncated``."""
        return self.stderr_data.decode("utf-8", "replace") if self.raw.get("stderr_encoding") else self.raw["stderr"]

    @property
    def stdout_data(self) -> bytes:
        """Standard output as the bytes it was."""
        return decode_bytes(self.raw["stdout"], self.raw.get("stdout_encoding"))

    @property
    def stderr_data(self) -> bytes:
        """Standard error as the bytes it was."""
        return decode_bytes(self.raw["stderr"], self.raw.get("stderr_encoding"))

    @property
    def stdout_bytes(self) -> int:
        """How many bytes were captured in all, whatever ``stdout`` carries."""
        return self.raw["stdout_bytes"]

    @property
    def stderr_bytes(self) -> int:
        """How many bytes were captured in all, whatever ``stderr`` carries."""
        return self.raw["stderr_bytes"]

    @property
    def truncated(self) -> bool:
        """``stdout`` or ``stderr`` has only its head and tail; ``output`` and ``attach`` have the whole."""
        return self.raw["truncated"]

    @property
    def started_at(self) -> datetime:
        return parse_time(self.raw["started_at"])

    @property
    def duration(self) -> float:
        """Seconds, so far or in all."""
        return self.raw["duration_ms"] / 1000

    @property
    def timed_out(self) -> bool:
        return self.raw["timed_out"]

    @property
    def cancelled(self) -> bool:
        return self.raw["cancelled"]

    @property
    def cwd(self) -> Optional[str]:
        """The session's directory after the command."""
        return self.raw.get("cwd")

    @property
    def survivors(self) -> List[Process]:
        """What the command left running."""
        return self.raw.get("survivors", [])

    @property
    def rolled_back(self) -> bool:
        """The shell's state was lost: it is as it was after ``rolled_back_to``, or at the session's start."""
        return self.raw.get("rolled_back", False)

    @property
    def rolled_back_to(self) -> Optional[str]:
        return self.raw.get("rolled_back_to")

    @property
    def usage(self) -> Optional[Usage]:
        return self.raw.get("usage")

    def check(self) -> "Result":
        """Returns itself, or raises ``CommandFailed`` if it is not ``ok``."""
        if not self.ok:
            raise CommandFailed(self)
        return self

    def __repr__(self) -> str:
        return f"Result(exec_id={self.exec_id!r}, outcome={self.outcome!r}, exit_code={self.exit_code})"


class Written(int):
    """How many bytes of an input are the command's. ``next`` is the offset after them, None on a terminal."""

    next: Optional[int]
    unknown: bool
    """The daemon died while it typed this on a terminal: nobody knows how much of it, and a repeat types nothing."""

    def __new__(cls, taken: int, raw: Mapping[str, Any]) -> "Written":
        written = super().__new__(cls, taken)
        written.next = raw.get("next")
        written.unknown = raw.get("written") == "unknown"
        return written


@dataclass(frozen=True)
class Output:
    """What ``output`` read: chunks up to the offset ``next``, from which the next call goes on."""

    exec_id: str
    chunks: List[Chunk]
    next: int
    state: ExecState
    closed: bool  # nothing can come after next

    @property
    def data(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def parse_time(text: str) -> datetime:
    """Reads a time of the contract: RFC 3339 with milliseconds in UTC."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)


# --- trying again ---


@dataclass(frozen=True)
class Retry:
    """How lost connections are made good: streams go on at their offset, and calls that may be repeated are.

    The pauses grow by ``factor`` from ``initial`` to ``maximum`` seconds, each cut short at random so that many
    clients of a daemon that restarts do not come back as one. After ``total`` seconds without progress
    ``ConnectionLost`` is raised; 0 tries nothing twice. Any chunk is progress.
    """

    initial: float = 0.05
    maximum: float = 5.0
    factor: float = 2.0
    total: float = 60.0


def http_error(status: int, body: bytes) -> TRLError:
    """The error of an HTTP answer that is not 200: what the daemon says, or else what the status means."""
    try:
        message = json.loads(body)
    except ValueError:
        message = None
    if isinstance(message, dict) and isinstance(message.get("error"), dict):
        return from_wire(message["error"])
    if status in (502, 503, 504):
        return ConnectionLost(f"a proxy before the daemon answered with HTTP status {status}")
    code = {401: "UNAUTHORIZED", 403: "FORBIDDEN"}.get(status)
    if code is not None:
        data = {"code": code, "hint": "give connect a token that may do this"}
        return from_wire({"message": f"HTTP status {status}", "data": data})
    return ProtocolError(f"HTTP status {status}", hint="is this the address of a TRL daemon?")
