"""Transports: calls and streams over a Unix socket, HTTP, or the stdin and stdout of a daemon.

A transport makes one attempt; ``_core`` decides what to do after a lost connection. Over the socket and HTTP each call
uses a connection from a small pool, and each stream has its own: a slow reader delays no one else, the kernel's buffers
limit what is in transit, and an abandoned call leaves only a closed connection behind. All calls share the one pipe of
stdio, so its streams poll with ``exec.output`` instead.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import secrets
import socket
import ssl
import subprocess
import time
from collections import deque
from typing import Any, Awaitable, Callable, Deque, Dict, List, Mapping, Optional, Tuple
from urllib.parse import quote

from ._errors import ConnectionLost, ProtocolError, TRLError, from_wire
from ._io import IO, READ_BYTES, ByteStream, Mailbox, lost, no_daemon
from ._wire import OPENING, Address, Json, answer_of, decode_message, encode_request, http_error

# MAX_LINE_BYTES limits an answer: two streams of 4 MiB each, all control characters, which JSON writes as six bytes
# each.
MAX_LINE_BYTES = 64 << 20

# MAX_IDLE is the number of idle connections to keep: as many as threads that usually call concurrently.
MAX_IDLE = 8

# MAX_IDLE_SECONDS is how long to keep them. The daemon closes an idle HTTP connection after two minutes, proxies often
# after one: a call sent at that moment would be lost.
MAX_IDLE_SECONDS = 30.0

# MAX_QUEUED_EVENTS is how many events of a watch over stdio are queued for their reader before some are dropped, which
# a gap event then reports.
MAX_QUEUED_EVENTS = 1024

# STDIO_GRACE is how long a stdio daemon may take to end its sessions: more than twice its own grace period of 5 s.
STDIO_GRACE = 15.0

Receive = Callable[[Optional[float]], Awaitable[bytes]]


class Feed:
    """The notifications after the answer to a method that opened a stream."""

    async def next(self) -> Json:
        """Returns the params of the next notification, or raises ``ConnectionLost``."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Releases the feed's resources at once."""

    async def close(self) -> None:
        """Ends the stream."""
        self.abandon()


class Position:
    """The position of a reader in an exec. It outlives the connections."""

    def __init__(self, exec_id: Optional[str], offset: int, start: Optional[Json]) -> None:
        self.exec_id = exec_id  # None until the daemon has accepted the command
        self.offset = offset
        self.start = start  # the params of exec.stream, if the command must still be started


class Transport:
    resumes = True  # whether a new connection can continue the work of a lost one

    async def open(self, deadline: Optional[float]) -> None:
        """Connects, so that an address without a daemon fails early."""
        raise NotImplementedError

    async def call(self, method: str, params: Mapping[str, Any], deadline: Optional[float]) -> Any:
        raise NotImplementedError

    async def follow(self, position: Position, deadline: Optional[float]) -> Feed:
        raise NotImplementedError

    async def watch(self, params: Json, deadline: Optional[float]) -> Feed:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Lines:
    """Splits incoming bytes into lines and pieces. It is unusable after an exception."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._buffer = b""
        self._at = 0

    async def line(self, deadline: Optional[float] = None) -> bytes:
        """Returns the next line without its newline."""
        found = self._buffer.find(b"\n", self._at)
        if found >= 0:
            line = self._buffer[self._at : found]
            self._at = found + 1
            return line
        parts = [self._buffer[self._at :]]
        size = len(parts[0])
        while True:
            data = await self._more(deadline)
            found = data.find(b"\n")
            if found >= 0:
                break
            parts.append(data)
            size += len(data)
            if size > MAX_LINE_BYTES:
                raise ProtocolError("the answer is too long", hint="is it a TRL daemon?")
        parts.append(data[:found])
        self._buffer, self._at = data, found + 1
        return b"".join(parts)

    async def message(self, deadline: Optional[float] = None) -> bytes:
        """Returns the next line that is not empty: empty ones are the heartbeats of ``trl connect``."""
        while not (line := await self.line(deadline)):
            pass
        return line

    async def piece(self, most: int, deadline: Optional[float] = None) -> bytes:
        """Returns the available bytes, at least one."""
        if self._at >= len(self._buffer):
            self._buffer, self._at = await self._more(deadline), 0
        data = self._buffer[self._at : self._at + most]
        self._at += len(data)
        return data

    async def exactly(self, size: int, deadline: Optional[float] = None) -> bytes:
        parts: List[bytes] = []
        while size > 0:
            parts.append(await self.piece(size, deadline))
            size -= len(parts[-1])
        return b"".join(parts)

    async def _more(self, deadline: Optional[float]) -> bytes:
        data = await self._receive(deadline)
        if not data:
            raise lost("closed by the daemon")
        return data


# --- one connection ---


class Connection:
    """A connection for one call at a time. ``usable`` says whether it can be used for another call."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self.usable = True
        self.idle_since = time.monotonic()

    async def call(self, method: str, params: Mapping[str, Any], deadline: Optional[float]) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self.usable = False
        self.stream.close()


