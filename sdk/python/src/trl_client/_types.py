"""The types of the TRL contract, version 1.

Generated from the method table and the types of the daemon; do not edit. To regenerate it:

    go test ./internal/contract -run Fresh -update

Later versions may add members to results. Ignore members that are not listed
here.
"""

# ruff: noqa: E501

import os
from datetime import datetime, timezone
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union


class NoParams(TypedDict):
    """NoParams is the parameters of a method that takes none."""


class _PingResultRequired(TypedDict):
    #: of the daemon
    version: str
    #: 1
    protocol: int
    #: since the daemon started
    uptime_ms: int


class PingResult(_PingResultRequired, total=False):
    """PingResult is the answer to system.ping."""

    #: the account that owns the sessions you create. Absent: the daemon is older than owners
    caller: str


class _ProcessSupportRequired(TypedDict):
    #: `cgroup`, or `tags` where no cgroup v2 hierarchy is writable; `none` in a daemon without
    #: sessions of its own
    tracking: str
    #: true: orphans become children of the daemon, which reaps them
    subreaper: bool


class ProcessSupport(_ProcessSupportRequired, total=False):
    """ProcessSupport says how this daemon finds and kills processes."""

    #: directory of the session cgroups
    cgroup: str
    #: why there are no cgroups
    reason: str


class _AbilityRequired(TypedDict):
    #: what limits or isolations need
    name: str
    #: the daemon has tried it, and it works
    available: bool


class Ability(_AbilityRequired, total=False):
    """Ability is something that a daemon can do on its machine, or why it can't."""

    #: why it does not work
    reason: str
    #: what to do about it
    hint: str


PlaceState = Literal[
    "connected",  # it answers
    "idle",  # not connected; the next call connects
    "connecting",  # an attempt is under way
    "unreachable",  # the last attempt failed; `reason` says why
]
"""PlaceState says whether a place can be used now."""


class _PlaceRequired(TypedDict):
    #: part of the ids of its sessions and execs; drawn when it is added
    name: str
    #: what `session.create` takes
    runtime: str
    #: whether it can be used now
    state: PlaceState


class Place(_PlaceRequired, total=False):
    """Place is somewhere else that sessions can run: a TRL in a container, on another machine, or
    behind a command.
    """

    #: it is named in the configuration
    configured: bool
    #: as the place last said; absent: it was never connected
    os: str
    #: as Go names it: `amd64`, `arm64`
    arch: str
    #: whose processes run there
    user: str
    #: of the TRL there
    version: str
    #: SHA-256 of its program, in hex
    digest: str
    #: supported shells found there
    shells: List[str]
    #: limits that can be enforced there
    limits: List[str]
    #: isolations that can be enforced there
    isolation: List[str]
    #: when it got its state
    since: str
    #: for `unreachable`: why, in one word
    reason: str
    #: for `unreachable`: why, with the last words of the program that connects
    message: str
    #: for `unreachable`: what to do
    hint: str
    #: for `unreachable`: when the daemon tries again, if a call needs the place
    retry_after_ms: int


class _SystemInfoRequired(TypedDict):
    #: of the daemon
    version: str
    #: 1
    protocol: int
    #: as Go names it: `linux`
    os: str
    #: as Go names it: `amd64`, `arm64`
    arch: str
    #: of the daemon
    pid: int
    #: every setting in effect, by key, and `config_file` if one was read; no secrets
    config: Dict[str, Any]
    #: what `session.create` takes as `runtime` without adding a place: `host`, unless this daemon
    #: has no sessions of its own, and the runtimes of its places
    runtimes: List[str]
    #: which of sh, dash, ash, bash, zsh, mksh are on this host now and supported
    shells: List[str]
    #: how processes are found and killed here
    process: ProcessSupport
    #: members of limits that can be enforced here
    limits: List[str]
    #: members of isolation that can be enforced here
    isolation: List[str]


class SystemInfo(_SystemInfoRequired, total=False):
    """SystemInfo describes the daemon and what it can enforce on its machine."""

    #: what limits and isolations need, each tried once
    confinement: List[Ability]
    #: its name in ids: the setting `node`
    node: str
    #: whose daemon it is
    user: str
    #: SHA-256 of the program that it runs, in hex
    digest: str
    #: another value than before means that all earlier sessions are gone
    boot: str
    #: as `place.list` lists them; absent: none
    places: List[Place]


class SystemStats(TypedDict):
    """SystemStats counts what the daemon does and holds."""

    #: since the daemon started
    uptime_ms: int
    #: number of sessions by State
    sessions: Dict[str, int]
    #: created since the daemon started
    sessions_total: int
    #: running now
    execs_running: int
    #: begun or queued since the daemon started
    execs_total: int
    #: kept now, by their id
    execs_retained: int
    #: output captured since the daemon started
    bytes_captured: int
    #: output and index held in memory
    journal_memory_bytes: int
    #: output held in spill files
    journal_spilled_bytes: int
    #: resident set of the daemon
    memory_bytes: int
    #: open descriptors of the daemon
    fds: int
    #: of the daemon
    goroutines: int
    #: dead descendants of sessions that were reaped without being tracked
    orphans_reaped: int


class UpgradeResult(TypedDict):
    """UpgradeResult is the answer to system.upgrade: the daemon is about to be replaced."""

    #: of the binary that takes over
    version: str


class DelegateResult(TypedDict):
    """DelegateResult is the answer to system.delegate."""

    #: how many connections of callers the requests of this connection may name at once
    max_connections: int


class DisconnectParams(TypedDict):
    """DisconnectParams names the connection of a caller that has left."""

    #: the name, of at most 200 bytes
    connection: str


class DisconnectResult(TypedDict):
    """DisconnectResult is the answer to system.disconnect."""

    #: the name
    connection: str
    #: it was connected until now; false: no request has named it, or it has ended already
    disconnected: bool


class TTYSize(TypedDict):
    """TTYSize is the size of a terminal in characters."""

    #: height in characters
    rows: int
    #: width in characters
    cols: int


class Limits(TypedDict, total=False):
    """Limits bounds what all processes of a session may use together, and how long the session may
    live. A limit that is left out does not exist.
    """

    #: memory of the session, without swap; at least 1 MiB. The kernel kills a process of the
    #: session that needs more
    memory_bytes: int
    #: processor time, in cores: `0.5` is half of one; at least 0.01
    cpu: float
    #: processes and threads that commands may have at once; further ones are not started
    pids: int
    #: descriptors of each process; at least 32
    open_files: int
    #: size up to which each process can write a file
    file_size_bytes: int
    #: the session ends so long after it was created
    wall_ms: int
    #: what the session can store in its private directories
    disk_bytes: int


Profile = Literal[
    "workspace",  # write in the working directory, read the rest, reach the package registries
    "readonly",  # write nothing
    "offline",  # `workspace` without network
]
"""Profile is a named isolation."""


class Addition(TypedDict, total=False):
    """Addition is what a session may do besides what its profile lets it do."""

    #: paths that it can write, too
    write: List[str]
    #: `host:port` or `*.host:port` that it can reach, too
    allow: List[str]


class Filesystem(TypedDict, total=False):
    """Filesystem says which paths a session can read and write."""

    #: paths that it can read; default: all but those in `deny`
    read: List[str]
    #: paths that it can write, and read
    write: List[str]
    #: paths that it can't see
    deny: List[str]
    #: `/tmp` and `/var/tmp` are its own, and gone when it ends
    private_tmp: bool


class NetworkObject(TypedDict):
    """Network says what a session can connect to: a word, or an object with a list of what is
    allowed.
    """

    #: `host:port` or `*.host:port`, which it reaches over a proxy; nothing else
    allow: List[str]


Network = Union[Literal["none", "loopback"], NetworkObject]
"""Network says what a session can connect to: a word, or an object with a list of what is
allowed.
"""


