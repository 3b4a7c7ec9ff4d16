/**
 * The types of the TRL contract, version 1.
 *
 * Generated from the method table and the types of the daemon; do not edit. To regenerate it:
 *
 *     go test ./internal/contract -run Fresh -update
 *
 * Later versions may add members to results. Ignore members that are not listed
 * here.
 */

/** NoParams is the parameters of a method that takes none. */
export type NoParams = Record<string, never>;

/** PingResult is the answer to system.ping. */
export interface PingResult {
  /** of the daemon */
  version: string;
  /** 1 */
  protocol: number;
  /** since the daemon started */
  uptime_ms: number;
  /** the account that owns the sessions you create. Absent: the daemon is older than owners */
  caller?: string;
}

/** ProcessSupport says how this daemon finds and kills processes. */
export interface ProcessSupport {
  /**
   * `cgroup`, or `tags` where no cgroup v2 hierarchy is writable; `none` in a daemon without
   * sessions of its own
   */
  tracking: string;
  /** directory of the session cgroups */
  cgroup?: string;
  /** why there are no cgroups */
  reason?: string;
  /** true: orphans become children of the daemon, which reaps them */
  subreaper: boolean;
}

/** Ability is something that a daemon can do on its machine, or why it can't. */
export interface Ability {
  /** what limits or isolations need */
  name: string;
  /** the daemon has tried it, and it works */
  available: boolean;
  /** why it does not work */
  reason?: string;
  /** what to do about it */
  hint?: string;
}

/** PlaceState says whether a place can be used now. */
export type PlaceState =
  /** it answers */
  | "connected"
  /** not connected; the next call connects */
  | "idle"
  /** an attempt is under way */
  | "connecting"
  /** the last attempt failed; `reason` says why */
  | "unreachable";

/**
 * Place is somewhere else that sessions can run: a TRL in a container, on another machine, or
 * behind a command.
 */
export interface Place {
  /** part of the ids of its sessions and execs; drawn when it is added */
  name: string;
  /** what `session.create` takes */
  runtime: string;
  /** whether it can be used now */
  state: PlaceState;
  /** it is named in the configuration */
  configured?: boolean;
  /** as the place last said; absent: it was never connected */
  os?: string;
  /** as Go names it: `amd64`, `arm64` */
  arch?: string;
  /** whose processes run there */
  user?: string;
  /** of the TRL there */
  version?: string;
  /** SHA-256 of its program, in hex */
  digest?: string;
  /** supported shells found there */
  shells?: Array<string>;
  /** limits that can be enforced there */
  limits?: Array<string>;
  /** isolations that can be enforced there */
  isolation?: Array<string>;
  /** when it got its state */
  since?: string;
  /** for `unreachable`: why, in one word */
  reason?: string;
  /** for `unreachable`: why, with the last words of the program that connects */
  message?: string;
  /** for `unreachable`: what to do */
  hint?: string;
  /** for `unreachable`: when the daemon tries again, if a call needs the place */
  retry_after_ms?: number;
}

/** SystemInfo describes the daemon and what it can enforce on its machine. */
export interface SystemInfo {
  /** of the daemon */
  version: string;
  /** 1 */
  protocol: number;
  /** as Go names it: `linux` */
  os: string;
  /** as Go names it: `amd64`, `arm64` */
  arch: string;
  /** of the daemon */
  pid: number;
  /** every setting in effect, by key, and `config_file` if one was read; no secrets */
  config: Record<string, unknown>;
  /**
   * what `session.create` takes as `runtime` without adding a place: `host`, unless this daemon
   * has no sessions of its own, and the runtimes of its places
   */
  runtimes: Array<string>;
  /** which of sh, dash, ash, bash, zsh, mksh are on this host now and supported */
  shells: Array<string>;
  /** how processes are found and killed here */
  process: ProcessSupport;
  /** members of limits that can be enforced here */
  limits: Array<string>;
  /** members of isolation that can be enforced here */
  isolation: Array<string>;
  /** what limits and isolations need, each tried once */
  confinement?: Array<Ability>;
  /** its name in ids: the setting `node` */
  node?: string;
  /** whose daemon it is */
  user?: string;
  /** SHA-256 of the program that it runs, in hex */
  digest?: string;
  /** another value than before means that all earlier sessions are gone */
  boot?: string;
  /** as `place.list` lists them; absent: none */
  places?: Array<Place>;
}

/** SystemStats counts what the daemon does and holds. */
export interface SystemStats {
  /** since the daemon started */
  uptime_ms: number;
  /** number of sessions by State */
  sessions: Record<string, number>;
  /** created since the daemon started */
  sessions_total: number;
  /** running now */
  execs_running: number;
  /** begun or queued since the daemon started */
  execs_total: number;
  /** kept now, by their id */
  execs_retained: number;
  /** output captured since the daemon started */
  bytes_captured: number;
  /** output and index held in memory */
  journal_memory_bytes: number;
  /** output held in spill files */
  journal_spilled_bytes: number;
  /** resident set of the daemon */
  memory_bytes: number;
  /** open descriptors of the daemon */
  fds: number;
  /** of the daemon */
  goroutines: number;
  /** dead descendants of sessions that were reaped without being tracked */
  orphans_reaped: number;
}

/** UpgradeResult is the answer to system.upgrade: the daemon is about to be replaced. */
export interface UpgradeResult {
  /** of the binary that takes over */
  version: string;
}

/** DelegateResult is the answer to system.delegate. */
export interface DelegateResult {
  /** how many connections of callers the requests of this connection may name at once */
  max_connections: number;
}

/** DisconnectParams names the connection of a caller that has left. */
export interface DisconnectParams {
  /** the name, of at most 200 bytes */
  connection: string;
}

/** DisconnectResult is the answer to system.disconnect. */
export interface DisconnectResult {
  /** the name */
  connection: string;
  /** it was connected until now; false: no request has named it, or it has ended already */
  disconnected: boolean;
}

/** TTYSize is the size of a terminal in characters. */
export interface TTYSize {
  /** height in characters */
  rows: number;
  /** width in characters */
  cols: number;
}

/**
 * Limits bounds what all processes of a session may use together, and how long the session may
 * live. A limit that is left out does not exist.
 */
export interface Limits {
  /**
   * memory of the session, without swap; at least 1 MiB. The kernel kills a process of the
   * session that needs more
   */
  memory_bytes?: number;
  /** processor time, in cores: `0.5` is half of one; at least 0.01 */
  cpu?: number;
  /** processes and threads that commands may have at once; further ones are not started */
  pids?: number;
  /** descriptors of each process; at least 32 */
  open_files?: number;
  /** size up to which each process can write a file */
  file_size_bytes?: number;
  /** the session ends so long after it was created */
  wall_ms?: number;
  /** what the session can store in its private directories */
  disk_bytes?: number;
}

