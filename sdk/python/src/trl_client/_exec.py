"""``Exec``: a handle to one command, which waits by reading the command's output."""

from __future__ import annotations

import codecs
import inspect
import re
import time
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, List, Match, Optional, Pattern, Sequence, Union

from . import _types as types
from ._errors import CallTimeout, ExecEnded
from ._wire import Chunk, Json, Output, Result, Written, given, milliseconds

if TYPE_CHECKING:
    from .aio import Client, Stream

#: A function that gets output as text. In ``aio`` it may be a coroutine function.
Callback = Callable[[str], Any]

# POLL_SECONDS is how long one call waits for output: short enough for any proxy on the way.
POLL_SECONDS = 25.0

# MAX_TEXT is how much output ``wait_for_text`` looks back at, in characters: far more than any message.
MAX_TEXT = 1 << 20

# NOW is the yield_ms of a call that is answered at once; 0 would mean never.
NOW = 1


class Observer:
    """Decodes the output of a command, passes it to callbacks, and keeps the end of it for ``wait_for_text``."""

    def __init__(self, on_stdout: Optional[Callback] = None, on_stderr: Optional[Callback] = None) -> None:
        self._callbacks = {"stdout": on_stdout, "tty": on_stdout, "stderr": on_stderr}
        self._decoders: Dict[str, Any] = {}
        self.text = ""  # what came after the last match

    @property
    def calls(self) -> bool:
        """Whether there is a callback."""
        return any(self._callbacks.values())

    async def see(self, chunk: Chunk) -> None:
        if chunk.type in self._callbacks:
            decoder = self._decoders.get(chunk.type)
            if decoder is None:
                decoder = self._decoders[chunk.type] = codecs.getincrementaldecoder("utf-8")("replace")
            await self._pass_on(chunk.type, decoder.decode(chunk.data))

    async def flush(self) -> None:
        """Passes on the beginning of a character that never ended."""
        for stream, decoder in self._decoders.items():
            await self._pass_on(stream, decoder.decode(b"", True))

    async def _pass_on(self, stream: str, text: str) -> None:
        if not text:
            return
        self.text = (self.text + text)[-MAX_TEXT:]
        callback = self._callbacks[stream]
        if callback is not None:
            answer = callback(text)
            if inspect.isawaitable(answer):
                await answer


