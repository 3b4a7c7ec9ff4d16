"""Retries: repeats calls that are safe to repeat, and resumes streams after a lost connection."""

from __future__ import annotations

import random
import ssl
import time
from typing import Any, Mapping, Optional

from ._transport import Transport, Feed, HTTPTransport, Position, StdioTransport, UnixTransport
from ._errors import ConnectionLost, NoDaemon, ProtocolError, RuntimeUnavailable, TRLError, from_wire
from ._io import IO
from ._wire import Address, Chunk, Json, Retry, reads, repeatable


def make_transport(io: IO, address: Address, token: Optional[str], tls: Optional[ssl.SSLContext]) -> Transport:
    if address.kind == "http":
        return HTTPTransport(io, address, token, tls)
    if address.kind == "stdio":
        return StdioTransport(io, address.argv)
    return UnixTransport(io, address.path)


class Backoff:
    """The pauses between attempts, as configured by ``Retry``."""

    def __init__(self, io: IO, retry: Retry) -> None:
        self._io = io
        self._retry = retry
        self._since: Optional[float] = None  # when the failures began
        self._pause = retry.initial
        self._connected: Optional[float] = None  # when the current connection was made

    def progress(self) -> None:
        self._since = None
        self._pause = self._retry.initial

    def connected(self) -> None:
        """Records a new connection. If it lasts, that counts as progress even if nothing is received."""
        self._connected = time.monotonic()

    @property
    def failing(self) -> bool:
        return self._since is not None

    async def wait(self, cause: TRLError, deadline: Optional[float] = None, at_least: float = 0.0) -> None:
        """Waits before the next attempt, or raises the cause if the time is up."""
        now = time.monotonic()
        if self._connected is not None and now - self._connected > self._retry.maximum:
            self.progress()
        self._connected = None
        if self._since is None:
            self._since = now
        left = self._since + self._retry.total - now
        if deadline is not None:
            left = min(left, deadline - now)
        if left <= at_least:
            raise cause
        pause = at_least + random.uniform(0, self._pause)  # fully random: this spreads clients best
        self._pause = min(self._pause * self._retry.factor, self._retry.maximum)
        await self._io.sleep(min(pause, left))


def _retry_after(error: RuntimeUnavailable, safe: bool) -> float:
    """Returns the seconds to wait before a retry, or raises an error that does not ask for one.

    A call that may have been executed is repeated only if that is safe.
    """
    after = error.details.get("retry_after_ms")
    if not isinstance(after, (int, float)) or (error.details.get("sent") == "maybe" and not safe):
        raise error
    return after / 1000


class Core:
    """A transport, with the retry rules for when it fails."""

    def __init__(self, io: IO, transport: Transport, retry: Retry, call_timeout: Optional[float]) -> None:
        self.io = io
        self.transport = transport
        self.retry = retry if transport.resumes else Retry(total=0)
        self._call_timeout = call_timeout

    def deadline(self, call_timeout: Optional[float]) -> Optional[float]:
        timeout = self._call_timeout if call_timeout is None else call_timeout
        return None if timeout is None else time.monotonic() + timeout

    async def call(self, method: str, params: Mapping[str, Any], call_timeout: Optional[float] = None) -> Any:
        deadline = self.deadline(call_timeout)
        backoff = Backoff(self.io, self.retry)
        executed = False  # whether an attempt may have been executed
        while True:
            try:
                return await self.transport.call(method, params, deadline)
            except NoDaemon as error:
                if not backoff.failing:  # there was no connection to lose: the caller decides whether to wait
                    raise
                await backoff.wait(error, deadline)
            except ConnectionLost as error:
                if not repeatable(method, params):
                    raise
                executed = True
                await backoff.wait(error, deadline)
            except RuntimeUnavailable as error:
                executed = executed or error.details.get("sent") == "maybe"
                if executed and error.details.get("sent") == "no" and not reads(method):
                    error.details["sent"] = "maybe"  # the daemon knows only of the last attempt
                    error.hint = "the call may have been executed: check exec.list and session.list before you repeat it"
                await backoff.wait(error, deadline, _retry_after(error, repeatable(method, params)))


