"""The errors: one class for each code of the contract, and the client's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Type, TypeVar

from ._types import ERROR_NUMBERS

if TYPE_CHECKING:
    from ._wire import Result

_E = TypeVar("_E", bound="Type[TRLError]")

_BY_CODE: Dict[str, Type["TRLError"]] = {}
_BY_NUMBER = {number: code for code, number in ERROR_NUMBERS.items()}


class TRLError(Exception):
    """The base class of all errors of this package.

    ``code`` is the stable name to switch on, ``message`` says what is wrong, ``hint`` names the next step (it is
    written for a model), and ``details`` holds facts under stable names, such as ``exec_id`` in ``SessionBusy``.
    """

    code = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        code: Optional[str] = None,
        hint: str = "",
        details: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        self.hint = hint
        self.details: Dict[str, Any] = dict(details or {})

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.hint})" if self.hint else "")


def _of(code: str) -> Any:
    """Registers a class as the one to raise for a code of the contract."""

    def register(cls: _E) -> _E:
        cls.code = code
        _BY_CODE[code] = cls
        return cls

    return register


@_of("PARSE_ERROR")
class ParseError(TRLError):
    """The daemon could not read the request as JSON."""


@_of("INVALID_REQUEST")
class InvalidRequest(TRLError):
    """The request is not valid."""


@_of("METHOD_NOT_FOUND")
class MethodNotFound(TRLError):
    """The daemon has no such method."""


@_of("INVALID_PARAMS")
class InvalidParams(TRLError):
    """A parameter is unknown, missing or invalid: ``details["field"]``."""


@_of("INTERNAL")
class InternalError(TRLError):
    """The daemon itself failed; the call may have had effects."""


@_of("MAX_SESSIONS_REACHED")
class MaxSessionsReached(TRLError):
    """The daemon has reached its limit of sessions."""


@_of("SHELL_NOT_FOUND")
class ShellNotFound(TRLError):
    """No such shell or program; nothing was created."""


@_of("CWD_NOT_FOUND")
class CwdNotFound(TRLError):
    """The directory cannot be entered; nothing was created or run."""


@_of("SHELL_CRASHED")
class ShellCrashed(TRLError):
    """The shell died during startup; nothing is left behind."""


@_of("SESSION_NOT_FOUND")
class SessionNotFound(TRLError):
    """The session never existed, or is past its retention."""


@_of("EXEC_NOT_FOUND")
class ExecNotFound(TRLError):
    """The exec never existed, or is past its retention."""


@_of("SESSION_BUSY")
class SessionBusy(TRLError):
    """The session is running another command, ``details["exec_id"]``; ``wait=True`` queues instead."""


@_of("SESSION_TERMINATED")
class SessionTerminated(TRLError):
    """The session has ended: ``details["reason"]``."""


@_of("OUTPUT_GONE")
class OutputGone(TRLError):
    """The output is no longer stored."""


@_of("UNAUTHORIZED")
class Unauthorized(TRLError):
    """The caller is not allowed to use this daemon: missing or wrong token, or another user's socket."""


@_of("FORBIDDEN")
class Forbidden(TRLError):
    """The caller is allowed to use this daemon, but not for this call."""


@_of("RUNTIME_NOT_FOUND")
class RuntimeNotFound(TRLError):
    """No such runtime for sessions."""


@_of("RUNTIME_UNAVAILABLE")
class RuntimeUnavailable(TRLError):
    """The runtime for sessions is temporarily unavailable."""


@_of("LIMITS_UNAVAILABLE")
class LimitsUnavailable(TRLError):
    """A requested limit or isolation cannot be enforced there."""


@_of("SESSION_HELD")
class SessionHeld(TRLError):
    """Another client holds the session's keyboard."""


@_of("SESSION_UNREADABLE")
class SessionUnreadable(TRLError):
    """The daemon cannot restore the state that an earlier daemon saved for the session."""


@_of("INPUT_FULL")
class InputFull(TRLError):
    """An input with ``whole=True`` is larger than the daemon's buffer."""


@_of("SHUTTING_DOWN")
class ShuttingDown(TRLError):
    """The daemon is shutting down."""


class ConnectionLost(TRLError, ConnectionError):
    """The connection ended before the answer arrived, so it is unknown whether the call had its effect.

    Calls that are safe to repeat are retried up to the limit of ``Retry`` before this is raised.
    """

    code = "CONNECTION_LOST"


class NoDaemon(TRLError, ConnectionError):
    """Nothing listens at the address. Nothing was sent."""

    code = "NO_DAEMON"


class CallTimeout(TRLError, TimeoutError):
    """``call_timeout`` or ``timeout`` passed. The daemon continues what was started."""

    code = "CALL_TIMEOUT"


class ExecEnded(TRLError):
    """The command ended before what was waited for. ``result`` says how, without its output."""

    code = "EXEC_ENDED"

    def __init__(self, message: str, *, result: "Result") -> None:
        super().__init__(message, hint="read its output with output()", details={"exec_id": result.exec_id})
        self.result = result


class ProtocolError(TRLError):
    """The peer does not speak the protocol."""

    code = "PROTOCOL_ERROR"


def from_wire(error: Mapping[str, Any]) -> TRLError:
    """Returns the exception for a JSON-RPC error object. An unknown code becomes a plain ``TRLError``."""
    details = dict(error.get("data") or {})
    code = details.pop("code", None)
    hint = details.pop("hint", "")
    if code is None:  # from a proxy in front of the daemon
        code = _BY_NUMBER.get(error.get("code", 0), "INTERNAL")
    cls = _BY_CODE.get(code, TRLError)
    return cls(str(error.get("message", "")), code=code, hint=hint, details=details)