class LineConnection(Connection):
    """JSON-RPC, one message per line."""

    def __init__(self, stream: ByteStream) -> None:
        super().__init__(stream)
        self._lines = Lines(stream.receive)
        self._number = 0

    async def _send(self, message: bytes, deadline: Optional[float]) -> None:
        await self.stream.send(message, deadline)

    async def _message(self, deadline: Optional[float]) -> bytes:
        return await self._lines.message(deadline)

    async def call(self, method: str, params: Mapping[str, Any], deadline: Optional[float]) -> Any:
        self.usable = False
        self._number += 1
        request = encode_request(self._number, method, params)
        broken: Optional[ConnectionLost] = None
        try:
            await self._send(request, deadline)
        except ConnectionLost as error:
            broken = error  # the daemon may have sent the reason before it closed the connection
        while True:
            try:
                message = decode_message(await self._message(deadline))
            except ConnectionLost as error:
                raise broken or error
            number = message.get("id")
            if number == self._number:
                self.usable = broken is None and method not in OPENING
                return answer_of(message)
            if number is None and message.get("error") is not None:
                raise from_wire(message["error"])

    async def notification(self, stream_id: str) -> Json:
        """Waits for the next notification of a stream."""
        while True:
            message = decode_message(await self._message(None))
            params = message.get("params")
            if params is not None and params.get("stream_id") == stream_id:
                return dict(params)
            if message.get("error") is not None and message.get("id") is None:
                raise from_wire(message["error"])


class PushFeed(Feed):
    """Notifications on a dedicated connection."""

    def __init__(self, connection: LineConnection) -> None:
        self._connection = connection
        self._stream_id = ""

    async def open(self, method: str, params: Json, deadline: Optional[float]) -> Json:
        try:
            answer: Json = await self._connection.call(method, params, deadline)
            self._stream_id = answer["stream_id"]
            return answer
        except BaseException:
            self.abandon()
            raise

    async def next(self) -> Json:
        return await self._connection.notification(self._stream_id)

    def abandon(self) -> None:
        self._connection.close()