/** Profile is a named isolation. */
export type Profile =
  /** write in the working directory, read the rest, reach the package registries */
  | "workspace"
  /** write nothing */
  | "readonly"
  /** `workspace` without network */
  | "offline";

/** Addition is what a session may do besides what its profile lets it do. */
export interface Addition {
  /** paths that it can write, too */
  write?: Array<string>;
  /** `host:port` or `*.host:port` that it can reach, too */
  allow?: Array<string>;
}

/** Filesystem says which paths a session can read and write. */
export interface Filesystem {
  /** paths that it can read; default: all but those in `deny` */
  read?: Array<string>;
  /** paths that it can write, and read */
  write?: Array<string>;
  /** paths that it can't see */
  deny?: Array<string>;
  /** `/tmp` and `/var/tmp` are its own, and gone when it ends */
  private_tmp?: boolean;
}

/**
 * Network says what a session can connect to: a word, or an object with a list of what is
 * allowed.
 */
export type Network = "none" | "loopback" | NetworkObject;

/**
 * Network says what a session can connect to: a word, or an object with a list of what is
 * allowed.
 */
export interface NetworkObject {
  /** `host:port` or `*.host:port`, which it reaches over a proxy; nothing else */
  allow: Array<string>;
}

/**
 * Isolation is what a session is kept from. A string is short for an object that has only this
 * profile. An object with a profile narrows it by its other members, after Add has widened it.
 */
export type Isolation = Profile | IsolationObject;

/**
 * Isolation is what a session is kept from. A string is short for an object that has only this
 * profile. An object with a profile narrows it by its other members, after Add has widened it.
 */
export interface IsolationObject {
  /** where to start from; default: nothing is isolated */
  profile?: Profile;
  /** what it may do besides what the profile lets it do */
  add?: Addition;
  /** which paths it can read and write */
  filesystem?: Filesystem;
  /** what it can connect to */
  network?: Network;
  /** `own`: it sees and reaches no processes but its own */
  processes?: "own";
  /** the name or the uid of the user that it runs as */
  user?: string;
  /** no program in it gains privileges: setuid bits have no effect */
  no_new_privs?: boolean;
  /** `default`: system calls that ordinary programs do not need are refused */
  seccomp?: "default";
}

/** SessionCreateParams starts a session. */
export interface SessionCreateParams {
  /**
   * a name on the daemon's PATH or a path; default `/bin/sh`. Supported: dash, busybox ash,
   * bash, zsh and mksh
   */
  shell?: string;
  /** instead of `shell`: one direct command. `argv[0]` is a name on the session's PATH or a path */
  argv?: Array<string>;
  /**
   * where it starts; default the directory of the daemon that runs it. In a place it is a
   * directory of the place
   */
  cwd?: string;
  /** added to the inherited variables; `null` removes a variable */
  env?: Record<string, string | null>;
  /**
   * `base` (default): PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, TERM, TZ, TMPDIR and
   * `LC_*`; `all`; or `none`. The daemon's own `TRL_*` are never passed on
   */
  inherit_env?: "base" | "all" | "none";
  /** read the shell's login startup files before the session is idle; their output is discarded */
  login?: boolean;
  /** for people; need not be unique. One line */
  name?: string;
  /** for `session.list`. One line each */
  tags?: Array<string>;
  /**
   * the name of the program that creates the session, such as `claude-code`: at most 64 ASCII
   * letters, digits and `.` `_` `+` `@` `-`. It follows the account in `owner`
   */
  client?: string;
  /** give the session a terminal of this size */
  tty?: TTYSize;
  /**
   * default of every exec in it; 0 or left out: the daemon's `default_timeout_ms`, which is none
   * unless set
   */
  timeout_ms?: number;
  /** destroy it after it was idle for this long; 0 is never. Default: the daemon's `idle_ttl_ms` */
  idle_ttl_ms?: number;
  /** what it may use, enforced exactly or `LIMITS_UNAVAILABLE` */
  limits?: Limits;
  /** what it is kept from, enforced exactly or `LIMITS_UNAVAILABLE` */
  isolation?: Isolation;
  /**
   * where it runs; left out: where its `parent` runs; without one, the setting
   * `default_runtime`, which is `host` unless set
   */
  runtime?: string;
  /** makes a repeat safe: the first session is returned */
  key?: string;
  /** how long the shell may take to start, and then its login files; 0 or left out: 10 s */
  create_timeout_ms?: number;
  /** the id of a session that this one ends with */
  parent?: string;
  /** end it with the connections that use it */
  while_connected?: boolean;
  /**
   * for `while_connected`: how long it outlives the last connection; 0 or left out: 15 s. At
   * most a day
   */
  reconnect_ms?: number;
}

/**
 * State is the lifecycle state of a session. It changes only through the transition table of
 * the session package.
 */
export type State =
  /** the shell is starting */
  | "creating"
  /** ready for a command */
  | "idle"
  /** a command runs, or the session is `unreadable` */
  | "running"
  /** ended; no process is left */
  | "terminated";

/**
 * LimitsInForce is the limits that hold in a session, with the values that the kernel
 * enforces.
 */
export interface LimitsInForce extends Limits {
  /** processes that the kernel allows on top of `pids`, for the session's shell and its copies */
  pids_reserved?: number;
}

/** IsolationInForce is the isolation that holds in a session, and what enforces it. */
export interface IsolationInForce extends IsolationObject {
  /** version of Landlock that is enforced */
  landlock_abi?: number;
  /** what enforces it: `mount`, `landlock`, `seccomp` and others */
  mechanisms?: Array<string>;
}

/** Outcome says how an exec ended, in one word. */
export type Outcome =
  /** not over yet, or not begun */
  | "running"
  /** it ended and its shell continued */
  | "exited"
  /**
   * the same, with an exit code of 128 plus a signal's number, by which shells report a child
   * that a signal ended
   */
  | "signaled"
  /** stopped by a timeout */
  | "timed_out"
  /** stopped by `exec.cancel`, by the end of its session, or in the queue */
  | "cancelled"
  /** the command ended its shell (`exit`, `exec`, `set -e`); the session continues */
  | "shell_exited"
  /** the shell was killed, crashed, or became unusable; the session continues */
  | "shell_died"
  /**
   * the kernel killed it with SIGKILL for lack of memory; only in a session with the limit
   * `memory_bytes`
   */
  | "oom_killed";

/** Login says how the login files of a session ended, in the terms of a command. */
export interface Login {
  /** as for a command: `exited`, `timed_out`, or that they ended their shell */
  outcome: Outcome;
  /** of the last of them; many end with 1 without a real failure */
  exit_code: number | null;
  /** they took longer than `create_timeout_ms`, and were stopped */
  timed_out: boolean;
}

/** Hold says who holds the keyboard of a session. */
export interface Hold {
  /** who has it */
  holder: string;
  /** when the lease began */
  since: string;
  /** when it ends, unless it is renewed or used */
  until: string;
}

