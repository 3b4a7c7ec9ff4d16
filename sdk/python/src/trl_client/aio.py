"""The asyncio client: the same API as ``trl_client``, with ``await``.

::

    async with trl_client.aio.connect() as client:
        async with client.session(shell="bash") as s:
            print((await s.run("echo hello")).stdout)
            async for chunk in s.stream("make"):
                print(chunk.text, end="")

A client belongs to the event loop in which it was connected; its tasks may use it concurrently.
"""

from __future__ import annotations

import os
import ssl
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Generator,
    List,
    Mapping,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
    cast,
)

from . import _types as types
from ._transport import Transport, Position
from ._core import Core, Events, Follow, make_transport
from ._errors import InvalidParams, NoDaemon, SessionNotFound, SessionTerminated
from ._exec import NOW, Callback, Exec, Observer
from ._files import Files, wait_for_port
from ._io import IO, AsyncIO
from ._options import documented, params_of
from ._start import Start, start_daemon
from ._wire import (
    Chunk,
    Json,
    Output,
    Result,
    Retry,
    Written,
    encode_bytes,
    given,
    milliseconds,
    new_key,
    parse_address,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack  # type checkers have it; nothing needs it at run time

__all__ = ["Client", "Exec", "Files", "Session", "Stream", "Watch", "connect"]

# INPUT_BYTES is the maximum input of a command in one call: far below the 8 MiB limit of a request.
INPUT_BYTES = 1 << 20


_O = TypeVar("_O", bound="_Opening")


class _Opening:
    """A context manager that opens itself, and closes itself at the end."""

    async def open(self: _O) -> _O:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self: _O) -> _O:
        return await self.open()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        await self.close()


def connect(
    address: Optional[Union[str, "os.PathLike[str]"]] = None,
    *,
    token: Optional[str] = None,
    tls: Optional[ssl.SSLContext] = None,
    retry: Retry = Retry(),
    call_timeout: Optional[float] = None,
    start: Start = False,
) -> "Client":
    """Returns a client, to be used with ``async with`` or opened with ``await client.open()``.

    ``address`` is ``unix:PATH`` or a path, ``http://HOST:PORT``, ``https://HOST:PORT``, or ``stdio:COMMAND`` for a
    private daemon; default ``$TRL_ADDRESS``, ``$TRL_SOCKET``, or the default socket of this user's daemon. ``token`` is
    for HTTP, default ``$TRL_TOKEN``; ``tls`` is for https, default the system's certificates. ``call_timeout`` limits a
    call in seconds, default no limit. With ``start`` a daemon that should be on a Unix socket and is not is started, by
    ``trl serve --detach``; it stays when the client ends. ``start`` may be the path of the binary; default
    ``$TRL_BINARY``, or ``trl`` in the PATH.
    """
    return Client(AsyncIO(), address, token, tls, retry, call_timeout, start)


