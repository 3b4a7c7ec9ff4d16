"""Blocking and asyncio I/O behind one interface.

All logic above this module is written once, as coroutines. ``AsyncIO`` runs them on an event loop. With ``BlockingIO``
every operation blocks inside the coroutine, so that it never suspends, and ``drive`` runs it to completion in the
caller's thread: there is no event loop, and an interrupt unwinds it like any other function.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import select
import socket
import ssl
import subprocess
import threading
import time
from typing import Any, AsyncContextManager, Awaitable, Coroutine, Generic, Optional, TypeVar, cast

from . import _trust
from ._errors import CallTimeout, ConnectionLost, NoDaemon, ProtocolError, TRLError

T = TypeVar("T")

# READ_BYTES is the maximum size of one read: a chunk of a stream has up to 128 KiB, a third more in base64.
READ_BYTES = 256 << 10


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine over ``BlockingIO`` to completion."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    work.close()
    raise RuntimeError("a coroutine over blocking I/O suspended")


def remaining(deadline: Optional[float]) -> Optional[float]:
    """Returns the seconds left until a deadline of ``time.monotonic``. Raises if there are none."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise timed_out()
    return left


def timed_out() -> CallTimeout:
    return CallTimeout(
        "no answer within call_timeout",
        hint="the daemon continues what the call started: check exec.list or session.info before you repeat it",
    )


def lost(cause: object) -> ConnectionLost:
    return ConnectionLost(
        f"the connection to the daemon ended: {cause}",
        hint="it is unknown whether the call had its effect: check session.list or exec.list before you repeat it",
    )


START_HINT = "start one with `trl serve --detach`, or call connect with start=True"


def no_daemon(address: str, cause: object) -> TRLError:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ProtocolError(
            f"the certificate of {address} is not trusted: {cause.verify_message}",
            hint="pass connect a tls= context that trusts it",
        )
    return NoDaemon(f"no TRL daemon answers at {address}: {cause}", hint=START_HINT)


class ByteStream:
    """One connection as a byte stream. Not safe for concurrent use."""

    async def receive(self, deadline: Optional[float] = None) -> bytes:
        """Waits for data and returns up to ``READ_BYTES``; empty at the end."""
        raise NotImplementedError

    async def send(self, data: bytes, deadline: Optional[float] = None) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Closes the sending side."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the connection at once, even during an operation."""
        raise NotImplementedError

    def fileno(self) -> int:
        raise NotImplementedError

    def stale(self) -> bool:
        """Reports whether an idle connection is unusable: the peer closed it, or sent something unexpected."""
        fd = self.fileno()
        if fd < 0:
            return True
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))


class Mailbox(Generic[T]):
    """A queue between the reader of a connection and a waiter."""

    def put(self, item: T) -> None:
        raise NotImplementedError

    async def get(self, deadline: Optional[float] = None) -> T:
        raise NotImplementedError

    def size(self) -> int:
        raise NotImplementedError


class IO:
    """The operations that differ between blocking code and asyncio."""

    async def open_unix(self, path: str, deadline: Optional[float] = None) -> ByteStream:
        raise NotImplementedError

    async def open_tcp(
        self, host: str, port: int, tls: Optional[ssl.SSLContext], deadline: Optional[float] = None
    ) -> ByteStream:
        raise NotImplementedError

    async def adopt(self, sock: socket.socket) -> ByteStream:
        """Wraps a connected socket in a stream, which then owns it."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def wait_process(self, process: "subprocess.Popen[bytes]", seconds: float) -> bool:
        """Waits for a process to exit, and reports whether it has."""
        raise NotImplementedError

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work in the background. It must end by itself and not raise."""
        raise NotImplementedError

    def mailbox(self) -> Mailbox[Any]:
        raise NotImplementedError

    def lock(self) -> AsyncContextManager[Any]:
        raise NotImplementedError