/** Terminated says when and why a session ended. */
export interface Terminated {
  /** when its tree was verified empty */
  at: string;
  /**
   * `destroyed`; `idle` (its TTL); `parent` (the session that it belonged to has ended);
   * `disconnected` (no connection that used it is left); `wall` (its limit `wall_ms`);
   * `shutdown` (of the daemon); `exited` (a direct command ended); `lost` (the holder was
   * killed, or a restarted daemon could not take over this session: its processes were killed);
   * `shell_lost` (the shell died and no copy of it could take over)
   */
  reason: string;
  /** for a direct command that ended by itself */
  exit_code?: number;
  /** the signal that ended it */
  signal?: string;
}

/**
 * Session describes a session; every method returns it in this form. Values of environment
 * variables are never returned, only their names.
 */
export interface Session {
  /** its id: `s-` and ten letters and digits; with the setting `node`, `s-NODE-` and the ten */
  session_id: string;
  /** as given */
  name?: string;
  /** as given */
  tags?: Array<string>;
  /**
   * who created it: an account, or an account and a client, such as `alice/claude-code`. Absent:
   * a daemon older than owners created it
   */
  owner?: string;
  /** where it runs: `host`, or the runtime of its place */
  runtime: string;
  /** where it is in its lifecycle */
  state: State;
  /** path of the shell */
  shell?: string;
  /** for a direct session */
  argv?: Array<string>;
  /**
   * the process that is the shell (or the direct command) now. It changes when a copy takes
   * over; see the shell driver
   */
  pid?: number;
  /** its directory now */
  cwd?: string;
  /** the size of its terminal; absent: it has none */
  tty?: TTYSize;
  /** when its creation was requested */
  created_at: string;
  /** when an exec last began or ended */
  last_activity_at: string;
  /** execs begun or queued in it */
  exec_count: number;
  /** default of its execs; 0 is none */
  timeout_ms: number;
  /** 0 is never */
  idle_ttl_ms: number;
  /** names of the variables given at its creation; values are never returned */
  env_keys?: Array<string>;
  /** the session that it ends with */
  parent?: string;
  /** it ends with the connections that use it */
  while_connected?: boolean;
  /** the limits that hold in it; absent: none */
  limits?: LimitsInForce;
  /** the isolation that holds in it; absent: none */
  isolation?: IsolationInForce;
  /** the running exec; for a direct session its only one, also after it has ended */
  exec_id?: string;
  /** the label of that exec */
  exec_label?: string;
  /** how its login files ended, if `login` was set */
  login?: Login;
  /** it is being ended, and takes no more commands */
  ending?: boolean;
  /** who has its keyboard; absent: no one, so all may type */
  held?: Hold;
  /**
   * why the daemon can't read the state that an earlier daemon left of it. Its processes live,
   * and it takes no command: `SESSION_UNREADABLE`
   */
  unreadable?: string;
  /** when and why it ended */
  terminated?: Terminated;
}

/** SessionListParams selects sessions; every field that is set must match. */
export interface SessionListParams {
  /** only sessions in this state */
  state?: State;
  /** only sessions that have not ended */
  alive?: boolean;
  /** only sessions with this tag */
  tag?: string;
  /** only sessions of this runtime */
  runtime?: string;
}

/** Unreachable is a place that did not answer: its sessions may still run there. */
export interface Unreachable {
  /** of the place */
  name: string;
  /** of the place */
  runtime: string;
  /** why, in one word */
  reason: string;
  /** why, for people */
  message?: string;
  /** since when */
  since?: string;
}

/** SessionListResult is the answer to session.list, oldest session first. */
export interface SessionListResult {
  /** the matching sessions */
  sessions: Array<Session>;
  /**
   * the places whose sessions are missing from the list, because they did not answer; absent:
   * none is missing
   */
  unreachable?: Array<Unreachable>;
}

/** SessionParams names one session. */
export interface SessionParams {
  /** the session */
  session_id: string;
}

/** ExecState says whether an exec waits, runs or has ended. */
export type ExecState =
  /** it waits for its session */
  | "queued"
  /** it runs */
  | "running"
  /** it is over; its background processes may still write to its journal */
  | "exited";

/**
 * Process is one live process of a session. ExecID names the command that started it, if
 * known.
 */
export interface Process {
  /** its id */
  pid: number;
  /** its parent */
  ppid: number;
  /** since it was started */
  age_ms: number;
  /** resident set */
  rss_bytes: number;
  /** its arguments in one line of at most 512 bytes, or its name in brackets */
  command: string;
  /** the exec that started it, where that is still known */
  exec_id?: string;
  /**
   * `shell` for the session's shell, `standby` for a sleeping copy of it, `leader` for the
   * helper that holds its terminal; absent for what commands started
   */
  role?: string;
}

/** Usage is the resources that processes consumed. */
export interface Usage {
  /**
   * processor time: of a direct command; or, in a shell session with limits, of the whole
   * session while the command ran
   */
  cpu_ms: number;
  /** largest resident set, where it is known: nowhere yet */
  max_rss_bytes?: number;
  /**
   * the most memory that the whole session had at once, if it has the limit: while the command
   * ran, or since the session began where the kernel can't tell (before Linux 6.12)
   */
  memory_peak_bytes?: number;
  /**
   * the most processes and threads of the session at once, in the same way; since the session
   * began
   */
  pids_peak?: number;
}

/** Limit names a limit that a command has reached. */
export type Limit =
  /** the kernel killed a process, because the session had all of its `memory_bytes` */
  | "memory"
  /** the kernel made the session wait for processor time */
  | "cpu"
  /** a process or a thread was not started */
  | "pids"
  /** reserved: the kernel does not count it */
  | "open_files"
  /** a process was killed by SIGXFSZ */
  | "file_size"
  /** the session was ended */
  | "wall"
  /** reserved */
  | "disk";

/** NetworkDenial is a connection that the network of a session refused. */
export interface NetworkDenial {
  /** as it was asked for, in printable ASCII */
  host?: string;
  /** as it was asked for */
  port?: number;
  /** why, for people */
  message: string;
  /** how many denials before this one are not told, because there were too many */
  suppressed?: number;
}

/**
 * ExecResult describes an exec: the answer to exec.run and, without output, to exec.info and
 * exec.list.
 */