class IsolationObject(TypedDict, total=False):
    """Isolation is what a session is kept from. A string is short for an object that has only this
    profile. An object with a profile narrows it by its other members, after Add has widened it.
    """

    #: where to start from; default: nothing is isolated
    profile: Profile
    #: what it may do besides what the profile lets it do
    add: Addition
    #: which paths it can read and write
    filesystem: Filesystem
    #: what it can connect to
    network: Network
    #: `own`: it sees and reaches no processes but its own
    processes: Literal["own"]
    #: the name or the uid of the user that it runs as
    user: str
    #: no program in it gains privileges: setuid bits have no effect
    no_new_privs: bool
    #: `default`: system calls that ordinary programs do not need are refused
    seccomp: Literal["default"]


Isolation = Union[Profile, IsolationObject]
"""Isolation is what a session is kept from. A string is short for an object that has only this
profile. An object with a profile narrows it by its other members, after Add has widened it.
"""


class SessionCreateParams(TypedDict, total=False):
    """SessionCreateParams starts a session."""

    #: a name on the daemon's PATH or a path; default `/bin/sh`. Supported: dash, busybox ash,
    #: bash, zsh and mksh
    shell: str
    #: instead of `shell`: one direct command. `argv[0]` is a name on the session's PATH or a path
    argv: List[str]
    #: where it starts; default the directory of the daemon that runs it. In a place it is a
    #: directory of the place
    cwd: str
    #: added to the inherited variables; `null` removes a variable
    env: Dict[str, Optional[str]]
    #: `base` (default): PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, TERM, TZ, TMPDIR and
    #: `LC_*`; `all`; or `none`. The daemon's own `TRL_*` are never passed on
    inherit_env: Literal["base", "all", "none"]
    #: read the shell's login startup files before the session is idle; their output is discarded
    login: bool
    #: for people; need not be unique. One line
    name: str
    #: for `session.list`. One line each
    tags: List[str]
    #: the name of the program that creates the session, such as `claude-code`: at most 64 ASCII
    #: letters, digits and `.` `_` `+` `@` `-`. It follows the account in `owner`
    client: str
    #: give the session a terminal of this size
    tty: TTYSize
    #: default of every exec in it; 0 or left out: the daemon's `default_timeout_ms`, which is none
    #: unless set
    timeout_ms: int
    #: destroy it after it was idle for this long; 0 is never. Default: the daemon's `idle_ttl_ms`
    idle_ttl_ms: int
    #: what it may use, enforced exactly or `LIMITS_UNAVAILABLE`
    limits: Limits
    #: what it is kept from, enforced exactly or `LIMITS_UNAVAILABLE`
    isolation: Isolation
    #: where it runs; left out: where its `parent` runs; without one, the setting
    #: `default_runtime`, which is `host` unless set
    runtime: str
    #: makes a repeat safe: the first session is returned
    key: str
    #: how long the shell may take to start, and then its login files; 0 or left out: 10 s
    create_timeout_ms: int
    #: the id of a session that this one ends with
    parent: str
    #: end it with the connections that use it
    while_connected: bool
    #: for `while_connected`: how long it outlives the last connection; 0 or left out: 15 s. At
    #: most a day
    reconnect_ms: int


State = Literal[
    "creating",  # the shell is starting
    "idle",  # ready for a command
    "running",  # a command runs, or the session is `unreadable`
    "terminated",  # ended; no process is left
]
"""State is the lifecycle state of a session. It changes only through the transition table of
the session package.
"""


class LimitsInForce(Limits, total=False):
    """LimitsInForce is the limits that hold in a session, with the values that the kernel
    enforces.
    """

    #: processes that the kernel allows on top of `pids`, for the session's shell and its copies
    pids_reserved: int


class IsolationInForce(IsolationObject, total=False):
    """IsolationInForce is the isolation that holds in a session, and what enforces it."""

    #: version of Landlock that is enforced
    landlock_abi: int
    #: what enforces it: `mount`, `landlock`, `seccomp` and others
    mechanisms: List[str]


Outcome = Literal[
    "running",  # not over yet, or not begun
    "exited",  # it ended and its shell continued
    "signaled",  # the same, with an exit code of 128 plus a signal's number, by which shells report a child that a signal ended
    "timed_out",  # stopped by a timeout
    "cancelled",  # stopped by `exec.cancel`, by the end of its session, or in the queue
    "shell_exited",  # the command ended its shell (`exit`, `exec`, `set -e`); the session continues
    "shell_died",  # the shell was killed, crashed, or became unusable; the session continues
    "oom_killed",  # the kernel killed it with SIGKILL for lack of memory; only in a session with the limit `memory_bytes`
]
"""Outcome says how an exec ended, in one word."""


class Login(TypedDict):
    """Login says how the login files of a session ended, in the terms of a command."""

    #: as for a command: `exited`, `timed_out`, or that they ended their shell
    outcome: Outcome
    #: of the last of them; many end with 1 without a real failure
    exit_code: Optional[int]
    #: they took longer than `create_timeout_ms`, and were stopped
    timed_out: bool


class Hold(TypedDict):
    """Hold says who holds the keyboard of a session."""

    #: who has it
    holder: str
    #: when the lease began
    since: str
    #: when it ends, unless it is renewed or used
    until: str


class _TerminatedRequired(TypedDict):
    #: when its tree was verified empty
    at: str
    #: `destroyed`; `idle` (its TTL); `parent` (the session that it belonged to has ended);
    #: `disconnected` (no connection that used it is left); `wall` (its limit `wall_ms`);
    #: `shutdown` (of the daemon); `exited` (a direct command ended); `lost` (the holder was
    #: killed, or a restarted daemon could not take over this session: its processes were killed);
    #: `shell_lost` (the shell died and no copy of it could take over)
    reason: str


class Terminated(_TerminatedRequired, total=False):
    """Terminated says when and why a session ended."""

    #: for a direct command that ended by itself
    exit_code: int
    #: the signal that ended it
    signal: str


class _SessionRequired(TypedDict):
    #: its id: `s-` and ten letters and digits; with the setting `node`, `s-NODE-` and the ten
    session_id: str
    #: where it runs: `host`, or the runtime of its place
    runtime: str
    #: where it is in its lifecycle
    state: State
    #: when its creation was requested
    created_at: str
    #: when an exec last began or ended
    last_activity_at: str
    #: execs begun or queued in it
    exec_count: int
    #: default of its execs; 0 is none
    timeout_ms: int
    #: 0 is never
    idle_ttl_ms: int


class Session(_SessionRequired, total=False):
    """Session describes a session; every method returns it in this form. Values of environment
    variables are never returned, only their names.
    """

    #: as given
    name: str
    #: as given
    tags: List[str]
    #: who created it: an account, or an account and a client, such as `alice/claude-code`. Absent:
    #: a daemon older than owners created it
    owner: str
    #: path of the shell
    shell: str
    #: for a direct session
    argv: List[str]
    #: the process that is the shell (or the direct command) now. It changes when a copy takes
    #: over; see the shell driver
    pid: int
    #: its directory now
    cwd: str
    #: the size of its terminal; absent: it has none
    tty: TTYSize
    #: names of the variables given at its creation; values are never returned
    env_keys: List[str]
    #: the session that it ends with
    parent: str
    #: it ends with the connections that use it
    while_connected: bool
    #: the limits that hold in it; absent: none
    limits: LimitsInForce
    #: the isolation that holds in it; absent: none
    isolation: IsolationInForce
    #: the running exec; for a direct session its only one, also after it has ended
    exec_id: str
    #: the label of that exec
    exec_label: str
    #: how its login files ended, if `login` was set
    login: Login
    #: it is being ended, and takes no more commands
    ending: bool
    #: who has its keyboard; absent: no one, so all may type
    held: Hold
    #: why the daemon can't read the state that an earlier daemon left of it. Its processes live,
    #: and it takes no command: `SESSION_UNREADABLE`
    unreadable: str
    #: when and why it ended
    terminated: Terminated


