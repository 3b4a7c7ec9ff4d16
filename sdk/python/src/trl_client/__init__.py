"""TRL: terminal sessions for agents, from Python.

::

    import trl_client as trl

    with trl.connect() as client:
        with client.session(shell="bash") as s:
            print(s.run("echo hello").stdout)

``trl_client.aio`` is the same API for asyncio; ``trl_client.types`` has the types of the contract.
"""

from . import _types as types
from . import aio
from ._errors import (
    CallTimeout,
    ConnectionLost,
    CwdNotFound,
    ExecEnded,
    ExecNotFound,
    Forbidden,
    InputFull,
    InternalError,
    InvalidParams,
    InvalidRequest,
    LimitsUnavailable,
    MaxSessionsReached,
    MethodNotFound,
    NoDaemon,
    OutputGone,
    ParseError,
    ProtocolError,
    RuntimeNotFound,
    RuntimeUnavailable,
    SessionBusy,
    SessionNotFound,
    SessionTerminated,
    ShellCrashed,
    ShellNotFound,
    SessionHeld,
    SessionUnreadable,
    ShuttingDown,
    TRLError,
    Unauthorized,
)
from ._files import FileInfo
from ._sync import Client, Exec, Session, Stream, Watch, connect
from ._sync_files import Files
from ._wire import Chunk, CommandFailed, Output, Result, Retry, Written

__version__ = "0.1.0"

__all__ = [
    "CallTimeout",
    "Chunk",
    "Client",
    "CommandFailed",
    "ConnectionLost",
    "CwdNotFound",
    "Exec",
    "ExecEnded",
    "ExecNotFound",
    "FileInfo",
    "Files",
    "Forbidden",
    "InputFull",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "LimitsUnavailable",
    "MaxSessionsReached",
    "MethodNotFound",
    "NoDaemon",
    "Output",
    "OutputGone",
    "ParseError",
    "ProtocolError",
    "Result",
    "Retry",
    "RuntimeNotFound",
    "RuntimeUnavailable",
    "Session",
    "SessionBusy",
    "SessionNotFound",
    "SessionTerminated",
    "ShellCrashed",
    "ShellNotFound",
    "SessionHeld",
    "SessionUnreadable",
    "ShuttingDown",
    "Stream",
    "TRLError",
    "Unauthorized",
    "Watch",
    "Written",
    "aio",
    "connect",
    "types",
]