export interface ExecResult {
  /** its id: `e-` and ten letters and digits; with the setting `node`, `e-NODE-` and the ten */
  exec_id: string;
  /** its session */
  session_id: string;
  /** the name that its caller gave it, or that the daemon made */
  label?: string;
  /** whether it is still in progress */
  state: ExecState;
  /** how it ended, in one word */
  outcome: Outcome;
  /**
   * of the command; 128 plus the number of the signal if one ended it, or was needed to stop it:
   * a command that handles SIGTERM and then ends by itself has its own code (not in zsh). null
   * while it runs or waits, if it never ran, and if its session was killed while it ran
   */
  exit_code: number | null;
  /** the signal that ended it, or that was needed to stop it: `SIGTERM`, `SIGKILL` */
  signal?: string;
  /** when it began; while it waits, when it was queued */
  started_at: string;
  /** so far, or in total */
  duration_ms: number;
  /** how long it was queued; absent: it was not */
  queued_ms?: number;
  /** stopped by `timeout_ms` or `idle_timeout_ms` */
  timed_out: boolean;
  /** stopped by `exec.cancel`, or with its session */
  cancelled: boolean;
  /**
   * complete, or head and tail with a line between them that says how many bytes are left out;
   * in base64 there is no such line
   */
  stdout: string;
  /** complete, or cut as `stdout` is */
  stderr: string;
  /** `"base64"` when needed */
  stdout_encoding?: string;
  /** `"base64"` when needed */
  stderr_encoding?: string;
  /** captured so far, however much the result has */
  stdout_bytes: number;
  /** captured so far, however much the result has */
  stderr_bytes: number;
  /** `stdout` contains both streams, as `merge` requested */
  merged?: boolean;
  /**
   * `stdout` or `stderr` above is not complete; `exec.output` has the rest, except for
   * `dropped_bytes`
   */
  truncated: boolean;
  /** how many captured bytes the quota has dropped: they can't be read any more */
  dropped_bytes?: number;
  /** the session's directory after the command */
  cwd?: string;
  /** for a command on a terminal: the size when it began */
  tty?: TTYSize;
  /** the processes that the command left running */
  survivors?: Array<Process>;
  /** the state of the shell was lost: it is now as it was after `rolled_back_to` */
  rolled_back?: boolean;
  /** an exec id; absent with `rolled_back`: as at the session's start */
  rolled_back_to?: string;
  /** only for the command of a direct session */
  usage?: Usage;
  /**
   * bytes of `exec.input` that the command did not read, on a terminal after its line editing;
   * absent: none, or the session is direct
   */
  input_unread?: number;
  /** limits of the session that were provably reached while it ran */
  limit_hit?: Array<Limit>;
  /**
   * what the allow-list of the session refused while it ran; at most 8: `suppressed` counts
   * those that are left out before one, and the last is always there
   */
  network_denied?: Array<NetworkDenial>;
}

/** WaitingFor says which kind of input a command waits for. */
export type WaitingFor =
  /** text that is visible as it is typed, or a key */
  | "input"
  /** a line that the terminal does not show */
  | "password";

/** Waiting says that the command on a terminal waits for input. */
export interface Waiting {
  /** what to type */
  for: WaitingFor;
  /** when output was last written to the terminal or input typed */
  since: string;
  /** the process that waits */
  pid: number;
  /** its arguments in one line */
  process: string;
}

/** SessionInfo is a session together with its execs and processes. */
export interface SessionInfo extends Session {
  /** the running one, without output */
  exec?: ExecResult;
  /** the last finished one, without output */
  last_exec?: ExecResult;
  /** every live process in its tree; zombies are not listed */
  processes: Array<Process>;
  /** only where cgroups count it: `cpu_ms` of the whole session */
  usage?: Usage;
  /** on a terminal, what the running command waits for; absent: it does not wait for input */
  waiting?: Waiting;
  /**
   * when `exec.input` was last used without a lease: a client types that does not hold the
   * keyboard lease
   */
  typed_at?: string;
}

/** SessionDestroyParams ends a session. Force skips the grace period. */
export interface SessionDestroyParams {
  /** the session */
  session_id: string;
  /** no grace: SIGKILL at once */
  force?: boolean;
}

/**
 * SessionDestroyResult is sent once the session's process tree is verified empty. Survivors is
 * then an empty list. It names processes that could not be killed, if there are any (a process
 * in uninterruptible sleep).
 */
export interface SessionDestroyResult {
  /** the session */
  session_id: string;
  /** `terminated` */
  state: State;
  /**
   * normally empty; lists what could not be killed within 10 s because the kernel itself blocks
   * a process
   */
  survivors: Array<Process>;
}

/** SessionWatchParams requests the events of one session, or of all. */
export interface SessionWatchParams {
  /** only this session; default all */
  session_id?: string;
  /** begin with the sessions that there are */
  snapshot?: boolean;
  /** report commands too, and whether they wait for input */
  execs?: boolean;
}

/** SessionWatchResult names the stream of events that follows. */
export interface SessionWatchResult {
  /** the stream of the events that follow */
  stream_id: string;
}

/** SessionResizeParams changes the size of a session's terminal. */
export interface SessionResizeParams {
  /** the session */
  session_id: string;
  /** 1 to 1000 */
  rows: number;
  /** 1 to 1000 */
  cols: number;
  /** the keyboard lease, if a client holds one */
  lease?: string;
}

/** SessionResizeResult is the new size of the terminal. */
export interface SessionResizeResult {
  /** the session */
  session_id: string;
  /** the new size */
  tty: TTYSize;
}

/** ScreenFormat is the format in which a screen is returned. */
export type ScreenFormat =
  /** what a person reads: a line for each row, without trailing blanks */
  | "text"
  /** bytes that make another terminal of the same size look the same */
  | "ansi"
  /** rows of runs of one style, with colors and links */
  | "json";

/** SessionScreenParams requests the contents of a session's terminal. */
export interface SessionScreenParams {
  /** the session */
  session_id: string;
  /** default `text` */
  format?: ScreenFormat;
  /** for `text` and `ansi`: first up to this many lines that have scrolled away; 1000 are kept */
  scrollback?: number;
}

/** ScreenCursor is the position of the cursor, counted from 0. */
export interface ScreenCursor {
  /** from 0 on */
  row: number;
  /** from 0 on */
  column: number;
  /** the program hides it */
  hidden?: boolean;
}

/**
 * ScreenStyle describes how text looks. A color is "" for the default, the number of a palette
 * color, or #rrggbb.
 */
export interface ScreenStyle {
  /** color of the text */
  fg?: string;
  /** color behind it */
  bg?: string;
  /** thick letters */
  bold?: boolean;
  /** faint letters */
  dim?: boolean;
  /** slanted letters */
  italic?: boolean;
  /** `single`, `double`, `curly`, `dotted` or `dashed` */
  underline?: string;
  /** where it differs from that of the text */
  underline_color?: string;
  /** it should blink */
  blink?: boolean;
  /** text and background colors are swapped */
  inverse?: boolean;
  /** it should not be shown */
  invisible?: boolean;
  /** a line through it */
  strike?: boolean;
  /** a line above it */
  overline?: boolean;
  /**
   * its target: a link of `http`, `https`, `file` or `mailto`. Other links are dropped, in every
   * format
   */
  link?: string;
}