class SessionListParams(TypedDict, total=False):
    """SessionListParams selects sessions; every field that is set must match."""

    #: only sessions in this state
    state: State
    #: only sessions that have not ended
    alive: bool
    #: only sessions with this tag
    tag: str
    #: only sessions of this runtime
    runtime: str


class _UnreachableRequired(TypedDict):
    #: of the place
    name: str
    #: of the place
    runtime: str
    #: why, in one word
    reason: str


class Unreachable(_UnreachableRequired, total=False):
    """Unreachable is a place that did not answer: its sessions may still run there."""

    #: why, for people
    message: str
    #: since when
    since: str


class _SessionListResultRequired(TypedDict):
    #: the matching sessions
    sessions: List[Session]


class SessionListResult(_SessionListResultRequired, total=False):
    """SessionListResult is the answer to session.list, oldest session first."""

    #: the places whose sessions are missing from the list, because they did not answer; absent:
    #: none is missing
    unreachable: List[Unreachable]


class SessionParams(TypedDict):
    """SessionParams names one session."""

    #: the session
    session_id: str


ExecState = Literal[
    "queued",  # it waits for its session
    "running",  # it runs
    "exited",  # it is over; its background processes may still write to its journal
]
"""ExecState says whether an exec waits, runs or has ended."""


class _ProcessRequired(TypedDict):
    #: its id
    pid: int
    #: its parent
    ppid: int
    #: since it was started
    age_ms: int
    #: resident set
    rss_bytes: int
    #: its arguments in one line of at most 512 bytes, or its name in brackets
    command: str


class Process(_ProcessRequired, total=False):
    """Process is one live process of a session. ExecID names the command that started it, if
    known.
    """

    #: the exec that started it, where that is still known
    exec_id: str
    #: `shell` for the session's shell, `standby` for a sleeping copy of it, `leader` for the
    #: helper that holds its terminal; absent for what commands started
    role: str


class _UsageRequired(TypedDict):
    #: processor time: of a direct command; or, in a shell session with limits, of the whole
    #: session while the command ran
    cpu_ms: int


class Usage(_UsageRequired, total=False):
    """Usage is the resources that processes consumed."""

    #: largest resident set, where it is known: nowhere yet
    max_rss_bytes: int
    #: the most memory that the whole session had at once, if it has the limit: while the command
    #: ran, or since the session began where the kernel can't tell (before Linux 6.12)
    memory_peak_bytes: int
    #: the most processes and threads of the session at once, in the same way; since the session
    #: began
    pids_peak: int


Limit = Literal[
    "memory",  # the kernel killed a process, because the session had all of its `memory_bytes`
    "cpu",  # the kernel made the session wait for processor time
    "pids",  # a process or a thread was not started
    "open_files",  # reserved: the kernel does not count it
    "file_size",  # a process was killed by SIGXFSZ
    "wall",  # the session was ended
    "disk",  # reserved
]
"""Limit names a limit that a command has reached."""


class _NetworkDenialRequired(TypedDict):
    #: why, for people
    message: str


class NetworkDenial(_NetworkDenialRequired, total=False):
    """NetworkDenial is a connection that the network of a session refused."""

    #: as it was asked for, in printable ASCII
    host: str
    #: as it was asked for
    port: int
    #: how many denials before this one are not told, because there were too many
    suppressed: int


class _ExecResultRequired(TypedDict):
    #: its id: `e-` and ten letters and digits; with the setting `node`, `e-NODE-` and the ten
    exec_id: str
    #: its session
    session_id: str
    #: whether it is still in progress
    state: ExecState
    #: how it ended, in one word
    outcome: Outcome
    #: of the command; 128 plus the number of the signal if one ended it, or was needed to stop it:
    #: a command that handles SIGTERM and then ends by itself has its own code (not in zsh). null
    #: while it runs or waits, if it never ran, and if its session was killed while it ran
    exit_code: Optional[int]
    #: when it began; while it waits, when it was queued
    started_at: str
    #: so far, or in total
    duration_ms: int
    #: stopped by `timeout_ms` or `idle_timeout_ms`
    timed_out: bool
    #: stopped by `exec.cancel`, or with its session
    cancelled: bool
    #: complete, or head and tail with a line between them that says how many bytes are left out;
    #: in base64 there is no such line
    stdout: str
    #: complete, or cut as `stdout` is
    stderr: str
    #: captured so far, however much the result has
    stdout_bytes: int
    #: captured so far, however much the result has
    stderr_bytes: int
    #: `stdout` or `stderr` above is not complete; `exec.output` has the rest, except for
    #: `dropped_bytes`
    truncated: bool


class ExecResult(_ExecResultRequired, total=False):
    """ExecResult describes an exec: the answer to exec.run and, without output, to exec.info and
    exec.list.
    """

    #: the name that its caller gave it, or that the daemon made
    label: str
    #: the signal that ended it, or that was needed to stop it: `SIGTERM`, `SIGKILL`
    signal: str
    #: how long it was queued; absent: it was not
    queued_ms: int
    #: `"base64"` when needed
    stdout_encoding: str
    #: `"base64"` when needed
    stderr_encoding: str
    #: `stdout` contains both streams, as `merge` requested
    merged: bool
    #: how many captured bytes the quota has dropped: they can't be read any more
    dropped_bytes: int
    #: the session's directory after the command
    cwd: str
    #: for a command on a terminal: the size when it began
    tty: TTYSize
    #: the processes that the command left running
    survivors: List[Process]
    #: the state of the shell was lost: it is now as it was after `rolled_back_to`
    rolled_back: bool
    #: an exec id; absent with `rolled_back`: as at the session's start
    rolled_back_to: str
    #: only for the command of a direct session
    usage: Usage
    #: bytes of `exec.input` that the command did not read, on a terminal after its line editing;
    #: absent: none, or the session is direct
    input_unread: int
    #: limits of the session that were provably reached while it ran
    limit_hit: List[Limit]
    #: what the allow-list of the session refused while it ran; at most 8: `suppressed` counts
    #: those that are left out before one, and the last is always there
    network_denied: List[NetworkDenial]


WaitingFor = Literal[
    "input",  # text that is visible as it is typed, or a key
    "password",  # a line that the terminal does not show
]
"""WaitingFor says which kind of input a command waits for."""


_WaitingKeywords = TypedDict("_WaitingKeywords", {"for": WaitingFor})


class Waiting(_WaitingKeywords):
    """Waiting says that the command on a terminal waits for input."""

    #: when output was last written to the terminal or input typed
    since: str
    #: the process that waits
    pid: int
    #: its arguments in one line
    process: str


class _SessionInfoRequired(Session):
    #: every live process in its tree; zombies are not listed
    processes: List[Process]


class SessionInfo(_SessionInfoRequired, total=False):
    """SessionInfo is a session together with its execs and processes."""

    #: the running one, without output
    exec: ExecResult
    #: the last finished one, without output
    last_exec: ExecResult
    #: only where cgroups count it: `cpu_ms` of the whole session
    usage: Usage
    #: on a terminal, what the running command waits for; absent: it does not wait for input
    waiting: Waiting
    #: when `exec.input` was last used without a lease: a client types that does not hold the
    #: keyboard lease
    typed_at: str


class _SessionDestroyParamsRequired(TypedDict):
    #: the session
    session_id: str


class SessionDestroyParams(_SessionDestroyParamsRequired, total=False):
    """SessionDestroyParams ends a session. Force skips the grace period."""

    #: no grace: SIGKILL at once
    force: bool


class SessionDestroyResult(TypedDict):
    """SessionDestroyResult is sent once the session's process tree is verified empty. Survivors is
    then an empty list. It names processes that could not be killed, if there are any (a process
    in uninterruptible sleep).
    """

    #: the session
    session_id: str
    #: `terminated`
    state: State
    #: normally empty; lists what could not be killed within 10 s because the kernel itself blocks
    #: a process
    survivors: List[Process]


