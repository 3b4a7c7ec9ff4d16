"""TRL for programs with threads, or with none: the shapes of ``aio``, run to their end in the caller's thread."""

from __future__ import annotations

import os
import ssl
from types import TracebackType
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Type, Union

from . import _types as types
from . import aio
from ._io import BlockingIO, drive
from ._wire import Chunk, Output, Result, Retry, Written


def connect(
    address: Optional[Union[str, "os.PathLike[str]"]] = None,
    *,
    token: Optional[str] = None,
    tls: Optional[ssl.SSLContext] = None,
    retry: Retry = Retry(),
    call_timeout: Optional[float] = None,
) -> "Client":
    """Connects to a daemon; raises ``NoDaemon`` if nobody answers.

    ``address`` is ``unix:PATH`` or a path, ``http://HOST:PORT``, ``https://HOST:PORT``, or ``stdio:COMMAND`` for a
    daemon of its own; default ``$TRL_SOCKET``, or where a daemon of this user serves. ``token`` is for HTTP, default
    ``$TRL_TOKEN``; ``tls`` is for https, default the system's certificates. ``call_timeout`` is how many seconds a
    call may take, default no limit.
    """
    inner = aio.Client(BlockingIO(), address, token, tls, retry, call_timeout)
    drive(inner.open())
    return Client(inner)