class HTTPConnection(Connection):
    """An HTTP/1.1 connection: one request and its answer after the other."""

    def __init__(self, stream: ByteStream, address: Address, token: Optional[str]) -> None:
        super().__init__(stream)
        self._lines = Lines(stream.receive)
        self._base = address.path
        self._head = f"Host: {address.authority}\r\nUser-Agent: trl-client-python\r\n"
        if token:
            self._head += f"Authorization: Bearer {token}\r\n"
        self._length: Optional[int] = None  # remaining bytes of the body; None: until the connection closes
        self._chunked = False

    async def call(self, method: str, params: Mapping[str, Any], deadline: Optional[float]) -> Any:
        body = encode_request(1, method, params)
        head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        status, headers = await self._exchange("POST", "/rpc", head, body, deadline)
        answer = await self._whole_body(deadline)
        self.usable = self._length is not None and headers.get("connection", "").lower() != "close"
        if status != 200:
            raise http_error(status, answer)
        return answer_of(decode_message(answer))

    async def events(self, path: str, head: str, deadline: Optional[float]) -> Lines:
        """Requests Server-Sent Events and returns their lines."""
        head += "Accept: text/event-stream\r\nCache-Control: no-store\r\n"
        status, _ = await self._exchange("GET", path, head, b"", deadline)
        if status != 200:
            raise http_error(status, await self._whole_body(deadline))
        return Lines(self._body)

    async def upgrade(self, deadline: Optional[float]) -> Lines:
        """Upgrades the connection to a WebSocket and returns its bytes."""
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        head = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        status, headers = await self._exchange("GET", "/ws", head, b"", deadline)
        if status != 101:
            raise http_error(status, await self._whole_body(deadline))
        digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        if headers.get("sec-websocket-accept") != base64.b64encode(digest).decode():
            raise ProtocolError("the answer is not a WebSocket handshake", hint="is this the address of a TRL daemon?")
        return self._lines

    async def _exchange(
        self, verb: str, path: str, head: str, body: bytes, deadline: Optional[float]
    ) -> Tuple[int, Dict[str, str]]:
        self.usable = False
        request = f"{verb} {self._base}{path} HTTP/1.1\r\n{self._head}{head}\r\n".encode("latin-1") + body
        broken: Optional[ConnectionLost] = None
        try:
            await self.stream.send(request, deadline)
        except ConnectionLost as error:
            broken = error  # a server that refuses a body may answer without reading it
        try:
            status, headers = await self._answer_head(deadline)
            while 100 <= status < 200 and status != 101:
                status, headers = await self._answer_head(deadline)
        except ConnectionLost as error:
            raise broken or error
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        length = headers.get("content-length")
        self._length = 0 if self._chunked else None if length is None else int(length)
        return status, headers

    async def _answer_head(self, deadline: Optional[float]) -> Tuple[int, Dict[str, str]]:
        words = (await self._lines.line(deadline)).decode("latin-1").split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise ProtocolError("the server does not speak HTTP/1.1", hint="is this the address of a TRL daemon?")
        headers: Dict[str, str] = {}
        while True:
            line = (await self._lines.line(deadline)).strip()
            if not line:
                return int(words[1]), headers
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()

    async def _body(self, deadline: Optional[float] = None) -> bytes:
        """Returns the next bytes of the body as they arrive; empty at its end."""
        if self._chunked and self._length == 0:
            self._length = int((await self._lines.line(deadline)).split(b";")[0], 16)
            if self._length == 0:
                while (await self._lines.line(deadline)).strip():
                    pass  # trailers
                self._chunked = False
        if self._length == 0:
            return b""
        if self._length is None:
            try:
                return await self._lines.piece(READ_BYTES, deadline)
            except ConnectionLost:
                return b""  # such a body ends with the connection
        data = await self._lines.piece(self._length, deadline)
        self._length -= len(data)
        if self._chunked and self._length == 0:
            await self._lines.line(deadline)
        return data

    async def _whole_body(self, deadline: Optional[float]) -> bytes:
        parts: List[bytes] = []
        size = 0
        while True:
            data = await self._body(deadline)
            if not data:
                return b"".join(parts)
            parts.append(data)
            size += len(data)
            if size > MAX_LINE_BYTES:
                raise ProtocolError("the answer is too long", hint="is this the address of a TRL daemon?")