class SessionWatchParams(TypedDict, total=False):
    """SessionWatchParams requests the events of one session, or of all."""

    #: only this session; default all
    session_id: str
    #: begin with the sessions that there are
    snapshot: bool
    #: report commands too, and whether they wait for input
    execs: bool


class SessionWatchResult(TypedDict):
    """SessionWatchResult names the stream of events that follows."""

    #: the stream of the events that follow
    stream_id: str


class _SessionResizeParamsRequired(TypedDict):
    #: the session
    session_id: str
    #: 1 to 1000
    rows: int
    #: 1 to 1000
    cols: int


class SessionResizeParams(_SessionResizeParamsRequired, total=False):
    """SessionResizeParams changes the size of a session's terminal."""

    #: the keyboard lease, if a client holds one
    lease: str


class SessionResizeResult(TypedDict):
    """SessionResizeResult is the new size of the terminal."""

    #: the session
    session_id: str
    #: the new size
    tty: TTYSize


ScreenFormat = Literal[
    "text",  # what a person reads: a line for each row, without trailing blanks
    "ansi",  # bytes that make another terminal of the same size look the same
    "json",  # rows of runs of one style, with colors and links
]
"""ScreenFormat is the format in which a screen is returned."""


class _SessionScreenParamsRequired(TypedDict):
    #: the session
    session_id: str


class SessionScreenParams(_SessionScreenParamsRequired, total=False):
    """SessionScreenParams requests the contents of a session's terminal."""

    #: default `text`
    format: ScreenFormat
    #: for `text` and `ansi`: first up to this many lines that have scrolled away; 1000 are kept
    scrollback: int


class _ScreenCursorRequired(TypedDict):
    #: from 0 on
    row: int
    #: from 0 on
    column: int


class ScreenCursor(_ScreenCursorRequired, total=False):
    """ScreenCursor is the position of the cursor, counted from 0."""

    #: the program hides it
    hidden: bool


class ScreenStyle(TypedDict, total=False):
    """ScreenStyle describes how text looks. A color is "" for the default, the number of a palette
    color, or #rrggbb.
    """

    #: color of the text
    fg: str
    #: color behind it
    bg: str
    #: thick letters
    bold: bool
    #: faint letters
    dim: bool
    #: slanted letters
    italic: bool
    #: `single`, `double`, `curly`, `dotted` or `dashed`
    underline: str
    #: where it differs from that of the text
    underline_color: str
    #: it should blink
    blink: bool
    #: text and background colors are swapped
    inverse: bool
    #: it should not be shown
    invisible: bool
    #: a line through it
    strike: bool
    #: a line above it
    overline: bool
    #: its target: a link of `http`, `https`, `file` or `mailto`. Other links are dropped, in every
    #: format
    link: str


class _ScreenRunRequired(TypedDict):
    #: characters of one style
    text: str
    #: in columns: some characters take two
    width: int


class ScreenRun(_ScreenRunRequired, total=False):
    """ScreenRun is a run of text in one style."""

    #: absent: the default
    style: ScreenStyle


class ScreenLine(TypedDict, total=False):
    """ScreenLine is one row. Everything after its last run is blank."""

    #: from left to right; the rest of the line is blank
    runs: List[ScreenRun]
    #: it continues the row above
    wrapped: bool


class _SessionScreenResultRequired(TypedDict):
    #: the session
    session_id: str
    #: the screen shows the state after this byte of that command's journal
    offset: int
    #: of the terminal
    rows: int
    #: of the terminal
    cols: int
    #: where the next character goes
    cursor: ScreenCursor


class SessionScreenResult(_SessionScreenResultRequired, total=False):
    """SessionScreenResult is the contents of a terminal. ExecID and Offset name the journal and
    the byte after which the screen looked like this.
    """

    #: the command whose output came last; absent before the first
    exec_id: str
    #: a program uses the whole screen, as editors and pagers do
    alternate: bool
    #: the window title that programs set
    title: str
    #: for the formats `text` and `ansi`
    text: str
    #: for the format `json`, one for each row
    lines: List[ScreenLine]
    #: what the running command waits for; absent: it does not wait for input
    waiting: Waiting


class _SessionHoldParamsRequired(TypedDict):
    #: the session
    session_id: str
    #: who you are, such as `alice@laptop`, in 1 to 100 bytes: clients that are refused see it
    holder: str


class SessionHoldParams(_SessionHoldParamsRequired, total=False):
    """SessionHoldParams takes the keyboard lease of a session. While the lease is held, only its
    holder can start commands in the session, type, and resize its terminal. Reading and
    stopping stay open to everyone.
    """

    #: renews this lease instead of taking a new one
    lease: str
    #: take it from the current lease holder
    force: bool
    #: the lease ends this long after it was last renewed or used; 1000 to 600000, default 15000
    ttl_ms: int
    #: the lease holder's own terminal answers the queries of programs (its size, its colors), so
    #: the daemon does not
    answers: bool


class SessionHoldResult(TypedDict):
    """SessionHoldResult describes a keyboard lease and carries the token that proves it."""

    #: the session
    session_id: str
    #: proves the lease in later calls
    lease: str
    #: who has it, and until when
    hold: Hold


class SessionReleaseParams(TypedDict):
    """SessionReleaseParams releases the keyboard of a session."""

    #: the session
    session_id: str
    #: the lease to end
    lease: str


class SessionReleaseResult(TypedDict):
    """SessionReleaseResult names the session whose keyboard is free now."""

    #: the session
    session_id: str


class _ExecRunParamsRequired(TypedDict):
    #: the session
    session_id: str
    #: text for the session's shell; may be empty and may have many lines
    command: str


class ExecRunParams(_ExecRunParamsRequired, total=False):
    """ExecRunParams runs one command in a session."""

    #: default the session's; 0 is none
    timeout_ms: int
    #: stop it when it wrote nothing for this long; 0 is never
    idle_timeout_ms: int
    #: only for this command; names are names of shell variables; `null` unsets one
    env: Dict[str, Optional[str]]
    #: only for this command; relative to the session's directory
    cwd: str
    #: what it reads; default: end of input at once
    stdin: str
    #: `"base64"` when `stdin` is not text
    stdin_encoding: Literal["base64"]
    #: keep stdin open after `stdin`, for `exec.input`
    stdin_open: bool
    #: write stderr to the same pipe as stdout: one stream, in true order
    merge: bool
    #: queue instead of `SESSION_BUSY`
    wait: bool
    #: makes a repeat safe
    key: str
    #: a name for results and lists, at most 200 bytes; default: the daemon makes one
    label: str
    #: the keyboard lease, if a client holds one
    lease: str
    #: answer after this long, even if the command still runs; 0 is never
    yield_ms: int
    #: on a terminal: also answer, with `state` `running`, when the command waits for input
    yield_on_input: bool
    #: how much of each stream the result has; default the daemon's `max_output_bytes` (128 KiB),
    #: at most 4 MiB; 0 is none
    max_output_bytes: int


class _ExecStreamParamsRequired(TypedDict):
    #: the session
    session_id: str
    #: text for the session's shell; may be empty and may have many lines
    command: str


class ExecStreamParams(_ExecStreamParamsRequired, total=False):
    """ExecStreamParams runs one command as ExecRunParams does. Its output follows the answer as
    chunks, so there are no parameters for yielding or truncation.
    """

    #: default the session's; 0 is none
    timeout_ms: int
    #: stop it when it wrote nothing for this long; 0 is never
    idle_timeout_ms: int
    #: only for this command; names are names of shell variables; `null` unsets one
    env: Dict[str, Optional[str]]
    #: only for this command; relative to the session's directory
    cwd: str
    #: what it reads; default: end of input at once
    stdin: str
    #: `"base64"` when `stdin` is not text
    stdin_encoding: Literal["base64"]
    #: keep stdin open after `stdin`, for `exec.input`
    stdin_open: bool
    #: write stderr to the same pipe as stdout: one stream, in true order
    merge: bool
    #: queue instead of `SESSION_BUSY`
    wait: bool
    #: makes a repeat safe: it follows the first exec, from offset 0 on
    key: str
    #: a name for results and lists, at most 200 bytes; default: the daemon makes one
    label: str
    #: the keyboard lease, if a client holds one
    lease: str