def _keep_alive(sock: Any) -> None:
    """Makes the kernel detect a vanished peer within about two minutes, even while a stream is quiet."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# --- blocking ---


class _SocketStream(ByteStream):
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._timeout: Optional[float] = None
        self._buffer = memoryview(bytearray(READ_BYTES))
        sock.settimeout(None)

    def _limit(self, deadline: Optional[float]) -> None:
        timeout = remaining(deadline)
        if timeout != self._timeout:
            self._sock.settimeout(timeout)
            self._timeout = timeout

    async def receive(self, deadline: Optional[float] = None) -> bytes:
        try:
            self._limit(deadline)
            return bytes(self._buffer[: self._sock.recv_into(self._buffer)])
        except socket.timeout:
            raise timed_out() from None
        except OSError as error:
            raise lost(error) from error

    async def send(self, data: bytes, deadline: Optional[float] = None) -> None:
        try:
            self._limit(deadline)
            self._sock.sendall(data)
        except socket.timeout:
            raise timed_out() from None
        except OSError as error:
            raise lost(error) from error

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        # A shutdown also wakes another thread that is reading; close alone does not.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def fileno(self) -> int:
        return self._sock.fileno()


class _ThreadMailbox(Mailbox[T]):
    def __init__(self) -> None:
        self._queue: "queue.SimpleQueue[T]" = queue.SimpleQueue()

    def put(self, item: T) -> None:
        self._queue.put(item)

    async def get(self, deadline: Optional[float] = None) -> T:
        try:
            return self._queue.get(timeout=remaining(deadline))
        except queue.Empty:
            raise timed_out() from None

    def size(self) -> int:
        return self._queue.qsize()


class _ThreadLock:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class BlockingIO(IO):
    async def open_unix(self, path: str, deadline: Optional[float] = None) -> ByteStream:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(remaining(deadline))
            user = _trust.server(path)
            sock.connect(path)
            _trust.reach(sock, path, user)
        except socket.timeout:
            sock.close()
            raise timed_out() from None
        except OSError as error:
            sock.close()
            raise no_daemon(path, error) from error
        except BaseException:
            sock.close()
            raise
        return _SocketStream(sock)

    async def open_tcp(
        self, host: str, port: int, tls: Optional[ssl.SSLContext], deadline: Optional[float] = None
    ) -> ByteStream:
        sock: Optional[socket.socket] = None
        try:
            sock = socket.create_connection((host, port), remaining(deadline))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(sock)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=host)
        except BaseException as error:
            if sock is not None:
                sock.close()
            if isinstance(error, socket.timeout) and deadline is not None:
                raise timed_out() from None
            if isinstance(error, OSError) and not isinstance(error, CallTimeout):
                raise no_daemon(f"{host}:{port}", error) from error
            raise
        return _SocketStream(sock)

    async def adopt(self, sock: socket.socket) -> ByteStream:
        return _SocketStream(sock)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def wait_process(self, process: "subprocess.Popen[bytes]", seconds: float) -> bool:
        return _wait_process(process, seconds)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        threading.Thread(target=drive, args=(work,), name="trl-reader", daemon=True).start()

    def mailbox(self) -> Mailbox[Any]:
        return _ThreadMailbox()

    def lock(self) -> AsyncContextManager[Any]:
        return _ThreadLock()


def _wait_process(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


# --- asyncio ---


async def _within(work: Awaitable[T], deadline: Optional[float]) -> T:
    if deadline is None:
        return await work
    try:
        return await asyncio.wait_for(work, max(0.0, deadline - time.monotonic()))
    except asyncio.TimeoutError:
        raise timed_out() from None


class _LoopStream(ByteStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self, deadline: Optional[float] = None) -> bytes:
        try:
            return await _within(self._reader.read(READ_BYTES), deadline)
        except OSError as error:
            if isinstance(error, CallTimeout):
                raise
            raise lost(error) from error

    async def send(self, data: bytes, deadline: Optional[float] = None) -> None:
        try:
            self._writer.write(data)
            await _within(self._writer.drain(), deadline)
        except OSError as error:
            if isinstance(error, CallTimeout):
                raise
            raise lost(error) from error

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the connection with it
            self._writer.transport.abort()

    def fileno(self) -> int:
        if self._reader.at_eof() or self._writer.transport.is_closing():
            return -1
        sock = self._writer.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())


class _LoopMailbox(Mailbox[T]):
    def __init__(self) -> None:
        self._queue: "asyncio.Queue[T]" = asyncio.Queue()

    def put(self, item: T) -> None:
        self._queue.put_nowait(item)

    async def get(self, deadline: Optional[float] = None) -> T:
        return await _within(self._queue.get(), deadline)

    def size(self) -> int:
        return self._queue.qsize()


class AsyncIO(IO):
    def __init__(self) -> None:
        self._tasks: "set[asyncio.Task[None]]" = set()  # the loop keeps only weak references

    async def open_unix(self, path: str, deadline: Optional[float] = None) -> ByteStream:
        try:
            user = _trust.server(path)
            reader, writer = await _within(asyncio.open_unix_connection(path, limit=READ_BYTES), deadline)
            try:
                _trust.reach(writer.get_extra_info("socket"), path, user)
            except BaseException:
                writer.close()
                raise
            return _LoopStream(reader, writer)
        except OSError as error:
            if isinstance(error, CallTimeout):
                raise
            raise no_daemon(path, error) from error

    async def open_tcp(
        self, host: str, port: int, tls: Optional[ssl.SSLContext], deadline: Optional[float] = None
    ) -> ByteStream:
        try:
            opened = asyncio.open_connection(host, port, ssl=tls, limit=READ_BYTES)
            reader, writer = await _within(opened, deadline)
            _keep_alive(writer.get_extra_info("socket"))
        except OSError as error:
            if isinstance(error, CallTimeout):
                raise
            raise no_daemon(f"{host}:{port}", error) from error
        return _LoopStream(reader, writer)

    async def adopt(self, sock: socket.socket) -> ByteStream:
        return _LoopStream(*await asyncio.open_connection(sock=sock, limit=READ_BYTES))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_process(self, process: "subprocess.Popen[bytes]", seconds: float) -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, _wait_process, process, seconds)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def mailbox(self) -> Mailbox[Any]:
        return _LoopMailbox()

    def lock(self) -> AsyncContextManager[Any]:
        return asyncio.Lock()
