"""The blocking client: the API of ``aio``, run to completion in the caller's thread."""

from __future__ import annotations

import os
import ssl
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Iterator,
    List,
    Mapping,
    Match,
    Optional,
    Pattern,
    Sequence,
    Type,
    TypeVar,
    Union,
)

from . import _types as types
from . import aio
from ._exec import Callback
from ._io import BlockingIO, drive
from ._options import documented
from ._start import Start
from ._sync_files import Files
from ._wire import Chunk, Output, Result, Retry, Written

if TYPE_CHECKING:
    from typing_extensions import Unpack  # type checkers have it; nothing needs it at run time


_C = TypeVar("_C", bound="_Closing")


class _Closing:
    """A context manager that closes itself at the end."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.close()


def connect(
    address: Optional[Union[str, "os.PathLike[str]"]] = None,
    *,
    token: Optional[str] = None,
    tls: Optional[ssl.SSLContext] = None,
    retry: Retry = Retry(),
    call_timeout: Optional[float] = None,
    start: Start = False,
) -> "Client":
    """Connects to a daemon; raises ``NoDaemon`` if none answers.

    ``address`` is ``unix:PATH`` or a path, ``http://HOST:PORT``, ``https://HOST:PORT``, or ``stdio:COMMAND`` for a
    private daemon; default ``$TRL_ADDRESS``, ``$TRL_SOCKET``, or the default socket of this user's daemon. ``token`` is
    for HTTP, default ``$TRL_TOKEN``; ``tls`` is for https, default the system's certificates. ``call_timeout`` limits a
    call in seconds, default no limit. With ``start`` a daemon that should be on a Unix socket and is not is started, by
    ``trl serve --detach``; it stays when the client ends. ``start`` may be the path of the binary; default
    ``$TRL_BINARY``, or ``trl`` in the PATH.
    """
    inner = aio.Client(BlockingIO(), address, token, tls, retry, call_timeout, start)
    drive(inner.open())
    return Client(inner)


class Client(_Closing):
    """A client of a daemon, returned by ``connect``. Threads may use it concurrently; a stream is for one thread."""

    def __init__(self, inner: aio.Client) -> None:
        self._inner = inner

    @property
    def address(self) -> str:
        """Where the daemon is."""
        return self._inner.address

    def __repr__(self) -> str:
        return repr(self._inner)

    def close(self) -> None:
        """Closes the connections. Sessions and commands continue, except over stdio, where the daemon exits."""
        drive(self._inner.close())

    def call(
        self,
        method: str,
        params: Optional[Mapping[str, Any]] = None,
        *,
        call_timeout: Optional[float] = None,
        **more: Any,
    ) -> Any:
        """Calls any method of the contract and returns its raw result."""
        return drive(self._inner.call(method, params, call_timeout=call_timeout, **more))

    # --- the daemon ---

    def ping(self) -> types.PingResult:
        """Checks that the daemon answers."""
        return drive(self._inner.ping())

    def info(self) -> types.SystemInfo:
        """Describes the daemon and what it can enforce on its machine."""
        return drive(self._inner.info())

    def system_info(self) -> types.SystemInfo:
        """Does the same as ``info``, under the name of the protocol."""
        return self.info()

    def stats(self) -> types.SystemStats:
        """Counts what the daemon does and holds."""
        return drive(self._inner.stats())

    def upgrade(self) -> types.UpgradeResult:
        """Lets the binary that is now at the daemon's path take over its sessions. Only over a Unix socket."""
        return drive(self._inner.upgrade())

    # --- places ---

    def places(self) -> List[types.Place]:
        """Lists the places where sessions can run besides the daemon's machine."""
        return drive(self._inner.places())

    def add_place(self, runtime: str) -> types.Place:
        """Adds a place such as ``docker:web`` or ``ssh:host`` and connects to it."""
        return drive(self._inner.add_place(runtime))

    def check_place(self, runtime: str) -> types.Place:
        """Connects to a place now. One that can't be reached is returned too, with the reason."""
        return drive(self._inner.check_place(runtime))

    def remove_place(self, runtime: str, *, force: bool = False, forget: bool = False) -> types.PlaceRemoveResult:
        """Removes a place and everything TRL put there.

        ``force`` ends its sessions first. ``forget`` does nothing there: for a place that is gone for good.
        """
        return drive(self._inner.remove_place(runtime, force=force, forget=forget))

    def upgrade_place(self, runtime: str) -> types.Place:
        """Replaces the TRL of a place with the daemon's version. The sessions in it continue."""
        return drive(self._inner.upgrade_place(runtime))

    # --- sessions ---

    @documented
    def session(self, **options: Unpack[types.SessionOptions]) -> "Session":
        """Starts a session: a shell, or with ``argv`` one command without a shell.

        ``with`` destroys it at the end; otherwise it stays until it is destroyed. If no ``key`` is given, a random one
        is sent, so that a lost connection never creates two sessions; ``key=""`` sends none. ``types.SessionOptions``
        describes all options.
        """
        new = self._inner.session(**options)
        return Session(self, drive(new._create()))

    def get_session(self, session_id: str) -> "Session":
        """Returns a handle to an existing session, without calling the daemon."""
        return Session(self, self._inner.get_session(session_id))

    def sessions(
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
        return drive(self._inner.sessions(state=state, alive=alive, tag=tag, runtime=runtime))

    def session_info(self, session_id: str) -> types.SessionInfo:
        """Returns a session with its execs and processes."""
        return drive(self._inner.session_info(session_id))

    def destroy_session(self, session_id: str, *, force: bool = False) -> types.SessionDestroyResult:
        """Ends a session and returns when none of its processes is left. ``force`` skips the grace period."""
        return drive(self._inner.destroy_session(session_id, force=force))

    def resize(
        self, session_id: str, rows: int, cols: int, *, lease: Optional[str] = None
    ) -> types.SessionResizeResult:
        """Changes the size of a session's terminal."""
        return drive(self._inner.resize(session_id, rows, cols, lease=lease))

    def hold(
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
        return drive(self._inner.hold(session_id, holder, lease=lease, force=force, ttl=ttl, answers=answers))

    def release(self, session_id: str, lease: str) -> types.SessionReleaseResult:
        """Releases the keyboard lease of a session."""
        return drive(self._inner.release(session_id, lease))

    def screen(
        self, session_id: str, *, format: types.ScreenFormat = "text", scrollback: int = 0
    ) -> types.SessionScreenResult:
        """Returns the contents of a session's terminal."""
        return drive(self._inner.screen(session_id, format=format, scrollback=scrollback))

    def watch(self, session_id: Optional[str] = None, *, snapshot: bool = False, execs: bool = False) -> "Watch":
        """Follows the events of one session, or of all, from now on.

        ``snapshot`` begins with the sessions that there are; ``execs`` also reports commands.
        """
        inner = self._inner.watch(session_id, snapshot=snapshot, execs=execs)
        drive(inner.open())
        return Watch(inner)

    # --- commands ---

    @documented
    def run(
        self,
        session_id: str,
        command: str,
        *,
        on_stdout: Optional[Callback] = None,
        on_stderr: Optional[Callback] = None,
        **options: Unpack[types.RunOptions],
    ) -> Result:
        """Runs a command in a session; see ``Session.run``."""
        return drive(self._inner.run(session_id, command, on_stdout=on_stdout, on_stderr=on_stderr, **options))

    @documented
    def start(
        self,
        session_id: str,
        command: str,
        *,
        on_stdout: Optional[Callback] = None,
        on_stderr: Optional[Callback] = None,
        **options: Unpack[types.StreamOptions],
    ) -> "Exec":
        """Starts a command in a session; see ``Session.start``."""
        started = self._inner.start(session_id, command, on_stdout=on_stdout, on_stderr=on_stderr, **options)
        return Exec(self, drive(started))

    def exec(self, exec_id: str) -> "Exec":
        """Returns a handle to a command that exists, without calling the daemon."""
        return Exec(self, self._inner.exec(exec_id))

    @documented
    def stream(self, session_id: str, command: str, **options: Unpack[types.StreamOptions]) -> "Stream":
        """Runs a command in a session and follows it; see ``Session.stream``."""
        inner = self._inner.stream(session_id, command, **options)
        drive(inner.open())
        return Stream(self, inner)

    def attach(self, exec_id: str, from_: int = 0, *, call_timeout: Optional[float] = None) -> "Stream":
        """Follows a running or finished command from an offset."""
        inner = self._inner.attach(exec_id, from_, call_timeout=call_timeout)
        drive(inner.open())
        return Stream(self, inner)

    def output(
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
        return drive(
            self._inner.output(exec_id, from_, max_bytes=max_bytes, wait=wait, stream=stream, view=view, times=times)
        )

    def input(
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
        return drive(
            self._inner.input(
                exec_id, data, eof=eof, keys=keys, paste=paste, lease=lease, key=key, at=at, whole=whole
            )
        )

    def signal(self, exec_id: str, signal: Union[str, int]) -> int:
        """Signals the processes of a command; returns their number."""
        return drive(self._inner.signal(exec_id, signal))

    def cancel(self, exec_id: Optional[str] = None, *, session_id: Optional[str] = None) -> types.ExecCancelResult:
        """Stops a command, named by its own id or its session's, and returns when it is gone."""
        return drive(self._inner.cancel(exec_id, session_id=session_id))

    def exec_info(self, exec_id: str) -> Result:
        """Returns the state and outcome of a command, without its output."""
        return drive(self._inner.exec_info(exec_id))

    def execs(self, session_id: str) -> List[Result]:
        """Lists the commands of a session, oldest first, without output."""
        return drive(self._inner.execs(session_id))


class Session:
    """A session. ``id`` is its session id, ``raw`` the answer of ``session.create``."""

    def __init__(self, client: Client, inner: aio.Session) -> None:
        self.client = client
        self.files = Files(inner.files)
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def raw(self) -> Optional[types.Session]:
        return self._inner.raw

    @property
    def exec_id(self) -> Optional[str]:
        """The command of a session that was created with ``argv``."""
        return self._inner.exec_id

    @documented
    def run(
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
        return self.client.run(self.id, command, on_stdout=on_stdout, on_stderr=on_stderr, **options)

    @documented
    def start(
        self,
        command: str,
        *,
        on_stdout: Optional[Callback] = None,
        on_stderr: Optional[Callback] = None,
        **options: Unpack[types.StreamOptions],
    ) -> "Exec":
        """Starts a command and returns a handle to it at once.

        The session is busy until the command has ended. A server that other commands of the session need is started
        with ``&`` at its end. ``on_stdout`` and ``on_stderr`` are called while you wait for the command, by ``wait``,
        ``wait_for_text``, ``wait_for_idle`` or a loop over the handle. ``types.StreamOptions`` describes all other
        options.
        """
        return self.client.start(self.id, command, on_stdout=on_stdout, on_stderr=on_stderr, **options)

    def wait_for_port(self, port: int, *, host: Optional[str] = None, timeout: Optional[float] = 30.0) -> None:
        """Waits until a program on the session's machine listens on a TCP port; ``CallTimeout`` after ``timeout``.

        ``host`` is an address of that machine which must reach it, such as ``127.0.0.1`` or ``localhost``; default any.
        """
        drive(self._inner.wait_for_port(port, host=host, timeout=timeout))

    @documented
    def stream(self, command: str, **options: Unpack[types.StreamOptions]) -> "Stream":
        """Runs a command and returns its output in chunks as it is written; the last one is of type ``exit``.

        ``call_timeout`` applies until the command is accepted. ``types.StreamOptions`` describes all options.
        """
        return self.client.stream(self.id, command, **options)

    def attach(self, from_: int = 0) -> "Stream":
        """Follows the command of a session that was created with ``argv``."""
        inner = self._inner.attach(from_)
        drive(inner.open())
        return Stream(self.client, inner)

    def info(self) -> types.SessionInfo:
        """Returns the session with its execs and processes."""
        return drive(self._inner.info())

    def execs(self) -> List[Result]:
        """Lists its commands, oldest first, without output."""
        return drive(self._inner.execs())

    def cancel(self) -> types.ExecCancelResult:
        """Stops the running command."""
        return drive(self._inner.cancel())

    def watch(self, *, snapshot: bool = False, execs: bool = False) -> "Watch":
        """Follows its events from now on; see ``Client.watch``."""
        return self.client.watch(self.id, snapshot=snapshot, execs=execs)

    def destroy(self, *, force: bool = False) -> types.SessionDestroyResult:
        """Ends the session and all its processes."""
        return drive(self._inner.destroy(force=force))

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        drive(self._inner.__aexit__(kind, error, where))


class Exec:
    """A command, from ``Session.start`` or ``Client.exec``. The command does not need it: it may be dropped.

    Iterating gives the chunks of its output until it has ended. Iterating, ``wait``, ``wait_for_text`` and
    ``wait_for_idle`` share one position in the output, and call ``on_stdout`` and ``on_stderr`` with what they read:
    each piece once. ``output`` and ``attach`` read independently of it. A handle is for one thread.
    """

    def __init__(self, client: Client, inner: aio.Exec) -> None:
        self.client = client
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def exec_id(self) -> str:
        return self._inner.exec_id

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        try:
            return drive(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def wait(self, *, timeout: Optional[float] = None, max_output_bytes: Optional[int] = None) -> Result:
        """Waits until the command has ended. After ``timeout`` seconds it raises ``CallTimeout``; the command goes on.

        The result has the command's output, as that of ``run``. Of a handle from ``Client.exec`` it has none: use
        ``output``.
        """
        return drive(self._inner.wait(timeout=timeout, max_output_bytes=max_output_bytes))

    def wait_for_text(self, pattern: Union[str, Pattern[str]], *, timeout: Optional[float] = None) -> Match[str]:
        """Waits until the command has written a text, on stdout or stderr, and returns the match.

        ``pattern`` is the text itself, or a compiled regular expression. The first call looks from the beginning of
        the output, the next one after the match before. A regular expression may match the first part of a longer text
        that has not come yet: end it with what follows, such as a newline. If the command ends without the text
        ``ExecEnded`` is raised, and after ``timeout`` seconds ``CallTimeout``.
        """
        return drive(self._inner.wait_for_text(pattern, timeout=timeout))

    def wait_for_idle(self, seconds: float, *, timeout: Optional[float] = None) -> Result:
        """Waits until the command has written nothing for so many seconds, or has ended: ``running`` of the result,
        which has no output, says which. After ``timeout`` seconds it raises ``CallTimeout``."""
        return drive(self._inner.wait_for_idle(seconds, timeout=timeout))

    def info(self) -> Result:
        """Returns its state and outcome, without its output."""
        return drive(self._inner.info())

    def output(
        self,
        from_: int = 0,
        *,
        max_bytes: Optional[int] = None,
        wait: Optional[float] = None,
        stream: Optional[str] = None,
        view: Optional[str] = None,
        times: bool = False,
    ) -> Output:
        """Reads its output from an offset; see ``Client.output``."""
        return self.client.output(
            self.exec_id, from_, max_bytes=max_bytes, wait=wait, stream=stream, view=view, times=times
        )

    def attach(self, from_: int = 0) -> "Stream":
        """Follows its output from an offset, over a connection of its own."""
        return self.client.attach(self.exec_id, from_)

    def send_input(
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
        """Writes to its stdin, which needs ``stdin_open=True`` in ``start``, or a terminal; see ``Client.input``."""
        return self.client.input(
            self.exec_id, data, eof=eof, keys=keys, paste=paste, lease=lease, key=key, at=at, whole=whole
        )

    def signal(self, signal: Union[str, int]) -> int:
        """Signals its processes, also those it left running; returns their number."""
        return drive(self._inner.signal(signal))

    def cancel(self) -> types.ExecCancelResult:
        """Stops the command, and returns when it is gone."""
        return drive(self._inner.cancel())

    def kill(self) -> None:
        """Stops the command as ``cancel`` does. If it has ended, kills the processes that it left running."""
        drive(self._inner.kill())


class Stream(_Closing):
    """The output of one command as chunks. Ends after the chunk of type ``exit``.

    After a lost connection the client resumes at the exact byte. Leaving the loop early does not stop the command:
    ``cancel`` does. Close a stream that is left early, or use it with ``with``.
    """

    def __init__(self, client: Client, inner: aio.Stream) -> None:
        self.client = client
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def exec_id(self) -> str:
        return self._inner.exec_id

    @property
    def offset(self) -> int:
        """Where the next chunk starts: ``attach(exec_id, offset)`` continues exactly here."""
        return self._inner.offset

    @property
    def result(self) -> Optional[Result]:
        """How it ended, once the exit chunk has been received."""
        return self._inner.result

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        try:
            return drive(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def wait(self) -> Result:
        """Reads to the end, discards the output, and returns how the command ended."""
        return drive(self._inner.wait())

    def input(
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
        return drive(
            self._inner.input(data, eof=eof, keys=keys, paste=paste, lease=lease, key=key, at=at, whole=whole)
        )

    def signal(self, signal: Union[str, int]) -> int:
        """Signals the command's processes."""
        return drive(self._inner.signal(signal))

    def cancel(self) -> types.ExecCancelResult:
        """Stops the command. Its output and its exit can still be read."""
        return drive(self._inner.cancel())

    def close(self) -> None:
        """Stops reading. The command continues."""
        drive(self._inner.close())


class Watch(_Closing):
    """The events of sessions. It does not end by itself.

    An event of type ``gap`` means that events were missed: the reader was too slow, or the connection was lost.
    """

    def __init__(self, inner: aio.Watch) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[types.SessionEvent]:
        return self

    def __next__(self) -> types.SessionEvent:
        try:
            return drive(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        drive(self._inner.close())