class Client(_Opening):
    """A client of a daemon, returned by ``connect``."""

    def __init__(
        self,
        io: IO,
        address: Optional[Union[str, "os.PathLike[str]"]],
        token: Optional[str],
        tls: Optional[ssl.SSLContext],
        retry: Retry,
        call_timeout: Optional[float],
        start: Start,
    ) -> None:
        self._io = io
        self._address = parse_address(address)
        self._token = token if token is not None else os.environ.get("TRL_TOKEN")
        self._tls = tls
        self._retry = retry
        self._call_timeout = call_timeout
        self._start = start
        self._opened: Optional[Core] = None
        self._transport: Optional[Transport] = None
        self._keyless = False  # the daemon is an older version that accepts keys only for commands

    @property
    def _core(self) -> Core:
        if self._opened is None:
            raise RuntimeError("the client is not connected: use it with 'async with', or await open() first")
        return self._opened

    async def open(self) -> "Client":
        """Connects; raises ``NoDaemon`` if none answers."""
        if self._opened is None:
            try:
                await self._connect()
            except NoDaemon:
                if not self._start or self._address.kind != "unix":
                    raise
                await start_daemon(self._io, self._address, self._start)
                await self._connect()
        return self

    async def _connect(self) -> None:
        transport = make_transport(self._io, self._address, self._token, self._tls)
        core = Core(self._io, transport, self._retry, self._call_timeout)
        await transport.open(core.deadline(None))
        self._transport, self._opened = transport, core

    @property
    def address(self) -> str:
        """Where the daemon is."""
        return str(self._address)

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    async def close(self) -> None:
        """Closes the connections. Sessions and commands continue, except over stdio, where the daemon exits."""
        if self._transport is not None:
            await self._transport.close()

    async def call(
        self,
        method: str,
        params: Optional[Mapping[str, Any]] = None,
        *,
        call_timeout: Optional[float] = None,
        **more: Any,
    ) -> Any:
        """Calls any method of the contract and returns its raw result."""
        return await self._core.call(method, {**(params or {}), **more}, call_timeout)

    # --- the daemon ---

    async def ping(self) -> types.PingResult:
        """Checks that the daemon answers."""
        return cast(types.PingResult, await self._core.call("system.ping", {}))

    async def info(self) -> types.SystemInfo:
        """Describes the daemon and what it can enforce on its machine."""
        return cast(types.SystemInfo, await self._core.call("system.info", {}))

    async def system_info(self) -> types.SystemInfo:
        """Does the same as ``info``, under the name of the protocol."""
        return await self.info()

    async def stats(self) -> types.SystemStats:
        """Counts what the daemon does and holds."""
        return cast(types.SystemStats, await self._core.call("system.stats", {}))

    async def upgrade(self) -> types.UpgradeResult:
        """Lets the binary that is now at the daemon's path take over its sessions. Only over a Unix socket."""
        return cast(types.UpgradeResult, await self._core.call("system.upgrade", {}))

    # --- places ---

    async def places(self) -> List[types.Place]:
        """Lists the places where sessions can run besides the daemon's machine."""
        return cast(List[types.Place], (await self._core.call("place.list", {}))["places"])

    async def add_place(self, runtime: str) -> types.Place:
        """Adds a place such as ``docker:web`` or ``ssh:host`` and connects to it."""
        return cast(types.Place, await self._core.call("place.add", {"runtime": runtime}))

    async def check_place(self, runtime: str) -> types.Place:
        """Connects to a place now. One that can't be reached is returned too, with the reason."""
        return cast(types.Place, await self._core.call("place.check", {"runtime": runtime}))

    async def remove_place(self, runtime: str, *, force: bool = False, forget: bool = False) -> types.PlaceRemoveResult:
        """Removes a place and everything TRL put there.

        ``force`` ends its sessions first. ``forget`` does nothing there: for a place that is gone for good.
        """
        params = given(runtime=runtime, force=force or None, forget=forget or None)
        return cast(types.PlaceRemoveResult, await self._core.call("place.remove", params))

    async def upgrade_place(self, runtime: str) -> types.Place:
        """Replaces the TRL of a place with the daemon's version. The sessions in it continue."""
        return cast(types.Place, await self._core.call("place.upgrade", {"runtime": runtime}))

    # --- sessions ---

    @documented
    def session(self, **options: Unpack[types.SessionOptions]) -> "_NewSession":
        """Starts a session: a shell, or with ``argv`` one command without a shell.

        ``async with`` destroys it at the end; with ``await`` it stays until it is destroyed. If no ``key`` is given, a
        random one is sent, so that a lost connection never creates two sessions; ``key=""`` sends none.
        ``types.SessionOptions`` describes all options.
        """
        params = params_of("session", options)
        key = params.pop("key", None)
        return _NewSession(self, params, key, options.get("call_timeout"))

    async def _keyed(self, method: str, params: Json, key: Optional[str], call_timeout: Optional[float] = None) -> Any:
        """Makes a call with a key, generated if ``key`` is None, unless an older daemon does not accept it here."""
        own = key is None
        if own and not self._keyless:
            key = new_key()
        try:
            return await self._core.call(method, {**params, "key": key} if key else params, call_timeout)
        except InvalidParams as error:
            if not own or self._keyless or error.details.get("field") != "key":
                raise
            self._keyless = True
            return await self._core.call(method, params, call_timeout)

    def get_session(self, session_id: str) -> "Session":
        """Returns a handle to an existing session, without calling the daemon."""
        return Session(self, session_id, None)

    async def sessions(
        self,
        *,
        state: Optional[types.State] = None,
        alive: bool = False,
        tag: Optional[str] = None,
        runtime: Optional[str] = None,
    ) -> List[types.Session]:
        """Lists sessions, oldest first; ``alive`` excludes those that have ended.

        Those in places out of reach are missing; ``unreachable`` of ``call("session.list")`` names the places.
        """
        answer = await self._core.call("session.list", given(state=state, alive=alive or None, tag=tag, runtime=runtime))
        return cast(List[types.Session], answer["sessions"])

    async def session_info(self, session_id: str) -> types.SessionInfo:
        """Returns a session with its execs and processes."""
        return cast(types.SessionInfo, await self._core.call("session.info", {"session_id": session_id}))

    async def destroy_session(self, session_id: str, *, force: bool = False) -> types.SessionDestroyResult:
        """Ends a session and returns when none of its processes is left. ``force`` skips the grace period."""
        params = given(session_id=session_id, force=force or None)
        return cast(types.SessionDestroyResult, await self._core.call("session.destroy", params))

    async def resize(
        self, session_id: str, rows: int, cols: int, *, lease: Optional[str] = None
    ) -> types.SessionResizeResult:
        """Changes the size of a session's terminal."""
        params = given(session_id=session_id, rows=rows, cols=cols, lease=lease)
        return cast(types.SessionResizeResult, await self._core.call("session.resize", params))

    async def hold(
        self,
        session_id: str,
        holder: str,
        *,
        lease: Optional[str] = None,
        force: bool = False,
        ttl: Optional[float] = None,
        answers: bool = False,
    ) -> types.SessionHoldResult:
        """Takes the keyboard lease of a session, or renews it with ``lease``; ``force`` takes it from its holder.

        It ends after ``ttl`` seconds.
        """
        params = given(
            session_id=session_id,
            holder=holder,
            lease=lease,
            force=force or None,
            ttl_ms=milliseconds(ttl),
            answers=answers or None,
        )
        return cast(types.SessionHoldResult, await self._core.call("session.hold", params))

    async def release(self, session_id: str, lease: str) -> types.SessionReleaseResult:
        """Releases the keyboard lease of a session."""
        params = {"session_id": session_id, "lease": lease}
        return cast(types.SessionReleaseResult, await self._core.call("session.release", params))

    async def screen(
        self, session_id: str, *, format: types.ScreenFormat = "text", scrollback: int = 0
    ) -> types.SessionScreenResult:
        """Returns the contents of a session's terminal."""
        params = given(session_id=session_id, format=format, scrollback=scrollback or None)
        return cast(types.SessionScreenResult, await self._core.call("session.screen", params))

    def watch(self, session_id: Optional[str] = None, *, snapshot: bool = False, execs: bool = False) -> "Watch":
        """Follows the events of one session, or of all, from now on.

        ``snapshot`` begins with the sessions that there are; ``execs`` also reports commands.
        """
        return Watch(self, given(session_id=session_id, snapshot=snapshot or None, execs=execs or None))

    # --- commands ---

    @documented
    async def run(
        self,
        session_id: str,
        command: str,
        *,
        on_stdout: Optional[Callback] = None,
        on_stderr: Optional[Callback] = None,
        **options: Unpack[types.RunOptions],
    ) -> Result:
        """Runs a command in a session; see ``Session.run``."""
        params = _command("run", session_id, command, options)
        observer = Observer(on_stdout, on_stderr)
        if not observer.calls:
            return Result(await self._core.call("exec.run", params, options.get("call_timeout")))
        if options.get("yield_on_input"):
            raise TypeError("run() takes either callbacks or yield_on_input")
        for answering in ("yield_ms", "max_output_bytes"):
            params.pop(answering, None)
        exec_ = await self._start_exec(params, options.get("call_timeout"), observer)
        return await exec_.observe(
            options.get("yield_after"), options.get("call_timeout"), options.get("max_output_bytes")
        )

    @documented
    async def start(
        self,
        session_id: str,
        command: str,
        *,
        on_stdout: Optional[Callback] = None,
        on_stderr: Optional[Callback] = None,
        **options: Unpack[types.StreamOptions],
    ) -> Exec:
        """Starts a command in a session; see ``Session.start``."""
        params = _command("start", session_id, command, options)
        return await self._start_exec(params, options.get("call_timeout"), Observer(on_stdout, on_stderr))

    async def _start_exec(self, params: Json, call_timeout: Optional[float], observer: Observer) -> Exec:
        params["key"] = params["key"] or new_key()  # by which Exec.wait finds it again
        call = {**params, "yield_ms": NOW, "max_output_bytes": 0}
        answer = await self._core.call("exec.run", call, call_timeout)
        return Exec(self, answer["exec_id"], params, observer)

    def exec(self, exec_id: str) -> Exec:
        """Returns a handle to a command that exists, without calling the daemon."""
        return Exec(self, exec_id)

    @documented
    def stream(self, session_id: str, command: str, **options: Unpack[types.StreamOptions]) -> "Stream":
        """Runs a command in a session and follows it; see ``Session.stream``."""
        params = _command("stream", session_id, command, options)
        return Stream(self, Position(None, 0, params), options.get("call_timeout"))

    def attach(self, exec_id: str, from_: int = 0, *, call_timeout: Optional[float] = None) -> "Stream":
        """Follows a running or finished command from an offset."""
        return Stream(self, Position(exec_id, from_, None), call_timeout)

    async def output(
        self,
        exec_id: str,
        from_: int = 0,
        *,
        max_bytes: Optional[int] = None,
        wait: Optional[float] = None,
        stream: Optional[str] = None,
        view: Optional[str] = None,
        times: bool = False,
    ) -> Output:
        """Reads output from an offset. ``wait`` (seconds) waits for more; ``view="text"`` strips escapes.

        With ``times`` the chunks are split where time passed, and ``at`` says when each was captured.
        """
        params = given(
            exec_id=exec_id,
            max_bytes=max_bytes,
            wait_ms=milliseconds(wait),
            stream=stream,
            view=view,
            times=times or None,
        )
        params["from"] = from_
        raw = await self._core.call("exec.output", params)
        chunks = [Chunk(chunk) for chunk in raw["chunks"]]
        return Output(raw["exec_id"], chunks, raw["next"], raw["state"], raw["closed"])

    async def input(
        self,
        exec_id: str,
        data: Union[str, bytes] = b"",
        *,
        eof: bool = False,
        keys: Sequence[str] = (),
        paste: bool = False,
        lease: Optional[str] = None,
        key: Optional[str] = None,
        at: Optional[int] = None,
        whole: bool = False,
    ) -> Written:
        """Writes to a command's standard input, and closes it with ``eof``. Returns the number of accepted bytes.

        On a terminal ``keys`` are typed after the data, by name ("enter", "ctrl-c"), and ``paste`` sends it as a paste.
        With the same ``key`` a repeated call writes only once; if neither ``key`` nor ``at`` is given, a random key is
        sent, so that a lost connection never writes twice; ``key=""`` sends none. ``at`` is the offset of the data in
        all input, as in ``next`` of the previous input: bytes already written are not written again. ``whole`` means
        all or nothing.
        """
        if isinstance(data, str):
            data = data.encode()
        if at is not None and key is None:
            key = ""
        size = max(len(data), 1) if whole else INPUT_BYTES
        taken, parts = 0, 0
        while True:
            part, data = data[:size], data[size:]
            text, encoding = encode_bytes(part)
            last = not data
            params = given(
                exec_id=exec_id,
                data=text,
                encoding=encoding,
                eof=(eof and last) or None,
                keys=(list(keys) if last else None) or None,
                paste=paste or None,
                lease=lease,
                at=None if at is None else at + taken,
                whole=whole or None,
            )
            answer = await self._keyed("exec.input", params, f"{key}.{parts}" if key and parts else key)
            taken += answer["bytes"]
            parts += 1
            if not data:
                return Written(taken, answer)

    async def signal(self, exec_id: str, signal: Union[str, int]) -> int:
        """Signals the processes of a command; returns their number."""
        name = signal if isinstance(signal, str) else str(int(signal))
        answer = await self._core.call("exec.signal", {"exec_id": exec_id, "signal": name})
        return cast(int, answer["processes"])

    async def cancel(
        self, exec_id: Optional[str] = None, *, session_id: Optional[str] = None
    ) -> types.ExecCancelResult:
        """Stops a command, named by its own id or its session's, and returns when it is gone."""
        params = given(exec_id=exec_id, session_id=session_id)
        return cast(types.ExecCancelResult, await self._core.call("exec.cancel", params))

    async def exec_info(self, exec_id: str) -> Result:
        """Returns the state and outcome of a command, without its output."""
        return Result(await self._core.call("exec.info", {"exec_id": exec_id}))

    async def execs(self, session_id: str) -> List[Result]:
        """Lists the commands of a session, oldest first, without output."""
        answer = await self._core.call("exec.list", {"session_id": session_id})
        return [Result(raw) for raw in answer["execs"]]