/** ScreenRun is a run of text in one style. */
export interface ScreenRun {
  /** characters of one style */
  text: string;
  /** in columns: some characters take two */
  width: number;
  /** absent: the default */
  style?: ScreenStyle;
}

/** ScreenLine is one row. Everything after its last run is blank. */
export interface ScreenLine {
  /** from left to right; the rest of the line is blank */
  runs?: Array<ScreenRun>;
  /** it continues the row above */
  wrapped?: boolean;
}

/**
 * SessionScreenResult is the contents of a terminal. ExecID and Offset name the journal and
 * the byte after which the screen looked like this.
 */
export interface SessionScreenResult {
  /** the session */
  session_id: string;
  /** the command whose output came last; absent before the first */
  exec_id?: string;
  /** the screen shows the state after this byte of that command's journal */
  offset: number;
  /** of the terminal */
  rows: number;
  /** of the terminal */
  cols: number;
  /** where the next character goes */
  cursor: ScreenCursor;
  /** a program uses the whole screen, as editors and pagers do */
  alternate?: boolean;
  /** the window title that programs set */
  title?: string;
  /** for the formats `text` and `ansi` */
  text?: string;
  /** for the format `json`, one for each row */
  lines?: Array<ScreenLine>;
  /** what the running command waits for; absent: it does not wait for input */
  waiting?: Waiting;
}

/**
 * SessionHoldParams takes the keyboard lease of a session. While the lease is held, only its
 * holder can start commands in the session, type, and resize its terminal. Reading and
 * stopping stay open to everyone.
 */
export interface SessionHoldParams {
  /** the session */
  session_id: string;
  /** who you are, such as `alice@laptop`, in 1 to 100 bytes: clients that are refused see it */
  holder: string;
  /** renews this lease instead of taking a new one */
  lease?: string;
  /** take it from the current lease holder */
  force?: boolean;
  /** the lease ends this long after it was last renewed or used; 1000 to 600000, default 15000 */
  ttl_ms?: number;
  /**
   * the lease holder's own terminal answers the queries of programs (its size, its colors), so
   * the daemon does not
   */
  answers?: boolean;
}

/** SessionHoldResult describes a keyboard lease and carries the token that proves it. */
export interface SessionHoldResult {
  /** the session */
  session_id: string;
  /** proves the lease in later calls */
  lease: string;
  /** who has it, and until when */
  hold: Hold;
}

/** SessionReleaseParams releases the keyboard of a session. */
export interface SessionReleaseParams {
  /** the session */
  session_id: string;
  /** the lease to end */
  lease: string;
}

/** SessionReleaseResult names the session whose keyboard is free now. */
export interface SessionReleaseResult {
  /** the session */
  session_id: string;
}

/** ExecRunParams runs one command in a session. */
export interface ExecRunParams {
  /** the session */
  session_id: string;
  /** text for the session's shell; may be empty and may have many lines */
  command: string;
  /** default the session's; 0 is none */
  timeout_ms?: number;
  /** stop it when it wrote nothing for this long; 0 is never */
  idle_timeout_ms?: number;
  /** only for this command; names are names of shell variables; `null` unsets one */
  env?: Record<string, string | null>;
  /** only for this command; relative to the session's directory */
  cwd?: string;
  /** what it reads; default: end of input at once */
  stdin?: string;
  /** `"base64"` when `stdin` is not text */
  stdin_encoding?: "base64";
  /** keep stdin open after `stdin`, for `exec.input` */
  stdin_open?: boolean;
  /** write stderr to the same pipe as stdout: one stream, in true order */
  merge?: boolean;
  /** queue instead of `SESSION_BUSY` */
  wait?: boolean;
  /** makes a repeat safe */
  key?: string;
  /** a name for results and lists, at most 200 bytes; default: the daemon makes one */
  label?: string;
  /** the keyboard lease, if a client holds one */
  lease?: string;
  /** answer after this long, even if the command still runs; 0 is never */
  yield_ms?: number;
  /** on a terminal: also answer, with `state` `running`, when the command waits for input */
  yield_on_input?: boolean;
  /**
   * how much of each stream the result has; default the daemon's `max_output_bytes` (128 KiB),
   * at most 4 MiB; 0 is none
   */
  max_output_bytes?: number;
}

/**
 * ExecStreamParams runs one command as ExecRunParams does. Its output follows the answer as
 * chunks, so there are no parameters for yielding or truncation.
 */
export interface ExecStreamParams {
  /** the session */
  session_id: string;
  /** text for the session's shell; may be empty and may have many lines */
  command: string;
  /** default the session's; 0 is none */
  timeout_ms?: number;
  /** stop it when it wrote nothing for this long; 0 is never */
  idle_timeout_ms?: number;
  /** only for this command; names are names of shell variables; `null` unsets one */
  env?: Record<string, string | null>;
  /** only for this command; relative to the session's directory */
  cwd?: string;
  /** what it reads; default: end of input at once */
  stdin?: string;
  /** `"base64"` when `stdin` is not text */
  stdin_encoding?: "base64";
  /** keep stdin open after `stdin`, for `exec.input` */
  stdin_open?: boolean;
  /** write stderr to the same pipe as stdout: one stream, in true order */
  merge?: boolean;
  /** queue instead of `SESSION_BUSY` */
  wait?: boolean;
  /** makes a repeat safe: it follows the first exec, from offset 0 on */
  key?: string;
  /** a name for results and lists, at most 200 bytes; default: the daemon makes one */
  label?: string;
  /** the keyboard lease, if a client holds one */
  lease?: string;
}

/** ExecStreamResult is sent when the command has been accepted. */
export interface ExecStreamResult {
  /** the exec */
  exec_id: string;
  /** the stream of the chunks that follow */
  stream_id: string;
}

/** ExecAttachParams requests an exec's output as chunks, starting at an offset. */
export interface ExecAttachParams {
  /** the exec */
  exec_id: string;
  /** offset to begin at; default 0. Past the end: `INVALID_PARAMS` (`data.size`) */
  from?: number;
}

/** ExecAttachResult says at which offset the chunks that follow start. */
export interface ExecAttachResult {
  /** the stream of the chunks that follow */
  stream_id: string;
  /** the offset of the first of them */
  from: number;
  /** state of the exec at the moment of the answer */
  state: ExecState;
}

/** ChunkType says which stream a chunk belongs to, or what else it reports. */
export type ChunkType =
  /** bytes of stdout */
  | "stdout"
  /** bytes of stderr */
  | "stderr"
  /** bytes of a terminal, which has one stream */
  | "tty"
  /** bytes that were not kept, because of a quota or a full disk */
  | "gap"
  /** the terminal has another size from here on; only with `times` */
  | "resize"
  /** the exec is over; the last of a stream, and only there */
  | "exit"
  /** instead of the exit: the place of the exec has forgotten it, `error` says why */
  | "error";