class Exec:
    """A command, from ``Session.start`` or ``Client.exec``. The command does not need it: it may be dropped.

    Iterating gives the chunks of its output until it has ended. Iterating, ``wait``, ``wait_for_text`` and
    ``wait_for_idle`` share one position in the output, and call ``on_stdout`` and ``on_stderr`` with what they read:
    each piece once. ``output`` and ``attach`` read independently of it.
    """

    def __init__(
        self, client: "Client", exec_id: str, started: Optional[Json] = None, observer: Optional[Observer] = None
    ) -> None:
        self.client = client
        self.exec_id = exec_id
        self._started = started  # the params of exec.run; with their key it returns the same exec again
        self._observer = observer or Observer()
        self._offset = 0
        self._chunks: List[Chunk] = []  # fetched, and not read yet

    def __repr__(self) -> str:
        return f"Exec(exec_id={self.exec_id!r})"

    # --- waiting ---

    async def _next(self, deadline: Optional[float]) -> Optional[Chunk]:
        """Reads the next chunk. Returns None if the command has ended and there is none."""
        while not self._chunks:
            got = await self.client.output(self.exec_id, self._offset, wait=_patience(deadline))
            self._chunks, self._offset = got.chunks, got.next
            if not got.chunks and got.state == "exited":
                await self._observer.flush()
                return None
        chunk = self._chunks.pop(0)
        await self._observer.see(chunk)
        return chunk

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self._next(None)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def wait(self, *, timeout: Optional[float] = None, max_output_bytes: Optional[int] = None) -> Result:
        """Waits until the command has ended. After ``timeout`` seconds it raises ``CallTimeout``; the command goes on.

        The result has the command's output, as that of ``run``. Of a handle from ``Client.exec`` it has none: use
        ``output``.
        """
        deadline = _deadline(timeout)
        if self._started is None or self._observer.calls:
            await self._read_all(deadline)
        result = await self._result(deadline, max_output_bytes)
        if result.running:
            raise _timed_out("the command is still running")
        return result

    async def observe(self, yield_after: Optional[float], call_timeout: Optional[float], most: Optional[int]) -> Result:
        """Does what ``run`` does: waits, but returns after ``yield_after``, and raises after ``call_timeout``."""
        yields = yield_after and (call_timeout is None or yield_after < call_timeout)
        deadline = _deadline(yield_after if yields else call_timeout)
        try:
            await self._read_all(deadline)
        except CallTimeout:
            if not yields:
                raise
        return await self._result(deadline, most)

    async def _read_all(self, deadline: Optional[float]) -> None:
        while await self._next(deadline) is not None:
            pass

    async def _result(self, deadline: Optional[float], max_output_bytes: Optional[int]) -> Result:
        """Returns how the command ended, or until the deadline how it is."""
        if self._started is None:
            return await self.info()
        left = None if deadline is None else max(milliseconds(deadline - time.monotonic()) or 0, NOW)
        params = {**self._started, **given(yield_ms=left, max_output_bytes=max_output_bytes)}
        return Result(await self.client.call("exec.run", params))

    async def wait_for_text(self, pattern: Union[str, Pattern[str]], *, timeout: Optional[float] = None) -> Match[str]:
        """Waits until the command has written a text, on stdout or stderr, and returns the match.

        ``pattern`` is the text itself, or a compiled regular expression. The first call looks from the beginning of
        the output, the next one after the match before. A regular expression may match the first part of a longer text
        that has not come yet: end it with what follows, such as a newline. If the command ends without the text
        ``ExecEnded`` is raised, and after ``timeout`` seconds ``CallTimeout``.
        """
        wanted = re.compile(re.escape(pattern)) if isinstance(pattern, str) else pattern
        deadline = _deadline(timeout)
        while True:
            match = wanted.search(self._observer.text)
            if match is not None:
                self._observer.text = self._observer.text[match.end() :]
                return match
            if await self._next(deadline) is None and wanted.search(self._observer.text) is None:
                raise ExecEnded("the command ended before it wrote the text", result=await self.info())

    async def wait_for_idle(self, seconds: float, *, timeout: Optional[float] = None) -> Result:
        """Waits until the command has written nothing for so many seconds, or has ended: ``running`` of the result,
        which has no output, says which. After ``timeout`` seconds it raises ``CallTimeout``."""
        deadline = _deadline(timeout)
        while True:
            quiet = time.monotonic() + seconds
            try:
                if await self._next(quiet if deadline is None else min(quiet, deadline)) is None:
                    return await self.info()
            except CallTimeout:
                if deadline is not None and deadline < quiet:
                    raise
                return await self.info()

    # --- the methods of Client, of this command ---

    async def info(self) -> Result:
        """Returns its state and outcome, without its output."""
        return await self.client.exec_info(self.exec_id)

    async def output(
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
        return await self.client.output(
            self.exec_id, from_, max_bytes=max_bytes, wait=wait, stream=stream, view=view, times=times
        )

    def attach(self, from_: int = 0) -> "Stream":
        """Follows its output from an offset, over a connection of its own."""
        return self.client.attach(self.exec_id, from_)

    async def send_input(
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
        return await self.client.input(
            self.exec_id, data, eof=eof, keys=keys, paste=paste, lease=lease, key=key, at=at, whole=whole
        )

    async def signal(self, signal: Union[str, int]) -> int:
        """Signals its processes, also those it left running; returns their number."""
        return await self.client.signal(self.exec_id, signal)

    async def cancel(self) -> types.ExecCancelResult:
        """Stops the command, and returns when it is gone."""
        return await self.client.cancel(self.exec_id)

    async def kill(self) -> None:
        """Stops the command as ``cancel`` does. If it has ended, kills the processes that it left running."""
        if not (await self.cancel())["cancelled"]:
            await self.signal("KILL")


def _deadline(timeout: Optional[float]) -> Optional[float]:
    return None if timeout is None else time.monotonic() + timeout


def _patience(deadline: Optional[float]) -> float:
    """Returns how long a call may wait for output. Raises if there is no time left."""
    left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
    if left <= 0:
        raise _timed_out("it has not happened within the timeout")
    return min(left, POLL_SECONDS)


def _timed_out(message: str) -> CallTimeout:
    return CallTimeout(message, hint="the command goes on: wait again, or stop it with kill")