def _command(function: str, session_id: str, command: str, options: Mapping[str, Any]) -> Json:
    """Returns the params for running or streaming a command. A missing key is generated, to make it safe to repeat."""
    params = given(session_id=session_id, command=command, **params_of(function, options))
    params.setdefault("key", new_key())
    return params


class _NewSession:
    """A session to be created: ``await`` it, or enter it with ``async with``."""

    def __init__(self, client: Client, params: Json, key: Optional[str], call_timeout: Optional[float]) -> None:
        self._client = client
        self._params = params
        self._key = key
        self._call_timeout = call_timeout
        self._session: Optional[Session] = None

    async def _create(self) -> "Session":
        raw = await self._client._keyed("session.create", self._params, self._key, self._call_timeout)
        return Session(self._client, raw["session_id"], raw)

    def __await__(self) -> Generator[Any, None, "Session"]:
        return self._create().__await__()

    async def __aenter__(self) -> "Session":
        self._session = await self._create()
        return self._session

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        assert self._session is not None
        await self._session.__aexit__(kind, error, where)


class Session:
    """A session. ``id`` is its session id, ``raw`` the answer of ``session.create``."""

    def __init__(self, client: Client, session_id: str, raw: Optional[types.Session]) -> None:
        self.client = client
        self.id = session_id
        self.raw = raw
        self.files = Files(self)

    def __repr__(self) -> str:
        name = None if self.raw is None else self.raw.get("name")
        return f"Session(id={self.id!r}, name={name!r})" if name else f"Session(id={self.id!r})"

    @property
    def exec_id(self) -> Optional[str]:
        """The command of a session that was created with ``argv``."""
        return None if self.raw is None else self.raw.get("exec_id")

    @documented
    async def run(
        self,
        command: str,
        *,
        on_stdout: Optional[Callback] = None,
        on_stderr: Optional[Callback] = None,
        **options: Unpack[types.RunOptions],
    ) -> Result:
        """Runs a command and returns how it ended, with its output.

        ``timeout`` and ``idle_timeout`` stop the command and return what it wrote; ``yield_after`` and
        ``yield_on_input`` return early while the command keeps running; ``call_timeout`` stops waiting and raises. If
        no ``key`` is given, a random one is sent, so that a lost connection never runs the command twice; ``key=""``
        sends none. ``on_stdout`` and ``on_stderr`` are called with the output as it is written, as text; that of a
        terminal goes to ``on_stdout``. ``types.RunOptions`` describes all other options.
        """
        return await self.client.run(self.id, command, on_stdout=on_stdout, on_stderr=on_stderr, **options)

    @documented
    async def start(
        self,
        command: str,
        *,
        on_stdout: Optional[Callback] = None,
        on_stderr: Optional[Callback] = None,
        **options: Unpack[types.StreamOptions],
    ) -> Exec:
        """Starts a command and returns a handle to it at once.

        The session is busy until the command has ended. A server that other commands of the session need is started
        with ``&`` at its end. ``on_stdout`` and ``on_stderr`` are called while you wait for the command, by ``wait``,
        ``wait_for_text``, ``wait_for_idle`` or a loop over the handle. ``types.StreamOptions`` describes all other
        options.
        """
        return await self.client.start(self.id, command, on_stdout=on_stdout, on_stderr=on_stderr, **options)

    async def wait_for_port(self, port: int, *, host: Optional[str] = None, timeout: Optional[float] = 30.0) -> None:
        """Waits until a program on the session's machine listens on a TCP port; ``CallTimeout`` after ``timeout``.

        ``host`` is an address of that machine which must reach it, such as ``127.0.0.1`` or ``localhost``; default any.
        """
        await wait_for_port(self, port, host, timeout)

    @documented
    def stream(self, command: str, **options: Unpack[types.StreamOptions]) -> "Stream":
        """Runs a command and returns its output in chunks as it is written; the last one is of type ``exit``.

        ``call_timeout`` applies until the command is accepted. ``types.StreamOptions`` describes all options.
        """
        return self.client.stream(self.id, command, **options)

    def attach(self, from_: int = 0) -> "Stream":
        """Follows the command of a session that was created with ``argv``."""
        if self.exec_id is None:
            raise ValueError("only a session created with argv has a single command; use client.attach")
        return self.client.attach(self.exec_id, from_)

    async def info(self) -> types.SessionInfo:
        """Returns the session with its execs and processes."""
        return await self.client.session_info(self.id)

    async def execs(self) -> List[Result]:
        """Lists its commands, oldest first, without output."""
        return await self.client.execs(self.id)

    async def cancel(self) -> types.ExecCancelResult:
        """Stops the running command."""
        return await self.client.cancel(session_id=self.id)

    def watch(self, *, snapshot: bool = False, execs: bool = False) -> "Watch":
        """Follows its events from now on; see ``Client.watch``."""
        return self.client.watch(self.id, snapshot=snapshot, execs=execs)

    async def destroy(self, *, force: bool = False) -> types.SessionDestroyResult:
        """Ends the session and all its processes."""
        return await self.client.destroy_session(self.id, force=force)

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        try:
            await self.destroy()
        except (SessionTerminated, SessionNotFound):
            pass  # it has already ended


