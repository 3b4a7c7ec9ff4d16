// Everything that this package throws, besides the reason of an AbortSignal.
//
// An error answered by the daemon is a TrlError, with a subclass for each code of
// the contract. Connection problems are a NoDaemonError, a ConnectionLostError or a
// ProtocolError.

import { optionWords } from "./options.js";
import type { Result } from "./result.js";
import type { ErrorCode } from "./types.js";

/**
 * An error answered by the daemon. `code` is its stable name, `hint` the next
 * call to make, `details` holds facts under stable names.
 */
export class TrlError extends Error {
  readonly code: string;
  /** A sentence for a model: what to do next. Empty if there is none. */
  readonly hint: string;
  readonly details: Readonly<Record<string, unknown>>;
  readonly #what: string;

  constructor(code: string, message: string, hint = "", details: Readonly<Record<string, unknown>> = {}) {
    super(hint === "" ? message : `${message} (${hint})`);
    this.name = new.target.name;
    this.code = code;
    this.hint = hint;
    this.details = details;
    this.#what = message;
  }

  /** @internal Returns the same error for a call of which an earlier attempt may have been executed. */
  maybeSent(): TrlError {
    const make = this.constructor as typeof TrlError;
    const hint = "the call may have been executed: check exec.list and session.list before you repeat it";
    return new make(this.code, this.#what, hint, { ...this.details, sent: "maybe" });
  }

  /** @internal Returns the same error, with options named as the methods of this package name them. */
  withOptionNames(): TrlError {
    const make = this.constructor as typeof TrlError;
    return new make(this.code, optionWords(this.#what), optionWords(this.hint), this.details);
  }
}

export class ParseError extends TrlError {
  declare readonly code: "PARSE_ERROR";
}
export class InvalidRequestError extends TrlError {
  declare readonly code: "INVALID_REQUEST";
}
export class MethodNotFoundError extends TrlError {
  declare readonly code: "METHOD_NOT_FOUND";
}
export class InvalidParamsError extends TrlError {
  declare readonly code: "INVALID_PARAMS";
}
export class InternalError extends TrlError {
  declare readonly code: "INTERNAL";
}
export class MaxSessionsReachedError extends TrlError {
  declare readonly code: "MAX_SESSIONS_REACHED";
}
export class ShellNotFoundError extends TrlError {
  declare readonly code: "SHELL_NOT_FOUND";
}
export class CwdNotFoundError extends TrlError {
  declare readonly code: "CWD_NOT_FOUND";
}
export class ShellCrashedError extends TrlError {
  declare readonly code: "SHELL_CRASHED";
}
export class SessionNotFoundError extends TrlError {
  declare readonly code: "SESSION_NOT_FOUND";
}
export class ExecNotFoundError extends TrlError {
  declare readonly code: "EXEC_NOT_FOUND";
}
/** Another command is running: `details.exec_id`. `wait: true` queues instead. */
export class SessionBusyError extends TrlError {
  declare readonly code: "SESSION_BUSY";
}
export class SessionTerminatedError extends TrlError {
  declare readonly code: "SESSION_TERMINATED";
}
export class OutputGoneError extends TrlError {
  declare readonly code: "OUTPUT_GONE";
}
export class UnauthorizedError extends TrlError {
  declare readonly code: "UNAUTHORIZED";
}
export class ForbiddenError extends TrlError {
  declare readonly code: "FORBIDDEN";
}
export class RuntimeNotFoundError extends TrlError {
  declare readonly code: "RUNTIME_NOT_FOUND";
}
export class RuntimeUnavailableError extends TrlError {
  declare readonly code: "RUNTIME_UNAVAILABLE";
}
export class LimitsUnavailableError extends TrlError {
  declare readonly code: "LIMITS_UNAVAILABLE";
}
export class ShuttingDownError extends TrlError {
  declare readonly code: "SHUTTING_DOWN";
}
export class SessionHeldError extends TrlError {
  declare readonly code: "SESSION_HELD";
}
export class SessionUnreadableError extends TrlError {
  declare readonly code: "SESSION_UNREADABLE";
}
export class InputFullError extends TrlError {
  declare readonly code: "INPUT_FULL";
}

/** The class of each code of the contract. */
export const errorClasses = {
  PARSE_ERROR: ParseError,
  INVALID_REQUEST: InvalidRequestError,
  METHOD_NOT_FOUND: MethodNotFoundError,
  INVALID_PARAMS: InvalidParamsError,
  INTERNAL: InternalError,
  MAX_SESSIONS_REACHED: MaxSessionsReachedError,
  SHELL_NOT_FOUND: ShellNotFoundError,
  CWD_NOT_FOUND: CwdNotFoundError,
  SHELL_CRASHED: ShellCrashedError,
  SESSION_NOT_FOUND: SessionNotFoundError,
  EXEC_NOT_FOUND: ExecNotFoundError,
  SESSION_BUSY: SessionBusyError,
  SESSION_TERMINATED: SessionTerminatedError,
  OUTPUT_GONE: OutputGoneError,
  UNAUTHORIZED: UnauthorizedError,
  FORBIDDEN: ForbiddenError,
  RUNTIME_NOT_FOUND: RuntimeNotFoundError,
  RUNTIME_UNAVAILABLE: RuntimeUnavailableError,
  LIMITS_UNAVAILABLE: LimitsUnavailableError,
  SHUTTING_DOWN: ShuttingDownError,
  SESSION_HELD: SessionHeldError,
  SESSION_UNREADABLE: SessionUnreadableError,
  INPUT_FULL: InputFullError,
} as const satisfies Record<ErrorCode, typeof TrlError>;

/** Whether an error is an answer of the daemon with this code. */
export function isTrlError<C extends ErrorCode>(error: unknown, code: C): error is InstanceType<(typeof errorClasses)[C]> {
  return error instanceof TrlError && error.code === code;
}

/** Nothing listens at the address. Nothing was sent, so nothing has happened. */
export class NoDaemonError extends Error {
  readonly code = "NO_DAEMON";
  readonly address: string;
  /** What to do next. */
  readonly hint: string;

  constructor(address: string, options: { cause?: unknown; why?: string; hint?: string } = {}) {
    const { cause, why, hint = nextStep(address) } = options;
    super(`no TRL daemon at ${address}${why === undefined ? "" : `: ${why}`} (${hint})`, { cause });
    this.name = "NoDaemonError";
    this.address = address;
    this.hint = hint;
  }
}

function nextStep(address: string): string {
  return address.startsWith("unix:") ? "run `trl serve --detach`, or call connect({ start: true })" : "run `trl serve --http HOST:PORT` there, or check the address";
}

/** A command did not succeed: thrown by `result.check()`. */
export class CommandFailedError extends Error {
  readonly code = "COMMAND_FAILED";
  readonly result: Result;

  constructor(result: Result) {
    const ended = result.exitCode === null ? result.outcome : `${result.outcome}, exit code ${result.exitCode}`;
    const tail = (result.stderr || (result.merged ? result.stdout : "")).slice(-2000).trim();
    super(`the command failed: ${ended}${tail === "" ? "" : `\n${tail}`}`);
    this.name = "CommandFailedError";
    this.result = result;
  }
}

/** A command ended before it did what was waited for. */
export class ExecEndedError extends Error {
  readonly code = "EXEC_ENDED";
  /** How it ended, without output. */
  readonly result: Result;

  constructor(message: string, result: Result) {
    super(`${message}: ${result.outcome}, exit code ${result.exitCode}`);
    this.name = "ExecEndedError";
    this.result = result;
  }
}

/** The time of a call is over: its `timeoutMs`. The command continues. */
export class CallTimeoutError extends Error {
  readonly code = "CALL_TIMEOUT";

  constructor(message: string) {
    super(message);
    this.name = "CallTimeoutError";
  }
}

/**
 * The connection ended before the answer arrived. `effect` is "none" if the
 * daemon cannot have received the call, otherwise "unknown". `silent` is true
 * if the connection was not closed but no data arrived any more.
 */
export class ConnectionLostError extends Error {
  readonly effect: "none" | "unknown";
  readonly silent: boolean;
  readonly hint: string;

  constructor(message: string, effect: "none" | "unknown", options: { cause?: unknown; silent?: boolean } = {}) {
    const hint =
      effect === "none"
        ? "the daemon has not received the call: repeat it"
        : "the daemon may have executed the call: check session.list or exec.list before you repeat it";
    super(`${message} (${hint})`, { cause: options.cause });
    this.name = "ConnectionLostError";
    this.effect = effect;
    this.silent = options.silent ?? false;
    this.hint = hint;
  }
}

/** A file of a session could not be read or changed. */
export class FileError extends Error {
  /** The system's name of the error, such as "ENOENT"; "EIO" if it is not known. */
  readonly code: string;
  readonly path: string;

  constructor(code: string, message: string, path: string) {
    super(`${code}: ${message}`);
    this.name = "FileError";
    this.code = code;
    this.path = path;
  }
}

/** The peer does not speak the protocol: not a TRL daemon, or a proxy in between. */
export class ProtocolError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "ProtocolError";
  }
}

/** The client was closed by its own program. */
export class ClosedError extends Error {
  constructor() {
    super("the client is closed");
    this.name = "ClosedError";
  }
}
