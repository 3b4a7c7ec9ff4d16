"""The contract as values: addresses, requests, answers, chunks and results. It does no I/O."""

from __future__ import annotations

import binascii
import json
import os
import secrets
import shlex
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

from ._errors import ConnectionLost, ProtocolError, TRLError, from_wire
from ._types import METHODS, ExecResult, ExecState, ResultFields

Json = Dict[str, Any]

# OPENING lists the methods whose answer is followed by notifications on the same connection.
OPENING = frozenset({"exec.stream", "exec.attach", "session.watch"})


# --- where a daemon is ---


@dataclass(frozen=True)
class Address:
    """The address of a daemon: a Unix socket, an HTTP server, or a command that serves on its stdin and stdout."""

    kind: str  # "unix", "http" or "stdio"
    path: str = ""  # of the socket, or the prefix of HTTP paths
    host: str = ""
    port: int = 0
    tls: bool = False
    argv: Tuple[str, ...] = ()

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        if self.kind == "http":
            return f"http{'s' if self.tls else ''}://{self.authority}{self.path}"
        return f"{self.kind}:{shlex.join(self.argv) if self.kind == 'stdio' else self.path}"


def parse_address(address: Optional[Union[str, "os.PathLike[str]"]]) -> Address:
    """Parses an address. None means ``$TRL_ADDRESS``, ``$TRL_SOCKET``, or the default socket of this user's daemon."""
    if address is None:
        address = os.environ.get("TRL_ADDRESS")
    if not address:
        return Address("unix", path=os.environ.get("TRL_SOCKET") or default_socket())
    text = os.fspath(address)
    if text.startswith("unix:"):
        return Address("unix", path=text[len("unix:") :])
    if text.startswith("stdio:"):
        argv = tuple(shlex.split(text[len("stdio:") :]))
        if not argv:
            raise ValueError("stdio: needs a command, such as stdio:trl serve --stdio")
        return Address("stdio", argv=argv)
    if "://" in text:
        url = urlsplit(text)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or url.username:
            raise ValueError("the address must be unix:PATH, http://HOST:PORT, https://HOST:PORT or stdio:COMMAND")
        tls = url.scheme == "https"
        port = url.port if url.port is not None else (443 if tls else 80)
        return Address("http", path=url.path.rstrip("/"), host=url.hostname, port=port, tls=tls)
    return Address("unix", path=text)


def default_socket() -> str:
    """Returns where this user's ``trl serve`` listens by default."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        return os.path.join(runtime, "trl", "trl.sock")
    home = os.environ.get("HOME", "")
    if os.geteuid() == 0 or not home:
        return "/run/trl/trl.sock"
    return os.path.join(home, ".local", "state", "trl", "trl.sock")


# --- requests and answers ---


def encode_request(number: int, method: str, params: Mapping[str, Any]) -> bytes:
    """Builds a request line. The id goes first, where a daemon that refuses the line for its length still finds it."""
    text = json.dumps(
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}, separators=(",", ":"), allow_nan=False
    )
    return text.encode() + b"\n"


def decode_message(line: Union[bytes, bytearray]) -> Json:
    """Parses one message of the daemon."""
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError("the peer does not speak JSON-RPC", hint="is it a TRL daemon?")
    return message


def answer_of(message: Mapping[str, Any]) -> Any:
    """Returns the result of an answer, or raises its error."""
    error = message.get("error")
    if error is not None:
        raise from_wire(error)
    return message.get("result")


def reads(method: str) -> bool:
    """Reports whether a method changes nothing."""
    return method in METHODS and METHODS[method][2] == "read"


def repeatable(method: str, params: Mapping[str, Any]) -> bool:
    """Reports whether repeating a call has the same effect as making it once."""
    if reads(method) or params.get("key"):
        return True
    if method == "exec.input":
        return params.get("at") is not None
    # Ids are never reused. A cancel by session is different: it could cancel the next command.
    return method == "session.destroy" or (method == "exec.cancel" and not params.get("session_id"))


def new_key() -> str:
    return "py-" + secrets.token_hex(12)


def encode_bytes(data: Union[str, bytes]) -> Tuple[str, Optional[str]]:
    """Returns bytes as a JSON string value and its encoding: text, or base64 if they are not text."""
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
    raise ProtocolError(f"unknown encoding {encoding!r}", hint="this client is older than the daemon")


def milliseconds(seconds: Optional[float]) -> Optional[int]:
    """Converts seconds, rounding up: a non-zero timeout must not become 0, which means none."""
    return None if seconds is None else -int(-seconds * 1000 // 1)


def given(**params: Any) -> Json:
    """Returns the parameters that are not None."""
    return {name: value for name, value in params.items() if value is not None}


# --- what comes back ---


class Chunk:
    """A piece of a command's output, in a stream or from ``output``.

    ``type`` is ``stdout``, ``stderr``, ``gap`` (the daemon's quota dropped ``size`` bytes here) or ``exit`` (always
    the last of a stream, with ``result``). ``offset`` is the position of its first byte in the output, ``next`` that of
    the byte after it. From ``output`` with ``times``, ``at`` is when it was captured, in seconds since the command
    started, and ``tty`` is the new size of the terminal (``rows`` and ``cols``) in a chunk of type ``resize``.
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
        """The bytes, exactly as the command wrote them; empty for a gap and an exit."""
        if isinstance(self._data, str):
            self._data = decode_bytes(self._data, self._encoding)
        return self._data

    @property
    def text(self) -> str:
        """The bytes as text; invalid UTF-8 becomes U+FFFD."""
        if isinstance(self._data, str) and not self._encoding:
            return self._data
        return self.data.decode("utf-8", "replace")

    @property
    def size(self) -> int:
        """The number of output bytes that the chunk covers, also for a gap."""
        return self.next - self.offset

    def __repr__(self) -> str:
        return f"Chunk(type={self.type!r}, offset={self.offset}, size={self.size})"