/** ExecOutputParams reads an exec's journal by polling. */
export interface ExecOutputParams {
  /** the exec */
  exec_id: string;
  /** offset to begin at; default 0. Past the end: `INVALID_PARAMS` (`data.size`) */
  from?: number;
  /** at most this many bytes of the journal; default 256 KiB */
  max_bytes?: number;
  /** long poll: wait this long for a byte past `from`, or the end of the exec */
  wait_ms?: number;
  /** `stdout` or `stderr`; default both */
  stream?: ChunkType;
  /**
   * `raw` (default), or `text`: escape sequences stripped, lines that carriage returns or
   * backspaces rewrote in their last form
   */
  view?: "raw" | "text";
  /**
   * say when output arrived: `chunks` are cut where time passed, and have `at_ms`. Not with
   * `view: "text"`
   */
  times?: boolean;
}

/**
 * ErrorCode is the stable name of an error. Clients switch on it; the JSON-RPC number sent
 * with it is for JSON-RPC libraries.
 */
export type ErrorCode =
  /** the line is not JSON */
  | "PARSE_ERROR"
  /**
   * not a JSON-RPC 2.0 request, a batch, a line that is too long, an `actor` that is invalid or
   * not expected (`data.field`); also `exec.cancel` of an idle session
   */
  | "INVALID_REQUEST"
  /** there is no such method (`data.method`) */
  | "METHOD_NOT_FOUND"
  /** a field is unknown, missing or invalid (`data.field`) */
  | "INVALID_PARAMS"
  /** a failure of the daemon itself; the call may have had effects */
  | "INTERNAL"
  /** the pool is full (`data.max_sessions`) */
  | "MAX_SESSIONS_REACHED"
  /** no such shell or program, or not a supported shell (`data.shell`); nothing was created */
  | "SHELL_NOT_FOUND"
  /** the directory does not exist or can't be entered (`data.cwd`); nothing was created or run */
  | "CWD_NOT_FOUND"
  /**
   * the shell died while starting, or did not answer and was killed (`data.exit_code`,
   * `data.signal`, `data.stderr`); nothing is left behind
   */
  | "SHELL_CRASHED"
  /** it never existed, or is past its retention */
  | "SESSION_NOT_FOUND"
  /** it never existed, or is past its retention */
  | "EXEC_NOT_FOUND"
  /**
   * the session runs another command (`data.exec_id`) and the call did not set `wait`; always
   * for a direct session, and while a session is being created (without `data.exec_id`)
   */
  | "SESSION_BUSY"
  /** the session has ended (`data.reason`), or is ending */
  | "SESSION_TERMINATED"
  /**
   * the output of this exec is no longer kept at all (`data.first_offset`); a part that quota
   * dropped is a `gap` chunk instead
   */
  | "OUTPUT_GONE"
  /**
   * on the socket: the peer's user may not use this daemon; the connection is closed after it.
   * Over HTTP: the token is missing, unknown or expired. Over a connection that acts for others:
   * the request has no actor
   */
  | "UNAUTHORIZED"
  /**
   * the caller's scope is smaller than the method's (`data.scope`, the one it needs), or its
   * token is bound to a tag (`data.tag`) and `session.create` requested a session without it, or
   * a method that is about the whole daemon was called; or the setting `allowed_runtimes`
   * excludes the runtime (`data.runtime`); or an actor's scope exceeds its connection's
   */
  | "FORBIDDEN"
  /**
   * there is no such runtime (`data.runtime`): its kind is unknown, or its name is not in the
   * configuration
   */
  | "RUNTIME_NOT_FOUND"
  /**
   * a place is out of reach (`data.runtime`, `data.reason`, `data.sent`, `data.since`,
   * `data.retry_after_ms`). Over HTTP also: too many requests with this token
   * (`data.retry_after_ms`). The command line uses it when it finds no daemon
   */
  | "RUNTIME_UNAVAILABLE"
  /**
   * `limits` or `isolation` was requested, which this daemon can't enforce exactly. Nothing was
   * started. `limits` and `isolation` name the members, `missing` what the machine lacks, and
   * `reasons` why
   */
  | "LIMITS_UNAVAILABLE"
  /**
   * the daemon is ending its sessions: no new session, no new command. It still accepts
   * connections until the sessions have ended, and clients may read
   */
  | "SHUTTING_DOWN"
  /**
   * another client has the session's keyboard (`data.holder`, `data.since`), or the given
   * `lease` has ended
   */
  | "SESSION_HELD"
  /**
   * the daemon can't read the state that an earlier daemon left of the session; `session.info`
   * lists its processes, `session.destroy` kills them. It has its own name because the session
   * is neither busy nor ended
   */
  | "SESSION_UNREADABLE"
  /**
   * `exec.input` with `whole` got more than `input_buffer_bytes` (`data.bytes`,
   * `data.input_buffer_bytes`); nothing was written
   */
  | "INPUT_FULL";

/**
 * Chunk is a piece of a journal. Offset is the journal offset of its first byte. A gap chunk
 * stands for Bytes bytes that the quota dropped. A chunk of a stream names the stream and its
 * exec; a chunk of exec.output does not. When times are requested, AtMS is the time at which
 * its first byte was captured.
 */
export interface Chunk {
  /** the stream it is sent in; absent in `exec.output` */
  stream_id?: string;
  /** its exec; absent in `exec.output` */
  exec_id?: string;
  /** its stream, or a gap, or the end */
  type: ChunkType;
  /** of its first byte in the journal */
  offset: number;
  /** absent in a gap and in an exit */
  data?: string;
  /** `"base64"` when needed */
  encoding?: string;
  /** for a gap: how many bytes were not kept */
  bytes?: number;
  /** the offset after the chunk, from which to resume */
  next: number;
  /**
   * with `times`, not for a gap: when the first byte was captured, in milliseconds after the
   * command began
   */
  at_ms?: number;
  /** for a resize: the size from here on */
  tty?: TTYSize;
  /** for an exit: how the exec ended, without output */
  result?: ExecResult;
  /** for an error: why the stream ends */
  error?: ErrorObject;
}

/**
 * ExecOutputResult carries chunks up to the offset Next, where the next call continues. Closed
 * is true when nothing can follow Next: the exec has ended and no process holds its output
 * open.
 */
export interface ExecOutputResult {
  /** the exec */
  exec_id: string;
  /** in the order of their offsets; may be empty */
  chunks: Array<Chunk>;
  /** the offset from which the next call continues */
  next: number;
  /** of the exec */
  state: ExecState;
  /** nothing can come after `next`: the exec has ended and no process has its output open */
  closed: boolean;
}