class Stream(_Opening):
    """The output of one command as chunks. Ends after the chunk of type ``exit``.

    After a lost connection the client resumes at the exact byte. Leaving the loop early does not stop the command:
    ``cancel`` does. Close a stream that is left early, or use it with ``async with``.
    """

    def __init__(self, client: Client, position: Position, call_timeout: Optional[float]) -> None:
        self.client = client
        self._follow = Follow(client._core, position)
        self._call_timeout = call_timeout
        self._opened = False
        self.result: Optional[Result] = None  # how it ended, once the exit chunk has been received

    def __repr__(self) -> str:
        return f"Stream(exec_id={self._follow.position.exec_id!r}, offset={self.offset})"

    async def open(self) -> "Stream":
        """Waits until the daemon has accepted the command, so that ``exec_id`` is known. Iterating does this too."""
        if not self._opened:
            await self._follow.open(self._call_timeout)
            self._opened = True
        return self

    @property
    def exec_id(self) -> str:
        if self._follow.position.exec_id is None:
            raise RuntimeError("the command has not been started yet: iterate, or open the stream")
        return self._follow.position.exec_id

    @property
    def offset(self) -> int:
        """Where the next chunk starts: ``attach(exec_id, offset)`` continues exactly here."""
        return self._follow.position.offset

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        if not self._opened:
            await self.open()
        chunk = await self._follow.next()
        if chunk is None:
            raise StopAsyncIteration
        if chunk.result is not None:
            self.result = chunk.result
        return chunk

    async def wait(self) -> Result:
        """Reads to the end, discards the output, and returns how the command ended."""
        async for _ in self:
            pass
        if self.result is None:
            raise RuntimeError("the stream was closed before the command ended")
        return self.result

    async def input(
        self,
        data: Union[str, bytes] = b"",
        *,
        eof: bool = False,
        keys: Sequence[str] = (),
        paste: bool = False,
        lease: Optional[str] = None,
        key: Optional[str] = None,
        at: Optional[int] = None,
        whole: bool = False,
    ) -> Written:
        """Writes to the command's stdin (``stdin_open=True``), and closes it with ``eof``; see ``Client.input``."""
        exec_id = (await self.open()).exec_id
        return await self.client.input(
            exec_id, data, eof=eof, keys=keys, paste=paste, lease=lease, key=key, at=at, whole=whole
        )

    async def signal(self, signal: Union[str, int]) -> int:
        """Signals the command's processes."""
        return await self.client.signal((await self.open()).exec_id, signal)

    async def cancel(self) -> types.ExecCancelResult:
        """Stops the command. Its output and its exit can still be read."""
        return await self.client.cancel((await self.open()).exec_id)

    async def close(self) -> None:
        """Stops reading. The command continues."""
        self._follow.finished = self._opened = True
        self._follow.abandon()

    def __del__(self) -> None:
        follow = getattr(self, "_follow", None)
        if follow is not None:
            follow.abandon()


class Watch(_Opening):
    """The events of sessions. It does not end by itself.

    An event of type ``gap`` means that events were missed: the reader was too slow, or the connection was lost.
    """

    def __init__(self, client: Client, params: Json) -> None:
        self._events: Optional[Events] = Events(client._core, params)
        self._opened = False

    async def open(self) -> "Watch":
        """Starts watching. Iterating does this too."""
        if self._events is not None and not self._opened:
            await self._events.open()
            self._opened = True
        return self

    def __aiter__(self) -> AsyncIterator[types.SessionEvent]:
        return self

    async def __anext__(self) -> types.SessionEvent:
        await self.open()
        if self._events is None:
            raise StopAsyncIteration
        return cast(types.SessionEvent, await self._events.next())

    async def close(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            await events.close()

    def __del__(self) -> None:
        events = getattr(self, "_events", None)
        if events is not None:
            events.abandon()