class Follow:
    """Reads an exec from a position, over as many connections as necessary.

    Each chunk must start where the last one ended, so that a duplicate or missing byte is always detected.
    """

    def __init__(self, core: Core, position: Position) -> None:
        self._core = core
        self._feed: Optional[Feed] = None
        self._backoff = Backoff(core.io, core.retry)
        self.position = position
        self.finished = False
        self._forgotten: Optional[TRLError] = None  # why the stream ended without an exit

    async def open(self, call_timeout: Optional[float] = None) -> None:
        """Waits until the daemon has accepted the command, or found it."""
        deadline = self._core.deadline(call_timeout)
        while self._feed is None:
            await self._attempt(deadline)

    async def _attempt(self, deadline: Optional[float]) -> None:
        first = self.position.exec_id is None and not self._backoff.failing
        safe = self.position.exec_id is not None or repeatable("exec.stream", self.position.start or {})
        try:
            self._feed = await self._core.transport.follow(self.position, deadline)
            self._backoff.connected()
        except NoDaemon as error:
            if first:
                raise
            await self._backoff.wait(error, deadline)
        except ConnectionLost as error:
            if not safe:
                raise
            await self._backoff.wait(error, deadline)
        except RuntimeUnavailable as error:
            await self._backoff.wait(error, deadline, _retry_after(error, safe))

    async def next(self) -> Optional[Chunk]:
        """Returns the next chunk, or None after the exit."""
        if self._forgotten is not None:
            raise self._forgotten
        while not self.finished:
            if self._feed is None:
                await self._attempt(None)
                continue
            try:
                raw = await self._feed.next()
                if raw["type"] == "error":
                    # The place of the command no longer knows it, so there is nothing to resume.
                    self._forgotten = from_wire(raw["error"])
                    raise self._forgotten
                chunk = Chunk(raw)
            except ConnectionLost as error:
                self.abandon()
                await self._backoff.wait(error)
                continue
            except BaseException:
                # Interrupted in the middle of a chunk. The next call resumes at the position, over a new connection.
                self.abandon()
                raise
            if chunk.offset != self.position.offset or chunk.next < chunk.offset:
                self.abandon()
                raise ProtocolError(f"the stream continued at {chunk.offset} instead of {self.position.offset}")
            self._backoff.progress()
            self.position.offset = chunk.next
            if chunk.type == "exit":
                self.finished = True
                self.abandon()
            return chunk
        return None

    def abandon(self) -> None:
        if self._feed is not None:
            self._feed.abandon()
            self._feed = None


class Events:
    """Reads session events. The daemon does not keep events while the connection is lost, so a reconnect is reported
    as a ``gap`` event."""

    def __init__(self, core: Core, params: Json) -> None:
        self._core = core
        self._params = params
        self._feed: Optional[Feed] = None
        self._backoff = Backoff(core.io, core.retry)
        self._opened = False

    async def open(self, call_timeout: Optional[float] = None) -> None:
        self._feed = await self._core.transport.watch(self._params, self._core.deadline(call_timeout))
        self._backoff.connected()
        self._opened = True

    async def next(self) -> Json:
        while True:
            try:
                if self._feed is None:
                    again = self._opened
                    await self.open()
                    if again:
                        return {"stream_id": "", "type": "gap", "at": _now()}
                assert self._feed is not None
                event = await self._feed.next()
            except (ConnectionLost, NoDaemon) as error:
                self.abandon()
                if not self._opened:
                    raise
                await self._backoff.wait(error)
                continue
            except BaseException:
                self.abandon()
                raise
            self._backoff.progress()
            return event

    def abandon(self) -> None:
        if self._feed is not None:
            self._feed.abandon()
            self._feed = None

    async def close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            await feed.close()


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
