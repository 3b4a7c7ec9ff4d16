"""Files and ports on the session's machine, seen by small programs that run beside the session.

Each operation is a direct session of its own that ends with the session it belongs to. So it works while the session
is busy, and neither sees nor changes the state of its shell.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import posixpath
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, AsyncGenerator, AsyncIterable, AsyncIterator, BinaryIO, Iterable, List, Optional, Union

from . import _scripts as scripts
from . import _types as types
from ._errors import CallTimeout, TRLError

if TYPE_CHECKING:
    from .aio import Session, Stream

Path = Union[str, "os.PathLike[str]"]

#: What ``write`` takes: text, bytes, a file that is open for reading, or an iterable of bytes.
Data = Union[str, bytes, bytearray, memoryview, BinaryIO, Iterable[bytes], AsyncIterable[bytes]]

# PIECE_BYTES is how much of a file is sent in one call: far below the 8 MiB limit of a request.
PIECE_BYTES = 1 << 20

# MAX_MESSAGE is how much of a program's messages is kept.
MAX_MESSAGE = 4096


@dataclass(frozen=True)
class FileInfo:
    """An entry of a directory. ``type`` is ``file``, ``directory``, ``symlink`` or ``other``."""

    name: str
    path: str  # absolute
    type: str
    size: int  # in bytes
    mode: int  # the permissions, such as 0o644
    modified: float  # in seconds since 1970


TYPES = {"f": "file", "d": "directory", "l": "symlink"}

# REASONS maps the end of a program's message to the error it reports.
REASONS = {
    "No such file or directory": errno.ENOENT,
    "Permission denied": errno.EACCES,
    "Operation not permitted": errno.EPERM,
    "Is a directory": errno.EISDIR,
    "Not a directory": errno.ENOTDIR,
    "File exists": errno.EEXIST,
    "Directory not empty": errno.ENOTEMPTY,
    "Read-only file system": errno.EROFS,
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "File name too long": errno.ENAMETOOLONG,
    "Too many levels of symbolic links": errno.ELOOP,
}


def file_error(message: str, path: str) -> OSError:
    """Returns the error that a program reported, as ``open`` would raise it."""
    message = message.strip()
    for reason, number in REASONS.items():
        if message.endswith(reason):
            return OSError(number, os.strerror(number), path)
    return OSError(errno.EIO, message or "the program failed", path)


class Files:
    """The files of a session's machine. Relative paths start in the session's current directory.

    Errors are those of ``open``: ``FileNotFoundError``, ``PermissionError``, ``IsADirectoryError`` and so on. A path
    must be valid UTF-8.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Files(session_id={self._session.id!r})"

    async def stream(self, path: Path) -> AsyncGenerator[bytes, None]:
        """Reads a file in pieces, of any size."""
        position, whole = 0, False
        while not whole:
            program = await self._start(path, scripts.READ, str(position + 1))
            try:
                async for chunk in program.output():
                    position += len(chunk)
                    yield chunk
                whole = program.succeeded  # otherwise quota dropped output before it was read
            finally:
                await program.end()

    async def read(self, path: Path) -> bytes:
        """Returns the contents of a file."""
        return b"".join([piece async for piece in self.stream(path)])

    async def read_text(self, path: Path, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the contents of a file as text."""
        return (await self.read(path)).decode(encoding, errors)

    async def write(self, path: Path, data: Data, *, mode: Optional[int] = None) -> int:
        """Writes a file, and returns the number of bytes.

        The file is replaced in one step when everything has been written; until then, and after a failure, it is as it
        was. It keeps its mode and its owner; ``mode`` sets the mode. Text is encoded as UTF-8. A file object or an
        iterable is sent in pieces and never held as a whole.
        """
        temporary = f".trl-{secrets.token_hex(8)}"
        program = await self._start(path, scripts.WRITE, temporary, "" if mode is None else f"{mode:o}")
        try:
            sent = 0
            async for piece in pieces(data):
                await program.send(piece, sent)
                sent += len(piece)
            await program.send(b"", sent, eof=True)
            await program.finish()
            return sent
        finally:
            await program.end()

    async def list(self, path: Path = ".") -> List[FileInfo]:
        """Lists a directory, sorted by name, without ``.`` and ``..``."""
        program = await self._start(path, scripts.LIST)
        listing = await program.finish()
        found = [parse_entry(entry, program.path) for entry in listing.split(b"\0")[:-1]]
        return sorted(found, key=lambda each: each.name)

    async def exists(self, path: Path) -> bool:
        """Reports whether there is something at the path; a symbolic link counts, whatever it leads to."""
        try:
            await (await self._start(path, scripts.EXISTS)).finish()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def mkdir(self, path: Path) -> None:
        """Makes a directory, with the directories above it. One that exists is left as it is."""
        await (await self._start(path, scripts.MKDIR)).finish()

    async def remove(self, path: Path, *, recursive: bool = False) -> None:
        """Removes a file, a symbolic link or an empty directory; with ``recursive`` a directory and all in it."""
        await (await self._start(path, scripts.REMOVE, "all" if recursive else "")).finish()

    async def _start(self, path: Path, script: str, *arguments: str) -> "Program":
        text = os.fspath(path)
        if "\0" in text:
            raise ValueError("embedded null character in path")
        text.encode()  # the protocol has no other text than Unicode
        info = await self._session.info()
        cwd = info.get("cwd", "/")  # one that has ended has none, and is refused below
        text = cwd if text == "." else posixpath.join(cwd, text)
        return Program(await beside(self._session, info, "files", [script, "trl", text, *arguments]), text)


class Program:
    """The program behind one operation."""

    def __init__(self, direct: "Session", path: str) -> None:
        self.path = path
        self.succeeded = False
        self._client = direct.client
        self._exec_id = direct.exec_id or ""
        self._over = False
        self._stream: "Stream" = direct.attach()

    async def output(self) -> AsyncIterator[bytes]:
        """Yields what the program writes until it has ended, or until output is missing. Raises if it fails."""
        message = b""
        async for chunk in self._stream:
            if chunk.type == "stdout":
                yield chunk.data
            elif chunk.type == "stderr":
                message = (message + chunk.data)[-MAX_MESSAGE:]
            elif chunk.type == "gap":
                return
            elif chunk.result is not None:
                self._over = True
                if not chunk.result.ok:
                    raise file_error(message.decode("utf-8", "replace"), self.path)
                self.succeeded = True

    async def finish(self) -> bytes:
        """Waits for the program, and returns what it wrote."""
        try:
            return b"".join([data async for data in self.output()])
        finally:
            await self.end()

    async def send(self, data: bytes, at: int, eof: bool = False) -> None:
        """Sends input. If the program has ended, its error is the one to raise."""
        try:
            await self._client.input(self._exec_id, data, at=at, eof=eof)
        except TRLError:
            if not (await self._client.exec_info(self._exec_id)).running:
                await self.finish()
            raise

    async def end(self) -> None:
        """Stops the program if it is still running."""
        await self._stream.close()
        if not self._over:
            self._over = True
            with contextlib.suppress(TRLError):
                await self._client.cancel(self._exec_id)


async def beside(
    session: "Session", info: types.SessionInfo, name: str, words: List[str], timeout: Optional[float] = None
) -> "Session":
    """Runs a shell script beside a session, for no longer than that lives. A token may require the session's tags."""
    return await session.client.session(
        argv=["/bin/sh", "-c", *words],
        name=name,
        cwd="/",
        env={"LC_ALL": "C"},
        parent=session.id,
        tags=info.get("tags"),
        timeout=timeout,
    )


def parse_entry(entry: bytes, directory: str) -> FileInfo:
    kind, mode, size, modified, name = os.fsdecode(entry).split(" ", 4)
    path = posixpath.join(directory, name)
    return FileInfo(name, path, TYPES.get(kind, "other"), int(size), int(mode, 8), float(modified))


async def pieces(data: Data) -> AsyncIterator[bytes]:
    """Yields data in pieces that fit into one call."""
    async for part in _parts(data):
        view = memoryview(part)  # raises TypeError for what is not bytes
        for start in range(0, len(view), PIECE_BYTES):
            yield bytes(view[start : start + PIECE_BYTES])


async def _parts(data: Any) -> AsyncIterator[Any]:
    if isinstance(data, str):
        yield data.encode()
    elif isinstance(data, (bytes, bytearray, memoryview)):
        yield data
    elif hasattr(data, "read"):
        while True:
            part = data.read(PIECE_BYTES)
            if not part:
                return
            yield part
    elif hasattr(data, "__aiter__"):
        async for part in data:
            yield part
    else:
        for part in data:
            yield part


async def wait_for_port(session: "Session", port: int, host: Optional[str], timeout: Optional[float]) -> None:
    """Waits until a socket of the session's machine listens on a TCP port."""
    if not 0 < port < 1 << 16:
        raise ValueError("a port is a number from 1 to 65535")
    words = [scripts.PORT, "trl", f"{port:04X}", *listeners(host)]
    program = await beside(session, await session.info(), "port", words, timeout)
    waiting = session.client.exec(program.exec_id or "")
    try:
        result = await waiting.wait()
    except BaseException:
        with contextlib.suppress(TRLError):
            await waiting.cancel()
        raise
    if result.timed_out:
        raise CallTimeout(f"nothing listens on port {port} after {timeout} s", hint="read the output of the server")
    result.check()


def listeners(host: Optional[str]) -> List[str]:
    """Returns the addresses of sockets that a connection to a host reaches, as in /proc/net/tcp; none means any."""
    if host is None:
        return []
    wildcards = [bytes(4), bytes(16)]
    named = [ipaddress.ip_address(each) for each in (("127.0.0.1", "::1") if host == "localhost" else (host,))]
    mapped = [bytes(10) + b"\xff\xff" + each.packed for each in named if each.version == 4]
    return [_words(packed) for packed in (*wildcards, *(each.packed for each in named), *mapped)]


def _words(packed: bytes) -> str:
    """Returns an address as the kernel of a little-endian machine writes it: by words of four bytes."""
    return "".join(packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))