class ExecStreamResult(TypedDict):
    """ExecStreamResult is sent when the command has been accepted."""

    #: the exec
    exec_id: str
    #: the stream of the chunks that follow
    stream_id: str


class _ExecAttachParamsRequired(TypedDict):
    #: the exec
    exec_id: str


_ExecAttachParamsKeywords = TypedDict("_ExecAttachParamsKeywords", {"from": int}, total=False)


class ExecAttachParams(_ExecAttachParamsRequired, _ExecAttachParamsKeywords, total=False):
    """ExecAttachParams requests an exec's output as chunks, starting at an offset."""


_ExecAttachResultKeywords = TypedDict("_ExecAttachResultKeywords", {"from": int})


class ExecAttachResult(_ExecAttachResultKeywords):
    """ExecAttachResult says at which offset the chunks that follow start."""

    #: the stream of the chunks that follow
    stream_id: str
    #: state of the exec at the moment of the answer
    state: ExecState


ChunkType = Literal[
    "stdout",  # bytes of stdout
    "stderr",  # bytes of stderr
    "tty",  # bytes of a terminal, which has one stream
    "gap",  # bytes that were not kept, because of a quota or a full disk
    "resize",  # the terminal has another size from here on; only with `times`
    "exit",  # the exec is over; the last of a stream, and only there
    "error",  # instead of the exit: the place of the exec has forgotten it, `error` says why
]
"""ChunkType says which stream a chunk belongs to, or what else it reports."""


class _ExecOutputParamsRequired(TypedDict):
    #: the exec
    exec_id: str


_ExecOutputParamsKeywords = TypedDict("_ExecOutputParamsKeywords", {"from": int}, total=False)


class ExecOutputParams(_ExecOutputParamsRequired, _ExecOutputParamsKeywords, total=False):
    """ExecOutputParams reads an exec's journal by polling."""

    #: at most this many bytes of the journal; default 256 KiB
    max_bytes: int
    #: long poll: wait this long for a byte past `from`, or the end of the exec
    wait_ms: int
    #: `stdout` or `stderr`; default both
    stream: ChunkType
    #: `raw` (default), or `text`: escape sequences stripped, lines that carriage returns or
    #: backspaces rewrote in their last form
    view: Literal["raw", "text"]
    #: say when output arrived: `chunks` are cut where time passed, and have `at_ms`. Not with
    #: `view: "text"`
    times: bool


ErrorCode = Literal[
    "PARSE_ERROR",  # the line is not JSON
    "INVALID_REQUEST",  # not a JSON-RPC 2.0 request, a batch, a line that is too long, an `actor` that is invalid or not expected (`data.field`); also `exec.cancel` of an idle session
    "METHOD_NOT_FOUND",  # there is no such method (`data.method`)
    "INVALID_PARAMS",  # a field is unknown, missing or invalid (`data.field`)
    "INTERNAL",  # a failure of the daemon itself; the call may have had effects
    "MAX_SESSIONS_REACHED",  # the pool is full (`data.max_sessions`)
    "SHELL_NOT_FOUND",  # no such shell or program, or not a supported shell (`data.shell`); nothing was created
    "CWD_NOT_FOUND",  # the directory does not exist or can't be entered (`data.cwd`); nothing was created or run
    "SHELL_CRASHED",  # the shell died while starting, or did not answer and was killed (`data.exit_code`, `data.signal`, `data.stderr`); nothing is left behind
    "SESSION_NOT_FOUND",  # it never existed, or is past its retention
    "EXEC_NOT_FOUND",  # it never existed, or is past its retention
    "SESSION_BUSY",  # the session runs another command (`data.exec_id`) and the call did not set `wait`; always for a direct session, and while a session is being created (without `data.exec_id`)
    "SESSION_TERMINATED",  # the session has ended (`data.reason`), or is ending
    "OUTPUT_GONE",  # the output of this exec is no longer kept at all (`data.first_offset`); a part that quota dropped is a `gap` chunk instead
    "UNAUTHORIZED",  # on the socket: the peer's user may not use this daemon; the connection is closed after it. Over HTTP: the token is missing, unknown or expired. Over a connection that acts for others: the request has no actor
    "FORBIDDEN",  # the caller's scope is smaller than the method's (`data.scope`, the one it needs), or its token is bound to a tag (`data.tag`) and `session.create` requested a session without it, or a method that is about the whole daemon was called; or the setting `allowed_runtimes` excludes the runtime (`data.runtime`); or an actor's scope exceeds its connection's
    "RUNTIME_NOT_FOUND",  # there is no such runtime (`data.runtime`): its kind is unknown, or its name is not in the configuration
    "RUNTIME_UNAVAILABLE",  # a place is out of reach (`data.runtime`, `data.reason`, `data.sent`, `data.since`, `data.retry_after_ms`). Over HTTP also: too many requests with this token (`data.retry_after_ms`). The command line uses it when it finds no daemon
    "LIMITS_UNAVAILABLE",  # `limits` or `isolation` was requested, which this daemon can't enforce exactly. Nothing was started. `limits` and `isolation` name the members, `missing` what the machine lacks, and `reasons` why
    "SHUTTING_DOWN",  # the daemon is ending its sessions: no new session, no new command. It still accepts connections until the sessions have ended, and clients may read
    "SESSION_HELD",  # another client has the session's keyboard (`data.holder`, `data.since`), or the given `lease` has ended
    "SESSION_UNREADABLE",  # the daemon can't read the state that an earlier daemon left of the session; `session.info` lists its processes, `session.destroy` kills them. It has its own name because the session is neither busy nor ended
    "INPUT_FULL",  # `exec.input` with `whole` got more than `input_buffer_bytes` (`data.bytes`, `data.input_buffer_bytes`); nothing was written
]
"""ErrorCode is the stable name of an error. Clients switch on it; the JSON-RPC number sent
with it is for JSON-RPC libraries.
"""


class _ErrorDataRequired(TypedDict):
    #: The stable name: switch on this.
    code: ErrorCode


class ErrorData(_ErrorDataRequired, total=False):
    """The data of an error besides its message; each detail has its own name."""

    #: A sentence for a model: the next call to make.
    hint: str


class ErrorObject(TypedDict):
    """The JSON-RPC error object."""

    #: The JSON-RPC number.
    code: int
    message: str
    data: ErrorData


class _ChunkRequired(TypedDict):
    #: its stream, or a gap, or the end
    type: ChunkType
    #: of its first byte in the journal
    offset: int
    #: the offset after the chunk, from which to resume
    next: int


class Chunk(_ChunkRequired, total=False):
    """Chunk is a piece of a journal. Offset is the journal offset of its first byte. A gap chunk
    stands for Bytes bytes that the quota dropped. A chunk of a stream names the stream and its
    exec; a chunk of exec.output does not. When times are requested, AtMS is the time at which
    its first byte was captured.
    """

    #: the stream it is sent in; absent in `exec.output`
    stream_id: str
    #: its exec; absent in `exec.output`
    exec_id: str
    #: absent in a gap and in an exit
    data: str
    #: `"base64"` when needed
    encoding: str
    #: for a gap: how many bytes were not kept
    bytes: int
    #: with `times`, not for a gap: when the first byte was captured, in milliseconds after the
    #: command began
    at_ms: int
    #: for a resize: the size from here on
    tty: TTYSize
    #: for an exit: how the exec ended, without output
    result: ExecResult
    #: for an error: why the stream ends
    error: ErrorObject


class ExecOutputResult(TypedDict):
    """ExecOutputResult carries chunks up to the offset Next, where the next call continues. Closed
    is true when nothing can follow Next: the exec has ended and no process holds its output
    open.
    """

    #: the exec
    exec_id: str
    #: in the order of their offsets; may be empty
    chunks: List[Chunk]
    #: the offset from which the next call continues
    next: int
    #: of the exec
    state: ExecState
    #: nothing can come after `next`: the exec has ended and no process has its output open
    closed: bool


