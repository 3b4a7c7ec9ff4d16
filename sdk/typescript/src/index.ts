/// <reference lib="esnext.disposable" preserve="true" />

import "./dispose.js"; // first: the other modules' classes use the symbol

export { connect } from "./client.js";
export type { CallMethod, CallOptions, Client, ConnectOptions, InputOptions, RunOptions, Session, SessionOptions, StartOptions, StreamOptions } from "./client.js";
export type { Exec, OutputCallbacks, WaitOptions } from "./exec.js";
export type { FileData, FileInfo, Files } from "./files.js";
export type { TLSOptions } from "./address.js";
export type { ReconnectPolicy } from "./transport.js";
export type { EventStream, ExecStream, ExitChunk, FollowOptions, GapChunk, OutputChunk, StreamChunk, WatchOptions } from "./stream.js";
export type { Result } from "./result.js";
export * from "./errors.js";
/** The objects of the contract, with the names of the contract. */
export type * as api from "./types.js";
export type { ErrorCode, Methods, Outcome, SessionEvent } from "./types.js";
