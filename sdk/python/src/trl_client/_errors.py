"""The errors: one class for each code of the contract, and those of the client itself."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type, TypeVar

from ._types import ERROR_NUMBERS

_E = TypeVar("_E", bound="Type[TRLError]")

_BY_CODE: Dict[str, Type["TRLError"]] = {}
_BY_NUMBER = {number: code for code, number in ERROR_NUMBERS.items()}


class TRLError(Exception):
    """What every error of this package is.

    ``code`` is the stable name to switch on, ``message`` says what is wrong, ``hint`` names the next step (it is
    written for a model), and ``details`` carries facts under stable names, such as ``exec_id`` of ``SessionBusy``.
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
    """Makes a class the one that is raised for a code of the contract."""

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
    """The request is not one that can be served as it is."""


@_of("METHOD_NOT_FOUND")
class MethodNotFound(TRLError):
    """This daemon has no such method."""


@_of("INVALID_PARAMS")
class InvalidParams(TRLError):
    """A parameter is unknown, missing or not what the method takes: ``details["field"]``."""


@_of("INTERNAL")
class InternalError(TRLError):
    """The daemon itself failed; the call may have had effects."""


@_of("MAX_SESSIONS_REACHED")
class MaxSessionsReached(TRLError):
    """The daemon holds as many sessions as it may."""


@_of("SHELL_NOT_FOUND")
class ShellNotFound(TRLError):
    """There is no such shell or program; nothing was created."""


@_of("CWD_NOT_FOUND")
class CwdNotFound(TRLError):
    """The directory can't be entered; nothing was created or run."""


@_of("SHELL_CRASHED")
class ShellCrashed(TRLError):
    """The shell died while it started; nothing is left behind."""


@_of("SESSION_NOT_FOUND")
class SessionNotFound(TRLError):
    """The session never existed, or is past its retention."""


@_of("EXEC_NOT_FOUND")
class ExecNotFound(TRLError):
    """The exec never existed, or is past its retention."""


@_of("SESSION_BUSY")
class SessionBusy(TRLError):
    """The session runs another command, ``details["exec_id"]``; ``wait=True`` queues instead."""


@_of("SESSION_TERMINATED")
class SessionTerminated(TRLError):
    """The session has ended: ``details["reason"]``."""


@_of("OUTPUT_GONE")
class OutputGone(TRLError):
    """The output is no longer kept at all."""


@_of("UNAUTHORIZED")
class Unauthorized(TRLError):
    """The caller may not use this daemon: no token, a wrong one, or another user's socket."""


@_of("FORBIDDEN")
class Forbidden(TRLError):
    """The caller may use this daemon, but not for this."""


@_of("RUNTIME_NOT_FOUND")
class RuntimeNotFound(TRLError):
    """There is no such place for sessions."""


@_of("RUNTIME_UNAVAILABLE")
class RuntimeUnavailable(TRLError):
    """The place for sessions is out of reach now."""


@_of("LIMITS_UNAVAILABLE")
class LimitsUnavailable(TRLError):
    """A limit or isolation was asked for that can't be enforced there."""


@_of("SESSION_HELD")
class SessionHeld(TRLError):
    """Somebody else has the session's keyboard."""


@_of("SESSION_UNREADABLE")
class SessionUnreadable(TRLError):
    """The daemon can't go on with what an earlier daemon left of the session."""


@_of("INPUT_FULL")
class InputFull(TRLError):
    """An input that is to be written as a whole is larger than what the daemon holds."""


@_of("SHUTTING_DOWN")
class ShuttingDown(TRLError):
    """The daemon is ending."""


class ConnectionLost(TRLError, ConnectionError):
    """The connection ended before the answer came, so whether the call had its effect is unknown.

    Calls that are safe to repeat were repeated until the limit of ``Retry`` before this is raised.
    """

    code = "CONNECTION_LOST"


class NoDaemon(TRLError, ConnectionError):
    """Nobody listens at the address. Nothing was sent."""

    code = "NO_DAEMON"


class CallTimeout(TRLError, TimeoutError):
    """``call_timeout`` passed without an answer. What the call started goes on in the daemon."""

    code = "CALL_TIMEOUT"


class ProtocolError(TRLError):
    """What is at the other end does not speak the contract."""

    code = "PROTOCOL_ERROR"


def from_wire(error: Mapping[str, Any]) -> TRLError:
    """Makes the exception of a JSON-RPC error object. A code from the future is a plain ``TRLError``."""
    details = dict(error.get("data") or {})
    code = details.pop("code", None)
    hint = details.pop("hint", "")
    if code is None:  # not from this daemon, but from a carrier before it
        code = _BY_NUMBER.get(error.get("code", 0), "INTERNAL")
    cls = _BY_CODE.get(code, TRLError)
    return cls(str(error.get("message", "")), code=code, hint=hint, details=details)