class _ExecInputParamsRequired(TypedDict):
    #: the exec
    exec_id: str


class ExecInputParams(_ExecInputParamsRequired, total=False):
    """ExecInputParams writes to a command's standard input."""

    #: what to write
    data: str
    #: `"base64"` when `data` is not text
    encoding: Literal["base64"]
    #: close stdin after `data`
    eof: bool
    #: on a terminal: typed after `data`, by name: `enter`, `tab`, `escape`, `backspace`, `up`,
    #: `down`, `left`, `right`, `home`, `end`, `pageup`, `pagedown`, `insert`, `delete`, `f1` to
    #: `f20`, a character, and these after `ctrl-`, `alt-` or `shift-`. The names of tmux are
    #: accepted too: `C-c`, `M-x`, `BSpace`, `BTab`, `DC`, `IC`, `NPage`, `PPage`
    keys: List[str]
    #: on a terminal: `data` is pasted, as bracketed paste if the program asked for it
    paste: bool
    #: the keyboard lease, if a client holds one
    lease: str
    #: makes a repeat safe: it is written once
    key: str
    #: offset of the first byte of `data` in all input of the exec, `stdin` included: bytes that
    #: are already there are not written again; an offset after the end is `INVALID_PARAMS`
    #: (`data.next`). Not on a terminal
    at: int
    #: all of `data` or nothing; answered when it is kept. Not on a terminal
    whole: bool


class _ExecInputResultRequired(TypedDict):
    #: the exec
    exec_id: str
    #: how many bytes the command has
    bytes: int


class ExecInputResult(_ExecInputResultRequired, total=False):
    """ExecInputResult says how many bytes were accepted for the command."""

    #: offset after the last of them: `at` of the next input. Not on a terminal
    next: int
    #: `unknown`: the daemon died while it typed this on a terminal, and a repeat with its `key`
    #: typed nothing
    written: str


class ExecSignalParams(TypedDict):
    """ExecSignalParams signals the processes of a running command."""

    #: the exec
    exec_id: str
    #: a name (`TERM`, `SIGTERM`, in any case) or a number, as a string (`"9"`)
    signal: str


class ExecSignalResult(TypedDict):
    """ExecSignalResult says how many processes were signalled."""

    #: the exec
    exec_id: str
    #: how many were signalled
    processes: int


class ExecCancelParams(TypedDict, total=False):
    """ExecCancelParams names the command to cancel, by its own id or by its session's."""

    #: cancel what runs in this session
    session_id: str
    #: cancel this exec
    exec_id: str


class ExecCancelResult(TypedDict):
    """ExecCancelResult is sent once the command is gone."""

    #: the exec
    exec_id: str
    #: it was cancelled, by this call or an earlier one
    cancelled: bool


class ExecParams(TypedDict):
    """ExecParams names one exec."""

    #: the exec
    exec_id: str


class ExecListResult(TypedDict):
    """ExecListResult lists a session's execs, oldest first, without output."""

    #: without output
    execs: List[ExecResult]


class PlaceListResult(TypedDict):
    """PlaceListResult is the answer to place.list, in the order of the runtimes."""

    #: all of them
    places: List[Place]


class PlaceParams(TypedDict):
    """PlaceParams names a place by its runtime or its name."""

    #: a runtime, or the name of a place
    runtime: str


class _PlaceRemoveParamsRequired(TypedDict):
    #: a runtime, or the name of a place
    runtime: str


class PlaceRemoveParams(_PlaceRemoveParamsRequired, total=False):
    """PlaceRemoveParams removes a place. A place with live sessions is removed only with Force,
    which ends them. With Forget nothing is done there: for a place that is gone for good.
    """

    #: end its sessions first
    force: bool
    #: do nothing there: for a place that is gone for good
    forget: bool


class PlaceRemoveResult(TypedDict):
    """PlaceRemoveResult says what was removed."""

    #: the name it had
    name: str
    #: its runtime
    runtime: str


class StreamCloseParams(TypedDict):
    """StreamCloseParams names a stream that was opened over the same connection."""

    #: the stream
    stream_id: str


class StreamCloseResult(TypedDict):
    """StreamCloseResult is sent when no more notifications of the stream will follow. Closed is
    false if the stream had already ended or never existed.
    """

    #: the stream
    stream_id: str
    #: it was open until now; false: it had ended already, or this connection has no such stream
    closed: bool


SessionEventType = Literal[
    "created",  # it can be used: it is `idle`, or `running` if it is a direct session
    "state",  # it became `idle`, or `running` with the command `exec_id`; also when the next of several queued commands begins
    "destroyed",  # it is `terminated`; `reason` says why
    "held",  # `holder` has the keyboard from now on
    "released",  # the keyboard is free
    "resized",  # the terminal has the size `tty`
    "gap",  # the watcher was too slow, and missed `missed` events
    "network_denied",  # the allow-list of the session does not have what a program in it asked for; see `denied`
    "snapshot",  # with `snapshot`: the session is in this state. Not `created`: it was created before the watch began
    "snapshot_end",  # with `snapshot`: all sessions were sent
    "exec_started",  # with `execs`: the command `exec_id` begins; after the `state` of its session
    "exec_ended",  # with `execs`: the command `exec_id` is over; before the `state` of its session
    "waiting",  # with `execs`: the command `exec_id` waits for the input `waiting`. It is sent again when the command waits after another input, which may be the next question
    "waiting_ended",  # with `execs`: the command `exec_id` no longer waits, and goes on. An `exec_ended` says so too
]
"""SessionEventType says what happened to a session."""


class _SessionEventRequired(TypedDict):
    #: the stream it is sent in
    stream_id: str
    #: what happened
    type: SessionEventType
    #: when it happened; in a `snapshot` when it was taken, and in the `exec_started` of a snapshot
    #: when the command began
    at: str


class SessionEvent(_SessionEventRequired, total=False):
    """SessionEvent is one event of a session."""

    #: the session; absent in a gap and in a `snapshot_end`
    session_id: str
    #: of the session
    name: str
    #: of the session
    tags: List[str]
    #: of the session
    owner: str
    #: the session's new state; in a `snapshot` its state
    state: State
    #: the running exec, for a session that is or became `running`; the exec of an event that is
    #: about one
    exec_id: str
    #: its label
    exec_label: str
    #: for `exec_ended`: how it ended
    outcome: Outcome
    #: for `exec_ended`: its exit code, if it has one
    exit_code: int
    #: for `waiting`: what it waits for
    waiting: Waiting
    #: for `destroyed`: why, as in Terminated
    reason: str
    #: for `held`: who has the keyboard now; in a `snapshot`, if a client has it
    holder: str
    #: for `resized` and `snapshot`: the size of the terminal now
    tty: TTYSize
    #: for a gap: how many events are missing, of any session
    missed: int
    #: for `network_denied`: what was refused; `reason` says why in one word
    denied: NetworkDenial


class _HelloRequired(TypedDict):
    #: of the daemon there
    version: str
    #: 1
    protocol: int
    #: as Go names it: `linux`
    os: str
    #: as Go names it: `amd64`, `arm64`
    arch: str


class Hello(_HelloRequired, total=False):
    """Hello is what the relay of a place (`trl connect`) sends first: which TRL is at the far end.
    It is the params of the notification system.hello.
    """

    #: SHA-256 of the program that the daemon runs, in hex
    digest: str
    #: the name in the ids of its sessions
    node: str
    #: another value than before means that all earlier sessions there are gone
    boot: str
    #: whose processes run there
    user: str