class Client:
    """A daemon to talk to, made by ``connect``. Any number of threads may use it at once; streams are for one each."""

    def __init__(self, inner: aio.Client) -> None:
        self._inner = inner

    def close(self) -> None:
        """Ends the connections. Sessions and commands go on, except over stdio, whose daemon ends."""
        drive(self._inner.close())

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.close()

    def call(
        self,
        method: str,
        params: Optional[Mapping[str, Any]] = None,
        *,
        call_timeout: Optional[float] = None,
        **more: Any,
    ) -> Any:
        """Calls any method of the contract and returns its result as it came."""
        return drive(self._inner.call(method, params, call_timeout=call_timeout, **more))

    # --- the daemon ---

    def ping(self) -> types.PingResult:
        """Checks that the daemon answers."""
        return drive(self._inner.ping())

    def system_info(self) -> types.SystemInfo:
        """Describes the daemon and what it can enforce on its machine."""
        return drive(self._inner.system_info())

    def stats(self) -> types.SystemStats:
        """Counts what the daemon does and holds."""
        return drive(self._inner.stats())

    # --- sessions ---

    def session(
        self,
        *,
        shell: Optional[str] = None,
        argv: Optional[Sequence[str]] = None,
        cwd: Optional[Union[str, "os.PathLike[str]"]] = None,
        env: Optional[Mapping[str, Optional[str]]] = None,
        inherit_env: Optional[str] = None,
        login: Optional[bool] = None,
        name: Optional[str] = None,
        tags: Optional[Sequence[str]] = None,
        client: Optional[str] = None,
        tty: Optional[types.TTYSize] = None,
        timeout: Optional[float] = None,
        idle_ttl: Optional[float] = None,
        create_timeout: Optional[float] = None,
        parent: Optional[str] = None,
        while_connected: Optional[bool] = None,
        reconnect: Optional[float] = None,
        limits: Optional[Mapping[str, Any]] = None,
        isolation: Optional[Mapping[str, Any]] = None,
        runtime: Optional[str] = None,
        key: Optional[str] = None,
        call_timeout: Optional[float] = None,
    ) -> "Session":
        """Starts a session: a shell, or with ``argv`` one command without a shell.

        Used with ``with`` it is destroyed at the end; else it stays until it is destroyed. ``timeout`` (seconds) is
        the default of its commands, ``idle_ttl`` how long it may be idle, ``create_timeout`` how long its shell may
        take to start, and then its login files. ``key`` makes a repeated call return the first one's session; a random
        one is sent if none is given, so that a lost connection never makes two; ``key=""`` sends none. The other parameters are those of ``session.create``.
        """
        new = self._inner.session(
            shell=shell,
            argv=argv,
            cwd=cwd,
            env=env,
            inherit_env=inherit_env,
            login=login,
            name=name,
            tags=tags,
            client=client,
            tty=tty,
            timeout=timeout,
            idle_ttl=idle_ttl,
            create_timeout=create_timeout,
            parent=parent,
            while_connected=while_connected,
            reconnect=reconnect,
            limits=limits,
            isolation=isolation,
            runtime=runtime,
            key=key,
            call_timeout=call_timeout,
        )
        return Session(self, drive(new._create()))

    def get_session(self, session_id: str) -> "Session":
        """A handle of a session that exists. Nothing is asked of the daemon."""
        return Session(self, self._inner.get_session(session_id))

    def sessions(
        self,
        *,
        state: Optional[types.State] = None,
        alive: bool = False,
        tag: Optional[str] = None,
        runtime: Optional[str] = None,
    ) -> List[types.Session]:
        """Lists sessions, oldest first; with ``alive`` none that has ended."""
        return drive(self._inner.sessions(state=state, alive=alive, tag=tag, runtime=runtime))

    def session_info(self, session_id: str) -> types.SessionInfo:
        """Shows a session, what goes on in it, and its processes."""
        return drive(self._inner.session_info(session_id))

    def destroy_session(self, session_id: str, *, force: bool = False) -> types.SessionDestroyResult:
        """Ends a session and answers when none of its processes is left. ``force`` gives them no time."""
        return drive(self._inner.destroy_session(session_id, force=force))

    def resize(self, session_id: str, rows: int, cols: int) -> types.SessionResizeResult:
        """Changes the size of a session's terminal."""
        return drive(self._inner.resize(session_id, rows, cols))

    def hold(
        self,
        session_id: str,
        holder: str,
        *,
        lease: Optional[str] = None,
        force: bool = False,
        ttl_ms: Optional[int] = None,
        answers: bool = False,
    ) -> types.SessionHoldResult:
        """Takes the keyboard of a session, or renews a hold with its ``lease``; ``force`` takes it from who has it."""
        return drive(
            self._inner.hold(session_id, holder, lease=lease, force=force, ttl_ms=ttl_ms, answers=answers)
        )

    def release(self, session_id: str, lease: str) -> types.SessionReleaseResult:
        """Gives the keyboard of a session back."""
        return drive(self._inner.release(session_id, lease))

    def screen(
        self, session_id: str, *, format: types.ScreenFormat = "text", scrollback: int = 0
    ) -> types.SessionScreenResult:
        """Shows what is on a session's terminal."""
        return drive(self._inner.screen(session_id, format=format, scrollback=scrollback))

    def watch(self, session_id: Optional[str] = None) -> "Watch":
        """Tells what happens to one session, or to all, from now on."""
        inner = self._inner.watch(session_id)
        drive(inner.open())
        return Watch(inner)

    # --- commands ---

    def run(
        self,
        session_id: str,
        command: str,
        *,
        timeout: Optional[float] = None,
        yield_after: Optional[float] = None,
        idle_timeout: Optional[float] = None,
        env: Optional[Mapping[str, Optional[str]]] = None,
        cwd: Optional[Union[str, "os.PathLike[str]"]] = None,
        stdin: Optional[Union[str, bytes]] = None,
        stdin_open: bool = False,
        merge: bool = False,
        label: Optional[str] = None,
        yield_on_input: bool = False,
        max_output_bytes: Optional[int] = None,
        wait: bool = False,
        key: Optional[str] = None,
        lease: Optional[str] = None,
        call_timeout: Optional[float] = None,
    ) -> Result:
        """Runs a command in a session; see ``Session.run``."""
        return drive(
            self._inner.run(
                session_id,
                command,
                timeout=timeout,
                yield_after=yield_after,
                idle_timeout=idle_timeout,
                env=env,
                cwd=cwd,
                stdin=stdin,
                stdin_open=stdin_open,
                merge=merge,
                label=label,
                yield_on_input=yield_on_input,
                max_output_bytes=max_output_bytes,
                wait=wait,
                key=key,
                lease=lease,
                call_timeout=call_timeout,
            )
        )

    def stream(
        self,
        session_id: str,
        command: str,
        *,
        timeout: Optional[float] = None,
        idle_timeout: Optional[float] = None,
        env: Optional[Mapping[str, Optional[str]]] = None,
        cwd: Optional[Union[str, "os.PathLike[str]"]] = None,
        stdin: Optional[Union[str, bytes]] = None,
        stdin_open: bool = False,
        merge: bool = False,
        label: Optional[str] = None,
        wait: bool = False,
        key: Optional[str] = None,
        lease: Optional[str] = None,
        call_timeout: Optional[float] = None,
    ) -> "Stream":
        """Runs a command in a session and follows it; see ``Session.stream``."""
        inner = self._inner.stream(
            session_id,
            command,
            timeout=timeout,
            idle_timeout=idle_timeout,
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdin_open=stdin_open,
            merge=merge,
            label=label,
            wait=wait,
            key=key,
            lease=lease,
            call_timeout=call_timeout,
        )
        drive(inner.open())
        return Stream(self, inner)

    def attach(self, exec_id: str, from_: int = 0, *, call_timeout: Optional[float] = None) -> "Stream":
        """Follows a command, running or over, from an offset on."""
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
        """Reads output from an offset on. ``wait`` (seconds) waits for more; ``view="text"`` strips escapes.

        With ``times`` the chunks are cut where time passed, and their ``at`` says when they came.
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
        """Writes to a command's standard input, and with ``eof`` ends it. Returns how many bytes it took.

        On a terminal ``keys`` are typed after it by name ("enter", "ctrl-c"), and ``paste`` gives it as pasted.
        ``key`` makes a repeated call write nothing twice; a random one is sent if neither it nor ``at`` is given, so
        that a lost connection never does; ``key=""`` sends none. ``at`` says where in all input it begins, as ``next``
        of the input before it says: what is there already is not written again. ``whole`` is all or nothing.
        """
        return drive(
            self._inner.input(
                exec_id, data, eof=eof, keys=keys, paste=paste, lease=lease, key=key, at=at, whole=whole
            )
        )

    def signal(self, exec_id: str, signal: Union[str, int]) -> int:
        """Signals the processes of a command; returns how many there were."""
        return drive(self._inner.signal(exec_id, signal))

    def cancel(self, exec_id: Optional[str] = None, *, session_id: Optional[str] = None) -> types.ExecCancelResult:
        """Stops a command, named by itself or by its session, and answers when it is gone."""
        return drive(self._inner.cancel(exec_id, session_id=session_id))

    def exec_info(self, exec_id: str) -> Result:
        """How a command ended, or that it still runs, without its output."""
        return drive(self._inner.exec_info(exec_id))

    def execs(self, session_id: str) -> List[Result]:
        """The commands of a session, oldest first, without output."""
        return drive(self._inner.execs(session_id))


class Session:
    """A session. ``id`` is its name in the contract, ``raw`` what ``session.create`` answered."""

    def __init__(self, client: Client, inner: aio.Session) -> None:
        self.client = client
        self._inner = inner

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def raw(self) -> Optional[types.Session]:
        return self._inner.raw

    @property
    def exec_id(self) -> Optional[str]:
        """The command of a session that was made with ``argv``."""
        return self._inner.exec_id

    def run(
        self,
        command: str,
        *,
        timeout: Optional[float] = None,
        yield_after: Optional[float] = None,
        idle_timeout: Optional[float] = None,
        env: Optional[Mapping[str, Optional[str]]] = None,
        cwd: Optional[Union[str, "os.PathLike[str]"]] = None,
        stdin: Optional[Union[str, bytes]] = None,
        stdin_open: bool = False,
        merge: bool = False,
        label: Optional[str] = None,
        yield_on_input: bool = False,
        max_output_bytes: Optional[int] = None,
        wait: bool = False,
        key: Optional[str] = None,
        lease: Optional[str] = None,
        call_timeout: Optional[float] = None,
    ) -> Result:
        """Runs a command and returns how it ended, with its output.

        Times are in seconds. ``timeout`` and ``idle_timeout`` (nothing written for so long) stop the command and
        return what it wrote; ``yield_after`` returns early while it goes on; ``call_timeout`` gives up waiting and
        raises. ``env`` and ``cwd`` hold for this command alone; a variable that is ``None`` is unset. ``merge`` writes
        stderr where stdout goes, in true order. ``yield_on_input`` returns early when the command waits for input on a
        terminal. ``label`` is what lists call it. ``wait`` queues while the session is busy. ``key``
        makes a repeated call return the first one's command; a random one is sent if none is given, so that a lost
        connection never runs it twice; ``key=""`` sends none. ``lease`` is that of ``hold``, in a session that is held.
        """
        return self.client.run(
            self.id,
            command,
            timeout=timeout,
            yield_after=yield_after,
            idle_timeout=idle_timeout,
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdin_open=stdin_open,
            merge=merge,
            label=label,
            yield_on_input=yield_on_input,
            max_output_bytes=max_output_bytes,
            wait=wait,
            key=key,
            lease=lease,
            call_timeout=call_timeout,
        )

    def stream(
        self,
        command: str,
        *,
        timeout: Optional[float] = None,
        idle_timeout: Optional[float] = None,
        env: Optional[Mapping[str, Optional[str]]] = None,
        cwd: Optional[Union[str, "os.PathLike[str]"]] = None,
        stdin: Optional[Union[str, bytes]] = None,
        stdin_open: bool = False,
        merge: bool = False,
        label: Optional[str] = None,
        wait: bool = False,
        key: Optional[str] = None,
        lease: Optional[str] = None,
        call_timeout: Optional[float] = None,
    ) -> "Stream":
        """Runs a command and gives its output as it is written, in chunks; the last one is of type ``exit``.

        The parameters are those of ``run``; ``call_timeout`` is for the command to be accepted.
        """
        return self.client.stream(
            self.id,
            command,
            timeout=timeout,
            idle_timeout=idle_timeout,
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdin_open=stdin_open,
            merge=merge,
            label=label,
            wait=wait,
            key=key,
            lease=lease,
            call_timeout=call_timeout,
        )

    def attach(self, from_: int = 0) -> "Stream":
        """Follows the command of a session that was made with ``argv``."""
        inner = self._inner.attach(from_)
        drive(inner.open())
        return Stream(self.client, inner)

    def info(self) -> types.SessionInfo:
        """What goes on in it, and its processes."""
        return drive(self._inner.info())

    def execs(self) -> List[Result]:
        """Its commands, oldest first, without output."""
        return drive(self._inner.execs())

    def cancel(self) -> types.ExecCancelResult:
        """Stops the command that runs."""
        return drive(self._inner.cancel())

    def watch(self) -> "Watch":
        """Tells what happens to it from now on."""
        return self.client.watch(self.id)

    def destroy(self, *, force: bool = False) -> types.SessionDestroyResult:
        """Ends it and every process in it."""
        return drive(self._inner.destroy(force=force))

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        drive(self._inner.__aexit__(kind, error, where))


class Stream:
    """The output of one command, as chunks. Ends after the chunk of type ``exit``.

    A lost connection is made good by the client, at the exact byte. Leaving the loop early does not stop the command:
    ``cancel`` does. Close a stream that is left early, or use it with ``with``.
    """

    def __init__(self, client: Client, inner: aio.Stream) -> None:
        self.client = client
        self._inner = inner

    @property
    def exec_id(self) -> str:
        return self._inner.exec_id

    @property
    def offset(self) -> int:
        """Where the next chunk begins: ``attach(exec_id, offset)`` goes on exactly here."""
        return self._inner.offset

    @property
    def result(self) -> Optional[Result]:
        """How it ended, once the exit has come."""
        return self._inner.result

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        try:
            return drive(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def wait(self) -> Result:
        """Reads to the end, drops what is read, and returns how the command ended."""
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
        """Writes to the command's standard input (``stdin_open=True``), and with ``eof`` ends it; see ``Client.input``."""
        return drive(
            self._inner.input(data, eof=eof, keys=keys, paste=paste, lease=lease, key=key, at=at, whole=whole)
        )

    def signal(self, signal: Union[str, int]) -> int:
        """Signals the command's processes."""
        return drive(self._inner.signal(signal))

    def cancel(self) -> types.ExecCancelResult:
        """Stops the command. What it wrote, and its exit, can still be read."""
        return drive(self._inner.cancel())

    def close(self) -> None:
        """Stops reading. The command goes on."""
        drive(self._inner.close())

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.close()


class Watch:
    """What happens to sessions, as events; it has no end of its own.

    An event of type ``gap`` says that some are not told: the reader was too slow, or the connection was lost.
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

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        self.close()