class WebSocketConnection(LineConnection):
    """JSON-RPC, one message per WebSocket text message."""

    def __init__(self, stream: ByteStream, lines: Lines) -> None:
        super().__init__(stream)
        self._lines = lines

    async def _send(self, message: bytes, deadline: Optional[float]) -> None:
        await self._frame(0x1, message.rstrip(b"\n"), deadline)

    async def _frame(self, kind: int, payload: bytes, deadline: Optional[float]) -> None:
        size = len(payload)
        if size < 126:
            head = bytes((0x80 | kind, 0x80 | size))
        elif size < 1 << 16:
            head = bytes((0x80 | kind, 0x80 | 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((0x80 | kind, 0x80 | 127)) + size.to_bytes(8, "big")
        mask = secrets.token_bytes(4)
        stretched = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(stretched, "big")).to_bytes(size, "big")
        await self.stream.send(head + mask + masked, deadline)

    async def _message(self, deadline: Optional[float]) -> bytes:
        parts: List[bytes] = []
        while True:
            first, second = await self._lines.exactly(2, deadline)
            size = second & 0x7F
            if size >= 126:
                size = int.from_bytes(await self._lines.exactly(2 if size == 126 else 8, deadline), "big")
            if size > MAX_LINE_BYTES:
                raise ProtocolError("the answer is too long", hint="is this the address of a TRL daemon?")
            payload = await self._lines.exactly(size, deadline)
            kind = first & 0x0F
            if kind == 0x8:
                raise lost("closed by the daemon")
            if kind == 0x9:
                await self._frame(0xA, payload, deadline)
            elif kind in (0x0, 0x1, 0x2):
                parts.append(payload)
                if first & 0x80:
                    return b"".join(parts)


class EventFeed(Feed):
    """Chunks as Server-Sent Events, on a dedicated connection."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._connection = connection
        self._lines: Optional[Lines] = None

    async def open(self, position: Position, resumed: bool, deadline: Optional[float]) -> None:
        path = f"/v1/execs/{quote(position.exec_id or '', safe='')}/stream"
        head = ""
        if resumed:
            head = f"Last-Event-ID: {position.offset}\r\n"
        elif position.offset:
            path += f"?from={position.offset}"
        try:
            self._lines = await self._connection.events(path, head, deadline)
        except BaseException:
            self.abandon()
            raise

    async def next(self) -> Json:
        assert self._lines is not None
        kind = b"message"
        data: List[bytes] = []
        while True:
            line = await self._lines.line()
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif line.startswith(b"event:"):
                kind = line[6:].strip()
            elif not line.strip():
                if data and kind == b"chunk":
                    return decode_event(b"\n".join(data))
                if data and kind == b"error":
                    raise from_wire(decode_event(b"\n".join(data)))
                kind, data = b"message", []

    def abandon(self) -> None:
        self._connection.close()


def decode_event(data: bytes) -> Json:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise ProtocolError("an event is not JSON", hint="is this the address of a TRL daemon?")
    return event


# --- transports ---


class PooledTransport(Transport):
    """Calls over pooled connections."""

    def __init__(self, io: IO) -> None:
        self.io = io
        # Only append, pop and len are used, which are atomic, so threads need no lock.
        self._idle: Deque[Connection] = deque()
        self._closed = False

    async def connect(self, deadline: Optional[float]) -> Connection:
        raise NotImplementedError

    async def open(self, deadline: Optional[float]) -> None:
        self._keep(await self.connect(deadline))

    async def call(self, method: str, params: Mapping[str, Any], deadline: Optional[float]) -> Any:
        connection = await self._take(deadline)
        try:
            return await connection.call(method, params, deadline)
        finally:
            self._keep(connection)

    async def _take(self, deadline: Optional[float]) -> Connection:
        while not self._closed:
            try:
                connection = self._idle.pop()
            except IndexError:
                return await self.connect(deadline)
            if time.monotonic() - connection.idle_since < MAX_IDLE_SECONDS and not connection.stream.stale():
                return connection
            connection.close()
        raise RuntimeError("the client is closed")

    def _keep(self, connection: Connection) -> None:
        if connection.usable and not self._closed and len(self._idle) < MAX_IDLE:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
            if self._closed:  # closed in the meantime
                self._drain()
        else:
            connection.close()

    def _drain(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    async def close(self) -> None:
        self._closed = True
        self._drain()
        await self.io.sleep(0)  # an event loop closes sockets in its next iteration


class UnixTransport(PooledTransport):
    def __init__(self, io: IO, path: str) -> None:
        super().__init__(io)
        self._path = path

    async def connect(self, deadline: Optional[float]) -> LineConnection:
        return LineConnection(await self.io.open_unix(self._path, deadline))

    async def follow(self, position: Position, deadline: Optional[float]) -> Feed:
        feed = PushFeed(await self.connect(deadline))
        if position.exec_id is None:
            assert position.start is not None
            answer = await feed.open("exec.stream", position.start, deadline)
            position.exec_id = answer["exec_id"]
        else:
            await feed.open("exec.attach", {"exec_id": position.exec_id, "from": position.offset}, deadline)
        return feed

    async def watch(self, params: Json, deadline: Optional[float]) -> Feed:
        feed = PushFeed(await self.connect(deadline))
        await feed.open("session.watch", params, deadline)
        return feed


class HTTPTransport(PooledTransport):
    def __init__(self, io: IO, address: Address, token: Optional[str], tls: Optional[ssl.SSLContext]) -> None:
        super().__init__(io)
        if token and not (token.isascii() and token.isprintable()):
            raise ValueError("the token contains invalid characters")
        self._address = address
        self._token = token
        self._tls = (tls or ssl.create_default_context()) if address.tls else None

    async def connect(self, deadline: Optional[float]) -> HTTPConnection:
        stream = await self.io.open_tcp(self._address.host, self._address.port, self._tls, deadline)
        return HTTPConnection(stream, self._address, self._token)

    async def follow(self, position: Position, deadline: Optional[float]) -> Feed:
        resumed = position.exec_id is not None and position.offset > 0
        if position.exec_id is None:
            assert position.start is not None
            answer = await self.call("exec.stream", position.start, deadline)
            position.exec_id = answer["exec_id"]
        feed = EventFeed(await self.connect(deadline))
        await feed.open(position, resumed, deadline)
        return feed

    async def watch(self, params: Json, deadline: Optional[float]) -> Feed:
        connection = await self.connect(deadline)
        try:
            feed = PushFeed(WebSocketConnection(connection.stream, await connection.upgrade(deadline)))
        except BaseException:
            connection.close()
            raise
        await feed.open("session.watch", params, deadline)
        return feed


class StdioTransport(Transport):
    """A daemon that is started for this client and ends with it. All calls share its one connection."""

    resumes = False

    def __init__(self, io: IO, argv: Tuple[str, ...]) -> None:
        self.io = io
        self._argv = argv
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._stream: Optional[ByteStream] = None
        self._numbers = itertools.count(1)
        self._sending = io.lock()
        self._waiting: Dict[int, _Waiter] = {}
        self._watches: Dict[str, _MuxWatch] = {}
        self._ended = ""  # the reason; set before the waiters are woken

    async def open(self, deadline: Optional[float]) -> None:
        # One socket pair instead of two pipes, so that it is read and written like any other connection.
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(self._argv, stdin=theirs.fileno(), stdout=theirs.fileno())
            except OSError as error:
                ours.close()
                raise no_daemon(self._argv[0], error) from error
        self._stream = await self.io.adopt(ours)
        self.io.spawn(self._read(Lines(self._stream.receive)))
        try:
            await self.call("system.ping", {}, deadline)
        except ConnectionLost as error:
            await self.close()
            raise no_daemon(self._argv[0], "the command exited") from error
        except BaseException:
            self._stream.close()
            self._process.kill()  # it has no session yet
            self._process.wait()
            raise

    async def call(self, method: str, params: Mapping[str, Any], deadline: Optional[float]) -> Any:
        return answer_of(await self._ask(method, params, None, deadline))

    async def _ask(
        self, method: str, params: Mapping[str, Any], watch: Optional["_MuxWatch"], deadline: Optional[float]
    ) -> Json:
        assert self._stream is not None
        number = next(self._numbers)
        request = encode_request(number, method, params)
        waiter = _Waiter(self.io.mailbox(), watch)
        self._waiting[number] = waiter
        try:
            async with self._sending:
                if self._ended:
                    raise lost(self._ended)
                try:
                    # Without the deadline: a line must be sent completely, since others follow it.
                    await self._stream.send(request)
                except BaseException:
                    self._stream.close()  # part of a line may have been sent, so later lines could not be parsed
                    raise
            message = await waiter.box.get(deadline)
        finally:
            self._waiting.pop(number, None)
        if message is None:
            raise lost(self._ended)
        return message

    async def _read(self, lines: Lines) -> None:
        """Delivers incoming messages until the connection ends. It is the only reader."""
        try:
            while True:
                self._deliver(decode_message(await lines.message()))
        except TRLError as error:
            self._ended = error.message
        finally:
            self._ended = self._ended or "the reader was stopped"
            for waiter in self._waiting.copy().values():
                waiter.box.put(None)
            for watch in self._watches.copy().values():
                watch.box.put(None)

    def _deliver(self, message: Json) -> None:
        number = message.get("id")
        if number is not None:
            waiter = self._waiting.get(number)
            if waiter is None:
                return  # the call was abandoned
            result = message.get("result")
            if waiter.watch is not None and result is not None:
                # Events of the stream may arrive before the caller knows the stream's id.
                waiter.watch.stream_id = result["stream_id"]
                self._watches[result["stream_id"]] = waiter.watch
            waiter.box.put(message)
        elif message.get("method") == "session.event":
            watch = self._watches.get(message["params"]["stream_id"])
            if watch is not None:
                watch.deliver(message["params"])

    async def follow(self, position: Position, deadline: Optional[float]) -> Feed:
        if position.exec_id is None:
            assert position.start is not None
            # Answered at once: the command continues, and its output is polled.
            params = dict(position.start, yield_ms=1, max_output_bytes=0)
            position.exec_id = (await self.call("exec.run", params, deadline))["exec_id"]
        else:
            # Check that the exec and the offset exist, since no stream is opened that could report it.
            check = {"exec_id": position.exec_id, "from": position.offset, "max_bytes": 1}
            await self.call("exec.output", check, deadline)
        return PullFeed(self, position)

    async def watch(self, params: Json, deadline: Optional[float]) -> Feed:
        watch = _MuxWatch(self, self.io.mailbox())
        answer_of(await self._ask("session.watch", params, watch, deadline))
        return watch

    def forget(self, stream_id: str) -> None:
        self._watches.pop(stream_id, None)

    async def close(self) -> None:
        if self._stream is None or self._process is None:
            return
        self._stream.finish()  # at the end of its input the daemon ends its sessions and exits
        try:
            if not await self.io.wait_process(self._process, STDIO_GRACE):
                self._process.terminate()
                if not await self.io.wait_process(self._process, STDIO_GRACE):
                    self._process.kill()
                    self._process.wait()
        finally:
            self._stream.close()
            await self.io.sleep(0)


class _Waiter:
    __slots__ = ("box", "watch")

    def __init__(self, box: Mailbox[Optional[Json]], watch: Optional["_MuxWatch"]) -> None:
        self.box = box
        self.watch = watch


class _MuxWatch(Feed):
    def __init__(self, transport: StdioTransport, box: Mailbox[Optional[Json]]) -> None:
        self.box = box
        self.stream_id = ""
        self._transport = transport
        self._missed = 0

    def deliver(self, event: Json) -> None:
        if self.box.size() >= MAX_QUEUED_EVENTS:
            self._missed += 1
            return
        if self._missed:
            gap = {"stream_id": self.stream_id, "type": "gap", "at": event["at"], "missed": self._missed}
            self.box.put(gap)
            self._missed = 0
        self.box.put(event)

    async def next(self) -> Json:
        event = await self.box.get()
        if event is None:
            raise lost("closed by the daemon")
        return event

    def abandon(self) -> None:
        self._transport.forget(self.stream_id)

    async def close(self) -> None:
        self.abandon()
        with contextlib.suppress(TRLError):
            await self._transport.call("stream.close", {"stream_id": self.stream_id}, None)


class PullFeed(Feed):
    """A stream that polls ``exec.output``: the same chunks, one answer at a time."""

    # How long a poll waits for output. It ends as soon as there is some; this only limits how long the daemon holds a
    # call for a reader that is gone.
    WAIT_MS = 20_000

    def __init__(self, transport: Transport, position: Position) -> None:
        self._transport = transport
        self._exec_id = position.exec_id
        self._at = position.offset
        self._chunks: Deque[Json] = deque()
        self._result: Optional[Json] = None  # how the command ended, once it has
        self._end = 0  # where its own output ended: background processes may write forever

    async def next(self) -> Json:
        while not self._chunks:
            if self._result is not None and self._at >= self._end:
                return {"type": "exit", "offset": self._at, "next": self._at, "result": self._result}
            params = {"exec_id": self._exec_id, "from": self._at, "wait_ms": self.WAIT_MS}
            if self._result is not None:
                params["wait_ms"] = 100
            answer = await self._transport.call("exec.output", params, None)
            self._chunks.extend(answer["chunks"])
            self._at = answer["next"]
            if self._result is None and answer["state"] == "exited":
                result: Json = await self._transport.call("exec.info", {"exec_id": self._exec_id}, None)
                self._end = result["stdout_bytes"] + result["stderr_bytes"]
                self._result = result
        return self._chunks.popleft()