/** ExecInputParams writes to a command's standard input. */
export interface ExecInputParams {
  /** the exec */
  exec_id: string;
  /** what to write */
  data?: string;
  /** `"base64"` when `data` is not text */
  encoding?: "base64";
  /** close stdin after `data` */
  eof?: boolean;
  /**
   * on a terminal: typed after `data`, by name: `enter`, `tab`, `escape`, `backspace`, `up`,
   * `down`, `left`, `right`, `home`, `end`, `pageup`, `pagedown`, `insert`, `delete`, `f1` to
   * `f20`, a character, and these after `ctrl-`, `alt-` or `shift-`. The names of tmux are
   * accepted too: `C-c`, `M-x`, `BSpace`, `BTab`, `DC`, `IC`, `NPage`, `PPage`
   */
  keys?: Array<string>;
  /** on a terminal: `data` is pasted, as bracketed paste if the program asked for it */
  paste?: boolean;
  /** the keyboard lease, if a client holds one */
  lease?: string;
  /** makes a repeat safe: it is written once */
  key?: string;
  /**
   * offset of the first byte of `data` in all input of the exec, `stdin` included: bytes that
   * are already there are not written again; an offset after the end is `INVALID_PARAMS`
   * (`data.next`). Not on a terminal
   */
  at?: number;
  /** all of `data` or nothing; answered when it is kept. Not on a terminal */
  whole?: boolean;
}

/** ExecInputResult says how many bytes were accepted for the command. */
export interface ExecInputResult {
  /** the exec */
  exec_id: string;
  /** how many bytes the command has */
  bytes: number;
  /** offset after the last of them: `at` of the next input. Not on a terminal */
  next?: number;
  /**
   * `unknown`: the daemon died while it typed this on a terminal, and a repeat with its `key`
   * typed nothing
   */
  written?: string;
}

/** ExecSignalParams signals the processes of a running command. */
export interface ExecSignalParams {
  /** the exec */
  exec_id: string;
  /** a name (`TERM`, `SIGTERM`, in any case) or a number, as a string (`"9"`) */
  signal: string;
}

/** ExecSignalResult says how many processes were signalled. */
export interface ExecSignalResult {
  /** the exec */
  exec_id: string;
  /** how many were signalled */
  processes: number;
}

/** ExecCancelParams names the command to cancel, by its own id or by its session's. */
export interface ExecCancelParams {
  /** cancel what runs in this session */
  session_id?: string;
  /** cancel this exec */
  exec_id?: string;
}

/** ExecCancelResult is sent once the command is gone. */
export interface ExecCancelResult {
  /** the exec */
  exec_id: string;
  /** it was cancelled, by this call or an earlier one */
  cancelled: boolean;
}

/** ExecParams names one exec. */
export interface ExecParams {
  /** the exec */
  exec_id: string;
}

/** ExecListResult lists a session's execs, oldest first, without output. */
export interface ExecListResult {
  /** without output */
  execs: Array<ExecResult>;
}

/** PlaceListResult is the answer to place.list, in the order of the runtimes. */
export interface PlaceListResult {
  /** all of them */
  places: Array<Place>;
}

/** PlaceParams names a place by its runtime or its name. */
export interface PlaceParams {
  /** a runtime, or the name of a place */
  runtime: string;
}

/**
 * PlaceRemoveParams removes a place. A place with live sessions is removed only with Force,
 * which ends them. With Forget nothing is done there: for a place that is gone for good.
 */
export interface PlaceRemoveParams {
  /** a runtime, or the name of a place */
  runtime: string;
  /** end its sessions first */
  force?: boolean;
  /** do nothing there: for a place that is gone for good */
  forget?: boolean;
}

/** PlaceRemoveResult says what was removed. */
export interface PlaceRemoveResult {
  /** the name it had */
  name: string;
  /** its runtime */
  runtime: string;
}

/** StreamCloseParams names a stream that was opened over the same connection. */
export interface StreamCloseParams {
  /** the stream */
  stream_id: string;
}

/**
 * StreamCloseResult is sent when no more notifications of the stream will follow. Closed is
 * false if the stream had already ended or never existed.
 */
export interface StreamCloseResult {
  /** the stream */
  stream_id: string;
  /** it was open until now; false: it had ended already, or this connection has no such stream */
  closed: boolean;
}

/** SessionEventType says what happened to a session. */
export type SessionEventType =
  /** it can be used: it is `idle`, or `running` if it is a direct session */
  | "created"
  /**
   * it became `idle`, or `running` with the command `exec_id`; also when the next of several
   * queued commands begins
   */
  | "state"
  /** it is `terminated`; `reason` says why */
  | "destroyed"
  /** `holder` has the keyboard from now on */
  | "held"
  /** the keyboard is free */
  | "released"
  /** the terminal has the size `tty` */
  | "resized"
  /** the watcher was too slow, and missed `missed` events */
  | "gap"
  /** the allow-list of the session does not have what a program in it asked for; see `denied` */
  | "network_denied"
  /**
   * with `snapshot`: the session is in this state. Not `created`: it was created before the
   * watch began
   */
  | "snapshot"
  /** with `snapshot`: all sessions were sent */
  | "snapshot_end"
  /** with `execs`: the command `exec_id` begins; after the `state` of its session */
  | "exec_started"
  /** with `execs`: the command `exec_id` is over; before the `state` of its session */
  | "exec_ended"
  /**
   * with `execs`: the command `exec_id` waits for the input `waiting`. It is sent again when the
   * command waits after another input, which may be the next question
   */
  | "waiting"
  /**
   * with `execs`: the command `exec_id` no longer waits, and goes on. An `exec_ended` says so
   * too
   */
  | "waiting_ended";

/** SessionEvent is one event of a session. */
export interface SessionEvent {
  /** the stream it is sent in */
  stream_id: string;
  /** what happened */
  type: SessionEventType;
  /** the session; absent in a gap and in a `snapshot_end` */
  session_id?: string;
  /** of the session */
  name?: string;
  /** of the session */
  tags?: Array<string>;
  /** of the session */
  owner?: string;
  /** the session's new state; in a `snapshot` its state */
  state?: State;
  /**
   * the running exec, for a session that is or became `running`; the exec of an event that is
   * about one
   */
  exec_id?: string;
  /** its label */
  exec_label?: string;
  /** for `exec_ended`: how it ended */
  outcome?: Outcome;
  /** for `exec_ended`: its exit code, if it has one */
  exit_code?: number;
  /** for `waiting`: what it waits for */
  waiting?: Waiting;
  /**
   * when it happened; in a `snapshot` when it was taken, and in the `exec_started` of a snapshot
   * when the command began
   */
  at: string;
  /** for `destroyed`: why, as in Terminated */
  reason?: string;
  /** for `held`: who has the keyboard now; in a `snapshot`, if a client has it */
  holder?: string;
  /** for `resized` and `snapshot`: the size of the terminal now */
  tty?: TTYSize;
  /** for a gap: how many events are missing, of any session */
  missed?: number;
  /** for `network_denied`: what was refused; `reason` says why in one word */
  denied?: NetworkDenial;
}