#: The JSON-RPC number of each error code.
ERROR_NUMBERS: Dict[str, int] = {
    "PARSE_ERROR": -32700,
    "INVALID_REQUEST": -32600,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
    "INTERNAL": -32603,
    "MAX_SESSIONS_REACHED": -32001,
    "SHELL_NOT_FOUND": -32002,
    "CWD_NOT_FOUND": -32003,
    "SHELL_CRASHED": -32004,
    "SESSION_NOT_FOUND": -32005,
    "EXEC_NOT_FOUND": -32006,
    "SESSION_BUSY": -32007,
    "SESSION_TERMINATED": -32008,
    "OUTPUT_GONE": -32009,
    "UNAUTHORIZED": -32010,
    "FORBIDDEN": -32011,
    "RUNTIME_NOT_FOUND": -32012,
    "RUNTIME_UNAVAILABLE": -32013,
    "LIMITS_UNAVAILABLE": -32014,
    "SHUTTING_DOWN": -32015,
    "SESSION_HELD": -32016,
    "SESSION_UNREADABLE": -32017,
    "INPUT_FULL": -32018,
}

#: Method name: (type of its params, type of its result, scope).
METHODS: Dict[str, Tuple[str, str, str]] = {
    "system.ping": ("NoParams", "PingResult", "read"),
    "system.info": ("NoParams", "SystemInfo", "read"),
    "system.stats": ("NoParams", "SystemStats", "read"),
    "system.upgrade": ("NoParams", "UpgradeResult", "admin"),
    "system.delegate": ("NoParams", "DelegateResult", "admin"),
    "system.disconnect": ("DisconnectParams", "DisconnectResult", "read"),
    "session.create": ("SessionCreateParams", "Session", "run"),
    "session.list": ("SessionListParams", "SessionListResult", "read"),
    "session.info": ("SessionParams", "SessionInfo", "read"),
    "session.destroy": ("SessionDestroyParams", "SessionDestroyResult", "run"),
    "session.watch": ("SessionWatchParams", "SessionWatchResult", "read"),
    "session.resize": ("SessionResizeParams", "SessionResizeResult", "run"),
    "session.screen": ("SessionScreenParams", "SessionScreenResult", "read"),
    "session.hold": ("SessionHoldParams", "SessionHoldResult", "run"),
    "session.release": ("SessionReleaseParams", "SessionReleaseResult", "run"),
    "exec.run": ("ExecRunParams", "ExecResult", "run"),
    "exec.stream": ("ExecStreamParams", "ExecStreamResult", "run"),
    "exec.attach": ("ExecAttachParams", "ExecAttachResult", "read"),
    "exec.output": ("ExecOutputParams", "ExecOutputResult", "read"),
    "exec.input": ("ExecInputParams", "ExecInputResult", "run"),
    "exec.signal": ("ExecSignalParams", "ExecSignalResult", "run"),
    "exec.cancel": ("ExecCancelParams", "ExecCancelResult", "run"),
    "exec.info": ("ExecParams", "ExecResult", "read"),
    "exec.list": ("SessionParams", "ExecListResult", "read"),
    "place.list": ("NoParams", "PlaceListResult", "read"),
    "place.add": ("PlaceParams", "Place", "admin"),
    "place.check": ("PlaceParams", "Place", "admin"),
    "place.remove": ("PlaceRemoveParams", "PlaceRemoveResult", "admin"),
    "place.upgrade": ("PlaceParams", "Place", "admin"),
    "stream.close": ("StreamCloseParams", "StreamCloseResult", "read"),
}

#: Name of a notification: type of its params.
NOTIFICATIONS: Dict[str, str] = {
    "exec.chunk": "Chunk",
    "session.event": "SessionEvent",
    "system.hello": "Hello",
}


class SessionOptions(TypedDict, total=False):
    """The keyword arguments of session(). None is the same as leaving one out.

    Options:
        shell: a name on the daemon's PATH or a path; default `/bin/sh`. Supported: dash,
            busybox ash, bash, zsh and mksh
        argv: instead of `shell`: one direct command. `argv[0]` is a name on the session's PATH
            or a path
        cwd: where it starts; default the directory of the daemon that runs it. In a place it is
            a directory of the place
        env: added to the inherited variables; `None` removes a variable
        inherit_env: `base` (default): PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, TERM,
            TZ, TMPDIR and `LC_*`; `all`; or `none`. The daemon's own `TRL_*` are never passed on
        login: read the shell's login startup files before the session is idle; their output is
            discarded
        name: for people; need not be unique. One line
        tags: for `session.list`. One line each
        client: the name of the program that creates the session, such as `claude-code`: at most
            64 ASCII letters, digits and `.` `_` `+` `@` `-`. It follows the account in `owner`
        tty: give the session a terminal of this size
        timeout (seconds): default of every exec in it; 0 or left out: the daemon's
            `default_timeout_ms`, which is none unless set
        idle_ttl (seconds): destroy it after it was idle for this long; 0 is never. Default: the
            daemon's `idle_ttl_ms`
        limits: what it may use, enforced exactly or `LIMITS_UNAVAILABLE`
        isolation: what it is kept from, enforced exactly or `LIMITS_UNAVAILABLE`
        runtime: where it runs; left out: where its `parent` runs; without one, the setting
            `default_runtime`, which is `host` unless set
        key: makes a repeat safe: the first session is returned
        create_timeout (seconds): how long the shell may take to start, and then its login
            files; 0 or left out: 10 s
        parent: the id of a session that this one ends with
        while_connected: end it with the connections that use it
        reconnect (seconds): for `while_connected`: how long it outlives the last connection; 0
            or left out: 15 s. At most a day
        call_timeout (seconds): how long to wait for the daemon's answer before `CallTimeout` is
            raised; default that of `connect`
    """

    shell: Optional[str]
    argv: Optional[Sequence[str]]
    cwd: Optional[Union[str, os.PathLike[str]]]
    env: Optional[Mapping[str, Optional[str]]]
    inherit_env: Optional[Literal["base", "all", "none"]]
    login: Optional[bool]
    name: Optional[str]
    tags: Optional[Sequence[str]]
    client: Optional[str]
    tty: Optional[TTYSize]
    timeout: Optional[float]
    idle_ttl: Optional[float]
    limits: Optional[Limits]
    isolation: Optional[Isolation]
    runtime: Optional[str]
    key: Optional[str]
    create_timeout: Optional[float]
    parent: Optional[str]
    while_connected: Optional[bool]
    reconnect: Optional[float]
    call_timeout: Optional[float]


class RunOptions(TypedDict, total=False):
    """The keyword arguments of run(). None is the same as leaving one out.

    Options:
        timeout (seconds): default the session's; 0 is none
        idle_timeout (seconds): stop it when it wrote nothing for this long; 0 is never
        env: only for this command; names are names of shell variables; `None` unsets one
        cwd: only for this command; relative to the session's directory
        stdin: what it reads; default: end of input at once
        stdin_open: keep stdin open after `stdin`, for `exec.input`
        merge: write stderr to the same pipe as stdout: one stream, in true order
        wait: queue instead of `SESSION_BUSY`
        key: makes a repeat safe
        label: a name for results and lists, at most 200 bytes; default: the daemon makes one
        lease: the keyboard lease, if a client holds one
        yield_after (seconds): answer after this long, even if the command still runs; 0 is
            never
        yield_on_input: on a terminal: also answer, with `state` `running`, when the command
            waits for input
        max_output_bytes: how much of each stream the result has; default the daemon's
            `max_output_bytes` (128 KiB), at most 4 MiB; 0 is none
        call_timeout (seconds): how long to wait for the daemon's answer before `CallTimeout` is
            raised; default that of `connect`
    """

    timeout: Optional[float]
    idle_timeout: Optional[float]
    env: Optional[Mapping[str, Optional[str]]]
    cwd: Optional[Union[str, os.PathLike[str]]]
    stdin: Optional[Union[str, bytes]]
    stdin_open: Optional[bool]
    merge: Optional[bool]
    wait: Optional[bool]
    key: Optional[str]
    label: Optional[str]
    lease: Optional[str]
    yield_after: Optional[float]
    yield_on_input: Optional[bool]
    max_output_bytes: Optional[int]
    call_timeout: Optional[float]