class CommandFailed(Exception):
    """Raised by ``Result.check``. ``result`` has the details."""

    def __init__(self, result: "Result") -> None:
        self.result = result
        tail = result.stderr[-2000:].strip()
        ended = result.outcome if result.exit_code is None else f"{result.outcome}, exit code {result.exit_code}"
        super().__init__(f"the command failed: {ended}" + (f"\n{tail}" if tail else ""))


class Result(ResultFields):
    """The state and outcome of a command. ``raw`` is the original answer."""

    __slots__ = ()

    def __init__(self, raw: ExecResult) -> None:
        self.raw = raw

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0 and self.outcome in ("exited", "shell_exited")

    @property
    def running(self) -> bool:
        """Whether it still runs or waits for its session."""
        return self.state != "exited"

    @property
    def stdout(self) -> str:
        """Standard output as text; invalid UTF-8 becomes U+FFFD. See ``truncated``."""
        return self.stdout_data.decode("utf-8", "replace") if self.raw.get("stdout_encoding") else self.raw["stdout"]

    @property
    def stderr(self) -> str:
        """Standard error as text; invalid UTF-8 becomes U+FFFD. See ``truncated``."""
        return self.stderr_data.decode("utf-8", "replace") if self.raw.get("stderr_encoding") else self.raw["stderr"]

    @property
    def stdout_data(self) -> bytes:
        """Standard output as bytes."""
        return decode_bytes(self.raw["stdout"], self.raw.get("stdout_encoding"))

    @property
    def stderr_data(self) -> bytes:
        """Standard error as bytes."""
        return decode_bytes(self.raw["stderr"], self.raw.get("stderr_encoding"))

    def check(self) -> "Result":
        """Returns itself, or raises ``CommandFailed`` if it is not ``ok``."""
        if not self.ok:
            raise CommandFailed(self)
        return self

    def __repr__(self) -> str:
        return f"Result(exec_id={self.exec_id!r}, outcome={self.outcome!r}, exit_code={self.exit_code})"


class Written(int):
    """The number of input bytes accepted for the command. ``next`` is the offset after them, None on a terminal."""

    next: Optional[int]
    unknown: bool
    """Whether the daemon died while it typed this on a terminal: how much was typed is unknown; a repeat types nothing."""

    def __new__(cls, taken: int, raw: Mapping[str, Any]) -> "Written":
        written = super().__new__(cls, taken)
        written.next = raw.get("next")
        written.unknown = raw.get("written") == "unknown"
        return written


@dataclass(frozen=True)
class Output:
    """The result of ``output``: chunks up to the offset ``next``, where the next call continues."""

    exec_id: str
    chunks: List[Chunk]
    next: int
    state: ExecState
    closed: bool  # nothing can follow next

    @property
    def data(self) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


# --- trying again ---


@dataclass(frozen=True)
class Retry:
    """How to recover from lost connections: streams resume at their offset, and safe calls are repeated.

    The pauses grow by ``factor`` from ``initial`` to ``maximum`` seconds, each shortened at random so that many clients
    of a restarted daemon do not reconnect at once. After ``total`` seconds without progress ``ConnectionLost`` is
    raised; 0 disables retries. Any chunk is progress.
    """

    initial: float = 0.05
    maximum: float = 5.0
    factor: float = 2.0
    total: float = 60.0


def http_error(status: int, body: bytes) -> TRLError:
    """Returns the error of an HTTP answer other than 200: the daemon's, or one for the status."""
    try:
        message = json.loads(body)
    except ValueError:
        message = None
    if isinstance(message, dict) and isinstance(message.get("error"), dict):
        return from_wire(message["error"])
    if status in (502, 503, 504):
        return ConnectionLost(f"a proxy in front of the daemon answered with HTTP status {status}")
    code = {401: "UNAUTHORIZED", 403: "FORBIDDEN"}.get(status)
    if code is not None:
        data = {"code": code, "hint": "pass connect a token with the required scope"}
        return from_wire({"message": f"HTTP status {status}", "data": data})
    return ProtocolError(f"HTTP status {status}", hint="is this the address of a TRL daemon?")