/**
 * Hello is what the relay of a place (`trl connect`) sends first: which TRL is at the far end.
 * It is the params of the notification system.hello.
 */
export interface Hello {
  /** of the daemon there */
  version: string;
  /** 1 */
  protocol: number;
  /** SHA-256 of the program that the daemon runs, in hex */
  digest?: string;
  /** as Go names it: `linux` */
  os: string;
  /** as Go names it: `amd64`, `arm64` */
  arch: string;
  /** the name in the ids of its sessions */
  node?: string;
  /** another value than before means that all earlier sessions there are gone */
  boot?: string;
  /** whose processes run there */
  user?: string;
}

/** The data of an error besides its message; each detail has its own name. */
export interface ErrorData {
  /** The stable name: switch on this. */
  code: ErrorCode;
  /** A sentence for a model: the next call to make. */
  hint?: string;
  [detail: string]: unknown;
}

/** The JSON-RPC error object. */
export interface ErrorObject {
  /** The JSON-RPC number. */
  code: number;
  message: string;
  data: ErrorData;
}

/** Every method, with its params and its result. */
export interface Methods {
  /**
   * Check that the daemon answers; returns its version, its uptime and the account that you are
   * to it. Scope: read.
   */
  "system.ping": { params: NoParams; result: PingResult };
  /**
   * Describe the daemon: version, configuration, shells, runtimes, and which limits and
   * isolations work on this machine. Scope: read.
   */
  "system.info": { params: NoParams; result: SystemInfo };
  /**
   * Count what the daemon does and holds: sessions by state, commands run, bytes captured,
   * memory. Scope: read.
   */
  "system.stats": { params: NoParams; result: SystemStats };
  /**
   * Let the binary that is now at the daemon's path take over its sessions; returns whether it
   * can, before the takeover. Scope: admin.
   */
  "system.upgrade": { params: NoParams; result: UpgradeResult };
  /**
   * Make this connection act for others: every later request must name the caller for whom it is
   * made, as its actor. Scope: admin.
   */
  "system.delegate": { params: NoParams; result: DelegateResult };
  /**
   * Report that a caller has closed its connection to the program that acts for it; sessions
   * that end with that connection follow. Scope: read.
   */
  "system.disconnect": { params: DisconnectParams; result: DisconnectResult };
  /**
   * Start a session: a long-lived shell whose directory, variables and functions persist from
   * command to command. Scope: run.
   */
  "session.create": { params: SessionCreateParams; result: Session };
  /**
   * List sessions, oldest first, optionally only those of one state, tag or runtime. Scope:
   * read.
   */
  "session.list": { params: SessionListParams; result: SessionListResult };
  /**
   * Show one session: its state, the running and the last command, and every process in its
   * tree. Scope: read.
   */
  "session.info": { params: SessionParams; result: SessionInfo };
  /** End a session and kill every process in it; returns when none is left. Scope: run. */
  "session.destroy": { params: SessionDestroyParams; result: SessionDestroyResult };
  /**
   * Receive the events of one session, or of all: created, state changes, destroyed with the
   * reason. Scope: read.
   */
  "session.watch": { params: SessionWatchParams; result: SessionWatchResult };
  /** Change the size of a session's terminal; its programs are notified. Scope: run. */
  "session.resize": { params: SessionResizeParams; result: SessionResizeResult };
  /**
   * Show the current screen of a session's terminal, as text, as styled runs, or as bytes that
   * restore it in another terminal. Scope: read.
   */
  "session.screen": { params: SessionScreenParams; result: SessionScreenResult };
  /**
   * Take the keyboard of a session, or renew the lease: other clients are refused, with the
   * holder's name, until it is released or expires. Scope: run.
   */
  "session.hold": { params: SessionHoldParams; result: SessionHoldResult };
  /** Release the keyboard of a session. Scope: run. */
  "session.release": { params: SessionReleaseParams; result: SessionReleaseResult };
  /**
   * Run a command in a session and return its exit code and output; with yield_ms, return early
   * while it keeps running. Scope: run.
   */
  "exec.run": { params: ExecRunParams; result: ExecResult };
  /**
   * Run a command and receive its output in chunks as it is written; the last chunk says how it
   * ended. Scope: run.
   */
  "exec.stream": { params: ExecStreamParams; result: ExecStreamResult };
  /**
   * Follow the output of a running or finished command from an offset: first the existing
   * output, then new output, then how it ended. Scope: read.
   */
  "exec.attach": { params: ExecAttachParams; result: ExecAttachResult };
  /**
   * Read the output of a running or finished command from an offset; with wait_ms, wait for
   * more. Scope: read.
   */
  "exec.output": { params: ExecOutputParams; result: ExecOutputResult };
  /** Write to the standard input of a running command, or close it. Scope: run. */
  "exec.input": { params: ExecInputParams; result: ExecInputResult };
  /** Send a signal to the processes of a running command. Scope: run. */
  "exec.signal": { params: ExecSignalParams; result: ExecSignalResult };
  /**
   * Stop a running command, named by its own id or its session's; returns when it is gone. The
   * session continues. Scope: run.
   */
  "exec.cancel": { params: ExecCancelParams; result: ExecCancelResult };
  /** Show whether a command still runs or how it ended, without its output. Scope: read. */
  "exec.info": { params: ExecParams; result: ExecResult };
  /** List a session's commands, oldest first, without output. Scope: read. */
  "exec.list": { params: SessionParams; result: ExecListResult };
  /**
   * List the places where sessions can run besides this machine, such as containers and SSH
   * hosts, and whether each can be used now. Scope: read.
   */
  "place.list": { params: NoParams; result: PlaceListResult };
  /** Add a place and connect to it; delivers TRL there if necessary. Scope: admin. */
  "place.add": { params: PlaceParams; result: Place };
  /**
   * Connect to a place now and describe it; a place that can't be reached is described with the
   * reason. Scope: admin.
   */
  "place.check": { params: PlaceParams; result: Place };
  /**
   * Remove a place and everything TRL put there; with force, end the sessions in it first.
   * Scope: admin.
   */
  "place.remove": { params: PlaceRemoveParams; result: PlaceRemoveResult };
  /**
   * Replace the TRL of a place with this daemon's version; the sessions in it continue. Scope:
   * admin.
   */
  "place.upgrade": { params: PlaceParams; result: Place };
  /**
   * Stop receiving a stream that was opened over this connection; the command or session it
   * follows continues. Scope: read.
   */
  "stream.close": { params: StreamCloseParams; result: StreamCloseResult };
}

/** Every notification, with its params. */
export interface Notifications {
  "exec.chunk": Chunk;
  "session.event": SessionEvent;
  "system.hello": Hello;
}