class StreamOptions(TypedDict, total=False):
    """The keyword arguments of stream(). None is the same as leaving one out.

    Options:
        timeout (seconds): default the session's; 0 is none
        idle_timeout (seconds): stop it when it wrote nothing for this long; 0 is never
        env: only for this command; names are names of shell variables; `None` unsets one
        cwd: only for this command; relative to the session's directory
        stdin: what it reads; default: end of input at once
        stdin_open: keep stdin open after `stdin`, for `exec.input`
        merge: write stderr to the same pipe as stdout: one stream, in true order
        wait: queue instead of `SESSION_BUSY`
        key: makes a repeat safe: it follows the first exec, from offset 0 on
        label: a name for results and lists, at most 200 bytes; default: the daemon makes one
        lease: the keyboard lease, if a client holds one
        call_timeout (seconds): how long to wait for the daemon's answer before `CallTimeout` is
            raised; default that of `connect`
    """

    timeout: Optional[float]
    idle_timeout: Optional[float]
    env: Optional[Mapping[str, Optional[str]]]
    cwd: Optional[Union[str, os.PathLike[str]]]
    stdin: Optional[Union[str, bytes]]
    stdin_open: Optional[bool]
    merge: Optional[bool]
    wait: Optional[bool]
    key: Optional[str]
    label: Optional[str]
    lease: Optional[str]
    call_timeout: Optional[float]


#: Function: {keyword argument: (param, conversion)}; call_timeout is not sent.
OPTIONS: Dict[str, Dict[str, Tuple[str, str]]] = {
    "session": {
        "shell": ("shell", ""),
        "argv": ("argv", "list"),
        "cwd": ("cwd", "path"),
        "env": ("env", "dict"),
        "inherit_env": ("inherit_env", ""),
        "login": ("login", "flag"),
        "name": ("name", ""),
        "tags": ("tags", "list"),
        "client": ("client", ""),
        "tty": ("tty", ""),
        "timeout": ("timeout_ms", "milliseconds"),
        "idle_ttl": ("idle_ttl_ms", "milliseconds"),
        "limits": ("limits", ""),
        "isolation": ("isolation", ""),
        "runtime": ("runtime", ""),
        "key": ("key", ""),
        "create_timeout": ("create_timeout_ms", "milliseconds"),
        "parent": ("parent", ""),
        "while_connected": ("while_connected", "flag"),
        "reconnect": ("reconnect_ms", "milliseconds"),
    },
    "run": {
        "timeout": ("timeout_ms", "milliseconds"),
        "idle_timeout": ("idle_timeout_ms", "milliseconds"),
        "env": ("env", "dict"),
        "cwd": ("cwd", "path"),
        "stdin": ("stdin", "bytes"),
        "stdin_open": ("stdin_open", "flag"),
        "merge": ("merge", "flag"),
        "wait": ("wait", "flag"),
        "key": ("key", ""),
        "label": ("label", ""),
        "lease": ("lease", ""),
        "yield_after": ("yield_ms", "milliseconds"),
        "yield_on_input": ("yield_on_input", "flag"),
        "max_output_bytes": ("max_output_bytes", ""),
    },
    "stream": {
        "timeout": ("timeout_ms", "milliseconds"),
        "idle_timeout": ("idle_timeout_ms", "milliseconds"),
        "env": ("env", "dict"),
        "cwd": ("cwd", "path"),
        "stdin": ("stdin", "bytes"),
        "stdin_open": ("stdin_open", "flag"),
        "merge": ("merge", "flag"),
        "wait": ("wait", "flag"),
        "key": ("key", ""),
        "label": ("label", ""),
        "lease": ("lease", ""),
    },
}


def parse_time(text: str) -> datetime:
    """Parses a time of the contract: RFC 3339 with milliseconds in UTC."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)


class ResultFields:
    """What is known of a command. Durations are in seconds."""

    __slots__ = ("raw",)
    raw: ExecResult

    @property
    def exec_id(self) -> str:
        """its id: `e-` and ten letters and digits; with the setting `node`, `e-NODE-` and the ten"""
        return self.raw["exec_id"]

    @property
    def session_id(self) -> str:
        """its session"""
        return self.raw["session_id"]

    @property
    def label(self) -> Optional[str]:
        """the name that its caller gave it, or that the daemon made"""
        return self.raw.get("label")

    @property
    def state(self) -> ExecState:
        """whether it is still in progress"""
        return self.raw["state"]

    @property
    def outcome(self) -> Outcome:
        """how it ended, in one word"""
        return self.raw["outcome"]

    @property
    def exit_code(self) -> Optional[int]:
        """of the command; 128 plus the number of the signal if one ended it, or was needed to stop it:
        a command that handles SIGTERM and then ends by itself has its own code (not in zsh). null
        while it runs or waits, if it never ran, and if its session was killed while it ran
        """
        return self.raw["exit_code"]

    @property
    def signal(self) -> Optional[str]:
        """the signal that ended it, or that was needed to stop it: `SIGTERM`, `SIGKILL`"""
        return self.raw.get("signal")

    @property
    def started_at(self) -> datetime:
        """when it began; while it waits, when it was queued"""
        return parse_time(self.raw["started_at"])

    @property
    def duration(self) -> float:
        """so far, or in total"""
        return self.raw["duration_ms"] / 1000

    @property
    def queued(self) -> float:
        """how long it was queued; absent: it was not"""
        return self.raw.get("queued_ms", 0) / 1000

    @property
    def timed_out(self) -> bool:
        """stopped by `timeout_ms` or `idle_timeout_ms`"""
        return self.raw["timed_out"]

    @property
    def cancelled(self) -> bool:
        """stopped by `exec.cancel`, or with its session"""
        return self.raw["cancelled"]

    @property
    def stdout_bytes(self) -> int:
        """captured so far, however much the result has"""
        return self.raw["stdout_bytes"]

    @property
    def stderr_bytes(self) -> int:
        """captured so far, however much the result has"""
        return self.raw["stderr_bytes"]

    @property
    def merged(self) -> bool:
        """`stdout` contains both streams, as `merge` requested"""
        return self.raw.get("merged", False)

    @property
    def truncated(self) -> bool:
        """`stdout` or `stderr` above is not complete; `exec.output` has the rest, except for
        `dropped_bytes`
        """
        return self.raw["truncated"]

    @property
    def dropped_bytes(self) -> int:
        """how many captured bytes the quota has dropped: they can't be read any more"""
        return self.raw.get("dropped_bytes", 0)

    @property
    def cwd(self) -> Optional[str]:
        """the session's directory after the command"""
        return self.raw.get("cwd")

    @property
    def tty(self) -> Optional[TTYSize]:
        """for a command on a terminal: the size when it began"""
        return self.raw.get("tty")

    @property
    def survivors(self) -> List[Process]:
        """the processes that the command left running"""
        return self.raw.get("survivors", [])

    @property
    def rolled_back(self) -> bool:
        """the state of the shell was lost: it is now as it was after `rolled_back_to`"""
        return self.raw.get("rolled_back", False)

    @property
    def rolled_back_to(self) -> Optional[str]:
        """an exec id; absent with `rolled_back`: as at the session's start"""
        return self.raw.get("rolled_back_to")

    @property
    def usage(self) -> Optional[Usage]:
        """only for the command of a direct session"""
        return self.raw.get("usage")

    @property
    def input_unread(self) -> int:
        """bytes of `exec.input` that the command did not read, on a terminal after its line editing;
        absent: none, or the session is direct
        """
        return self.raw.get("input_unread", 0)

    @property
    def limit_hit(self) -> List[Limit]:
        """limits of the session that were provably reached while it ran"""
        return self.raw.get("limit_hit", [])

    @property
    def network_denied(self) -> List[NetworkDenial]:
        """what the allow-list of the session refused while it ran; at most 8: `suppressed` counts
        those that are left out before one, and the last is always there
        """
        return self.raw.get("network_denied", [])
