"""The types of the TRL contract, version 1.

Generated from the method table and the types of the daemon; do not edit. To refresh it:

    go test ./internal/contract -run Fresh -update

Members of a result that are not named here may come with a later version, and
must be ignored.
"""

# ruff: noqa: E501

from typing import Any, Dict, List, Literal, Optional, Tuple, TypedDict


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

    #: who you are to the daemon: the account that owns the sessions you create. Absent: the daemon
    #: is older than owners
    caller: str


class _ProcessSupportRequired(TypedDict):
    #: `cgroup`, or `tags` where no cgroup v2 hierarchy is writable
    tracking: str
    #: true: orphans become children of the daemon, which reaps them
    subreaper: bool


class ProcessSupport(_ProcessSupportRequired, total=False):
    """ProcessSupport says by which means this daemon finds and kills processes."""

    #: directory of the session cgroups
    cgroup: str
    #: why there are no cgroups
    reason: str


class SystemInfo(TypedDict):
    """SystemInfo says what this daemon is and what this machine lets it enforce."""

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
    #: every setting in force, by key, and `config_file` if one was read; no secrets
    config: Dict[str, Any]
    #: `["host"]`
    runtimes: List[str]
    #: which of sh, dash, ash, bash, zsh are on this host now and can be driven
    shells: List[str]
    #: how processes are found and killed here
    process: ProcessSupport
    #: limits that can be enforced; empty now
    limits: List[str]
    #: isolations that can be enforced; empty now
    isolation: List[str]


class SystemStats(TypedDict):
    """SystemStats counts what the daemon does and holds."""

    #: since the daemon started
    uptime_ms: int
    #: number of sessions by State
    sessions: Dict[str, int]
    #: ever created
    sessions_total: int
    #: running now
    execs_running: int
    #: ever begun or queued
    execs_total: int
    #: known by their id now
    execs_retained: int
    #: output ever captured
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


class TTYSize(TypedDict):
    """TTYSize is the size of a terminal in characters."""

    #: height in characters
    rows: int
    #: width in characters
    cols: int


class SessionCreateParams(TypedDict, total=False):
    """SessionCreateParams starts a session."""

    #: a name on the daemon's PATH or a path; default `/bin/sh`. dash, busybox ash, bash and zsh
    #: can be driven
    shell: str
    #: instead of `shell`: one direct command. `argv[0]` is a name on the session's PATH or a path
    argv: List[str]
    #: where it starts; default the daemon's directory
    cwd: str
    #: added to what is inherited; `null` takes a variable away
    env: Dict[str, Optional[str]]
    #: `base` (default): PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE, TERM, TZ, TMPDIR and
    #: `LC_*`; `all`; or `none`. The daemon's own `TRL_*` are never passed on
    inherit_env: Literal["base", "all", "none"]
    #: read the shell's login startup files before the session is idle; their output is thrown away
    login: bool
    #: for people; need not be unique. One line
    name: str
    #: for `session.list`. One line each
    tags: List[str]
    #: what the program that creates the session calls itself, as `claude-code`: at most 64 ASCII
    #: letters, digits and `.` `_` `+` `@` `-`. It stands behind the account in `owner`
    client: str
    #: give the session a terminal of this size
    tty: TTYSize
    #: default of every exec in it; 0 or left out: the daemon's `default_timeout_ms`, which is none
    #: unless set
    timeout_ms: int
    #: destroyed after being idle for so long; 0 is never. Default: the daemon's `idle_ttl_ms`
    idle_ttl_ms: int
    #: not served yet: `LIMITS_UNAVAILABLE`
    limits: Dict[str, Any]
    #: not served yet: `LIMITS_UNAVAILABLE`
    isolation: Dict[str, Any]
    #: `host` or left out; else `RUNTIME_NOT_FOUND`
    runtime: str
    #: makes a repeat safe: the first session is returned
    key: str
    #: how long the shell may take to start, and then its login files; 0 or left out: 10 s
    create_timeout_ms: int
    #: the id of a session that this one ends with
    parent: str
    #: end it with the connections that use it
    while_connected: bool
    #: of `while_connected`: how long it outlives the last connection; 0 or left out: 15 s. At most
    #: a day
    reconnect_ms: int


State = Literal[
    "creating",  # the shell is starting
    "idle",  # ready for a command
    "running",  # a command runs, or the session is `unreadable`
    "terminated",  # ended; no process is left
]
"""State is where a session is in its life. It only changes by the transition table of the
session package.
"""


Outcome = Literal[
    "running",  # not over yet, or not begun
    "exited",  # it ended and its shell went on
    "signaled",  # the same, with an exit code of 128 and a signal's number, by which shells report a child that a signal ended
    "timed_out",  # stopped by a timeout
    "cancelled",  # stopped by `exec.cancel`, by the end of its session, or in the queue
    "shell_exited",  # the command ended its shell (`exit`, `exec`, `set -e`); the session lives on
    "shell_died",  # the shell was killed, crashed, or could not be used any more; the session lives on
    "oom_killed",  # reserved; not reported yet
]
"""Outcome is how an exec ended, in one word."""


class Login(TypedDict):
    """Login says how the login files of a session ended: as a command does."""

    #: as of a command: `exited`, `timed_out`, or that they ended their shell
    outcome: Outcome
    #: of the last of them; many end with 1 for no harm
    exit_code: Optional[int]
    #: they took longer than `create_timeout_ms`, and were stopped
    timed_out: bool


class Hold(TypedDict):
    """Hold says who has the keyboard of a session."""

    #: who has it
    holder: str
    #: from when on
    since: str
    #: it ends then, unless it is renewed or used
    until: str


class _TerminatedRequired(TypedDict):
    #: when its tree was verified empty
    at: str
    #: `destroyed`; `idle` (its TTL); `parent` (the session that it belonged to has ended);
    #: `disconnected` (nobody is connected who used it); `shutdown` (of the daemon); `exited` (a
    #: direct command ended); `lost` (the process that keeps sessions was killed, or this one could
    #: not be taken over by a restarted daemon: its processes were killed); `shell_lost` (the shell
    #: died and no copy of it could take over)
    reason: str


class Terminated(_TerminatedRequired, total=False):
    """Terminated says when and why a session ended."""

    #: of a direct command that ended by itself
    exit_code: int
    #: that ended it
    signal: str


class _SessionRequired(TypedDict):
    #: `s-` and ten letters and digits
    session_id: str
    #: `host`
    runtime: str
    #: where it is in its life
    state: State
    #: when it was asked for
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
    """Session is a session as every method returns it. Environment values are never returned, only
    their names.
    """

    #: as given
    name: str
    #: as given
    tags: List[str]
    #: who created it: an account, or an account and a client, as `alice/claude-code`. Absent: a
    #: daemon created it that was older than owners
    owner: str
    #: path of the shell
    shell: str
    #: of a direct session
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
    #: the running exec; of a direct session its only one, also after it has ended
    exec_id: str
    #: how its login files ended, if it was asked to read them
    login: Login
    #: its end is under way: it takes no command any more
    ending: bool
    #: who has its keyboard; absent: nobody, so all may type
    held: Hold
    #: why the daemon can't go on with what an earlier daemon left of it. Its processes live, and
    #: it takes no command: `SESSION_UNREADABLE`
    unreadable: str
    #: when and why it ended
    terminated: Terminated


class SessionListParams(TypedDict, total=False):
    """SessionListParams selects sessions; every field given must match."""

    #: only sessions in this state
    state: State
    #: only sessions that have not ended
    alive: bool
    #: only sessions with this tag
    tag: str
    #: only sessions of this runtime
    runtime: str


class SessionListResult(TypedDict):
    """SessionListResult is the answer to session.list, oldest session first."""

    #: those that match
    sessions: List[Session]


class SessionParams(TypedDict):
    """SessionParams names one session."""

    #: the session
    session_id: str


ExecState = Literal[
    "queued",  # waits for its session
    "running",  # runs
    "exited",  # over; its background processes may still write into its journal
]
"""ExecState is whether an exec is still going on."""


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
    """Process is one live process of a session. Exec names the command that started it, where that
    is known.
    """

    #: the exec that started it, where that is still known
    exec_id: str
    #: `shell` for the session's shell, `standby` for a safety copy of it, `leader` for the helper
    #: that holds its terminal; absent for what commands started
    role: str


class _UsageRequired(TypedDict):
    #: processor time
    cpu_ms: int


class Usage(_UsageRequired, total=False):
    """Usage is what processes consumed."""

    #: largest resident set, where it is known: nowhere yet
    max_rss_bytes: int


class _ExecResultRequired(TypedDict):
    #: `e-` and ten letters and digits
    exec_id: str
    #: its session
    session_id: str
    #: whether it is still going on
    state: ExecState
    #: how it ended, in one word
    outcome: Outcome
    #: of the command; 128 and the number of the signal if one ended it, or was needed to stop it:
    #: a command that handles SIGTERM and then ends by itself has its own (not in zsh). null while
    #: it runs or waits, if it never ran, and if its session was killed under it
    exit_code: Optional[int]
    #: when it began; while it waits, when it was queued
    started_at: str
    #: so far, or in all
    duration_ms: int
    #: stopped by `timeout_ms` or `idle_timeout_ms`
    timed_out: bool
    #: stopped by `exec.cancel`, or with its session
    cancelled: bool
    #: whole, or head and tail with a line between them that says how many bytes are left out; in
    #: base64 there is no such line
    stdout: str
    #: whole, or cut as `stdout` is
    stderr: str
    #: captured so far, whatever the result carries
    stdout_bytes: int
    #: captured so far, whatever the result carries
    stderr_bytes: int
    #: `stdout` or `stderr` above is not the whole; `exec.output` has it, but for `dropped_bytes`
    truncated: bool


class ExecResult(_ExecResultRequired, total=False):
    """ExecResult is what is known of an exec: the answer to exec.run, and without output that of
    exec.info and exec.list.
    """

    #: what its caller called it
    label: str
    #: that ended it, or that was needed to stop it: `SIGTERM`, `SIGKILL`
    signal: str
    #: how long it waited for its turn; absent: it did not
    queued_ms: int
    #: `"base64"` when needed
    stdout_encoding: str
    #: `"base64"` when needed
    stderr_encoding: str
    #: `stdout` is both streams, as `merge` asked
    merged: bool
    #: of what was captured the quota has dropped so much: nobody can read it any more
    dropped_bytes: int
    #: the session's directory after the command
    cwd: str
    #: of a command on a terminal: the size when it began
    tty: TTYSize
    #: what the command left running
    survivors: List[Process]
    #: the state of the shell was lost: it is now as it was after `rolled_back_to`
    rolled_back: bool
    #: an exec id; absent with `rolled_back`: as at the session's start
    rolled_back_to: str
    #: only of the command of a direct session
    usage: Usage


WaitingFor = Literal[
    "input",  # something that can be seen as it is typed, or a key
    "password",  # a line that the terminal does not show
]
"""WaitingFor is what is to be typed."""


_WaitingKeywords = TypedDict("_WaitingKeywords", {"for": WaitingFor})


class Waiting(_WaitingKeywords):
    """Waiting says that the command on a terminal waits for something to be typed."""

    #: when something was last written to the terminal or typed
    since: str
    #: the process that waits
    pid: int
    #: its arguments in one line
    process: str


class _SessionInfoRequired(Session):
    #: every live process in its tree; zombies are not listed
    processes: List[Process]


class SessionInfo(_SessionInfoRequired, total=False):
    """SessionInfo is a session with what is going on in it."""

    #: the running one, without output
    exec: ExecResult
    #: the last finished one, without output
    last_exec: ExecResult
    #: only where cgroups count it: `cpu_ms` of the whole session
    usage: Usage
    #: on a terminal, what the running command waits for; absent: nothing that can be typed
    waiting: Waiting
    #: when `exec.input` was last used without a lease: somebody types who does not hold the
    #: session
    typed_at: str


class _SessionDestroyParamsRequired(TypedDict):
    #: the session
    session_id: str


class SessionDestroyParams(_SessionDestroyParamsRequired, total=False):
    """SessionDestroyParams ends a session. Force skips the grace period."""

    #: no grace: SIGKILL at once
    force: bool


class SessionDestroyResult(TypedDict):
    """SessionDestroyResult is answered when the session's tree is verified empty. Survivors is
    then an empty list; it names what could not be killed, if anything ever is (a process in
    uninterruptible sleep).
    """

    #: the session
    session_id: str
    #: `terminated`
    state: State
    #: empty; names what could not be killed within 10 s, if the kernel itself holds a process
    survivors: List[Process]


class SessionWatchParams(TypedDict, total=False):
    """SessionWatchParams asks for what happens to one session, or to all."""

    #: only this session; default all
    session_id: str


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

    #: of the hold, if the session is held
    lease: str


class SessionResizeResult(TypedDict):
    """SessionResizeResult is the size that the terminal has now."""

    #: the session
    session_id: str
    #: the size it has now
    tty: TTYSize


ScreenFormat = Literal[
    "text",  # what a person reads: a line for each row, blanks at the end left out
    "ansi",  # bytes that make another terminal of the same size look the same
    "json",  # rows of runs of one style, with colors and links
]
"""ScreenFormat is a form of what is on a terminal."""


class _SessionScreenParamsRequired(TypedDict):
    #: the session
    session_id: str


class SessionScreenParams(_SessionScreenParamsRequired, total=False):
    """SessionScreenParams asks what is on a session's terminal."""

    #: default `text`
    format: ScreenFormat
    #: of `text` and `ansi`: up to so many lines that have scrolled away come first; 1000 are kept
    scrollback: int


class _ScreenCursorRequired(TypedDict):
    #: from 0 on
    row: int
    #: from 0 on
    column: int


class ScreenCursor(_ScreenCursorRequired, total=False):
    """ScreenCursor is where the next character goes, from 0 on."""

    #: the program does not show it
    hidden: bool


class ScreenStyle(TypedDict, total=False):
    """ScreenStyle is how text looks. A color is "" for the default, the number of a palette color,
    or #rrggbb.
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
    #: where it is another than that of the text
    underline_color: str
    #: it should blink
    blink: bool
    #: text and background change places
    inverse: bool
    #: it should not be seen
    invisible: bool
    #: a line through it
    strike: bool
    #: a line above it
    overline: bool
    #: where it leads: a link of `http`, `https`, `file` or `mailto`. Others are no links, on
    #: screens of every format
    link: str


class _ScreenRunRequired(TypedDict):
    #: of one style
    text: str
    #: in columns: some characters take two
    width: int


class ScreenRun(_ScreenRunRequired, total=False):
    """ScreenRun is text of one style."""

    #: absent: the default
    style: ScreenStyle


class ScreenLine(TypedDict, total=False):
    """ScreenLine is one row. What comes after its last run is blank."""

    #: from left to right; what comes after the last one is blank
    runs: List[ScreenRun]
    #: it goes on from the row above
    wrapped: bool


class _SessionScreenResultRequired(TypedDict):
    #: the session
    session_id: str
    #: the screen is as it was after this byte of that command's journal
    offset: int
    #: of the terminal
    rows: int
    #: of the terminal
    cols: int
    #: where the next character goes
    cursor: ScreenCursor


class SessionScreenResult(_SessionScreenResultRequired, total=False):
    """SessionScreenResult is what is on a terminal, and where: ExecID and Offset say after which
    byte of which journal it looks like this.
    """

    #: the command whose output came last; absent before the first
    exec_id: str
    #: a program has the whole screen, as editors and pagers do
    alternate: bool
    #: that programs gave the window
    title: str
    #: of the formats `text` and `ansi`
    text: str
    #: of the format `json`, one for each row
    lines: List[ScreenLine]
    #: what the running command waits for; absent: nothing that can be typed
    waiting: Waiting


class _SessionHoldParamsRequired(TypedDict):
    #: the session
    session_id: str
    #: who it is, such as `alice@laptop`, in 1 to 100 bytes: told to those who are refused
    holder: str


class SessionHoldParams(_SessionHoldParamsRequired, total=False):
    """SessionHoldParams takes the keyboard of a session: as long as it is held, only its holder
    starts commands in the session, types, and changes the size of its terminal. Looking and
    stopping stay open to all.
    """

    #: renews the hold of this lease instead of beginning one
    lease: str
    #: take it from who has it
    force: bool
    #: it ends so long after it was last renewed or used; 1000 to 600000, default 15000
    ttl_ms: int
    #: the holder's own terminal answers what programs ask of theirs (its size, its colors), so the
    #: daemon does not
    answers: bool


class SessionHoldResult(TypedDict):
    """SessionHoldResult is a hold and the lease that proves it."""

    #: the session
    session_id: str
    #: proves the hold in later calls
    lease: str
    #: who has it, and until when
    hold: Hold


class SessionReleaseParams(TypedDict):
    """SessionReleaseParams gives the keyboard of a session back."""

    #: the session
    session_id: str
    #: of the hold that is to end
    lease: str


class SessionReleaseResult(TypedDict):
    """SessionReleaseResult names the session that is nobody's now."""

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
    #: stop it when it wrote nothing for so long; 0 is never
    idle_timeout_ms: int
    #: for this command alone; names are names of shell variables; `null` unsets one
    env: Dict[str, Optional[str]]
    #: for this command alone; relative to the session's directory
    cwd: str
    #: what it reads; default: end of input at once
    stdin: str
    #: `"base64"` when `stdin` is not text
    stdin_encoding: Literal["base64"]
    #: keep stdin open after `stdin`, for `exec.input`
    stdin_open: bool
    #: write stderr where stdout goes: one stream, in true order
    merge: bool
    #: queue instead of `SESSION_BUSY`
    wait: bool
    #: makes a repeat safe
    key: str
    #: what to call it in results and lists, in at most 200 bytes: the text of a command is not
    #: told again, for it may hold secrets
    label: str
    #: of the hold, if the session is held
    lease: str
    #: answer after so long, whether it is over or not; 0 is never
    yield_ms: int
    #: on a terminal: answer also, with `state` `running`, when the command waits for input
    yield_on_input: bool
    #: how much of each stream the result carries; default the daemon's `max_output_bytes` (128
    #: KiB), at most 4 MiB; 0 is none
    max_output_bytes: int


class _ExecStreamParamsRequired(TypedDict):
    #: the session
    session_id: str
    #: text for the session's shell; may be empty and may have many lines
    command: str


class ExecStreamParams(_ExecStreamParamsRequired, total=False):
    """ExecStreamParams runs one command as ExecRunParams does. Its output follows the answer as
    chunks, so there is nothing to yield and nothing to cut.
    """

    #: default the session's; 0 is none
    timeout_ms: int
    #: stop it when it wrote nothing for so long; 0 is never
    idle_timeout_ms: int
    #: for this command alone; names are names of shell variables; `null` unsets one
    env: Dict[str, Optional[str]]
    #: for this command alone; relative to the session's directory
    cwd: str
    #: what it reads; default: end of input at once
    stdin: str
    #: `"base64"` when `stdin` is not text
    stdin_encoding: Literal["base64"]
    #: keep stdin open after `stdin`, for `exec.input`
    stdin_open: bool
    #: write stderr where stdout goes: one stream, in true order
    merge: bool
    #: queue instead of `SESSION_BUSY`
    wait: bool
    #: makes a repeat safe: the first exec is followed, from offset 0 on
    key: str
    #: what to call it in results and lists, in at most 200 bytes
    label: str
    #: of the hold, if the session is held
    lease: str


class ExecStreamResult(TypedDict):
    """ExecStreamResult is answered when the command has been accepted."""

    #: the exec
    exec_id: str
    #: the stream of the chunks that follow
    stream_id: str


class _ExecAttachParamsRequired(TypedDict):
    #: the exec
    exec_id: str


_ExecAttachParamsKeywords = TypedDict("_ExecAttachParamsKeywords", {"from": int}, total=False)


class ExecAttachParams(_ExecAttachParamsRequired, _ExecAttachParamsKeywords, total=False):
    """ExecAttachParams asks for an exec's output as chunks from an offset on."""


_ExecAttachResultKeywords = TypedDict("_ExecAttachResultKeywords", {"from": int})


class ExecAttachResult(_ExecAttachResultKeywords):
    """ExecAttachResult says where the chunks that follow begin."""

    #: the stream of the chunks that follow
    stream_id: str
    #: of the exec at the moment of the answer
    state: ExecState


ChunkType = Literal[
    "stdout",  # bytes of stdout
    "stderr",  # bytes of stderr
    "tty",  # of a terminal, which has one stream
    "gap",  # bytes stood here that were not kept, for a quota or a full disk
    "resize",  # the terminal has another size from here on; only with `times`
    "exit",  # the exec is over; always the last of a stream, and only there
]
"""ChunkType says which stream a chunk is of, or what else it is."""


class _ExecOutputParamsRequired(TypedDict):
    #: the exec
    exec_id: str


_ExecOutputParamsKeywords = TypedDict("_ExecOutputParamsKeywords", {"from": int}, total=False)


class ExecOutputParams(_ExecOutputParamsRequired, _ExecOutputParamsKeywords, total=False):
    """ExecOutputParams reads an exec's journal by polling."""

    #: at most so many bytes of the journal; default 256 KiB
    max_bytes: int
    #: long poll: wait so long for a byte past `from`, or the end of the exec
    wait_ms: int
    #: `stdout` or `stderr`; default both
    stream: ChunkType
    #: `raw` (default), or `text`: escape sequences stripped, lines that carriage returns or
    #: backspaces rewrote in their last form
    view: Literal["raw", "text"]
    #: say when output came: `chunks` are cut where time passed, and have `at_ms`. Not with `view:
    #: "text"`
    times: bool


class _ChunkRequired(TypedDict):
    #: which stream it is of, or a gap, or the exit
    type: ChunkType
    #: of its first byte in the journal
    offset: int
    #: the offset that follows the chunk, from which to resume
    next: int


class Chunk(_ChunkRequired, total=False):
    """Chunk is a piece of a journal. Offset is the journal offset of its first byte. A gap chunk
    stands for Bytes bytes that quota has dropped. Pushed in a stream it names the stream and
    its exec; of exec.output it does not. Where times are asked for, AtMS is when its first byte
    was captured.
    """

    #: the stream it is sent in; absent in `exec.output`
    stream_id: str
    #: the exec it is of; absent in `exec.output`
    exec_id: str
    #: absent in a gap and in an exit
    data: str
    #: `"base64"` when needed
    encoding: str
    #: of a gap: how many bytes were not kept
    bytes: int
    #: with `times`, not of a gap: when the first byte was captured, in milliseconds after the
    #: command began
    at_ms: int
    #: of a resize: the size from here on
    tty: TTYSize
    #: of an exit: how the exec ended, without output
    result: ExecResult


class ExecOutputResult(TypedDict):
    """ExecOutputResult carries chunks up to the offset Next, from which the next call goes on.
    Closed is true when nothing can come after Next: the exec has ended and no process holds its
    output open.
    """

    #: the exec
    exec_id: str
    #: in the order of their offsets; may be empty
    chunks: List[Chunk]
    #: the offset from which the next call goes on
    next: int
    #: of the exec
    state: ExecState
    #: nothing can come after `next`: the exec has ended and no process holds its output open
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
    #: of a terminal: typed after `data`, by name: `enter`, `tab`, `escape`, `backspace`, `up`,
    #: `down`, `left`, `right`, `home`, `end`, `pageup`, `pagedown`, `insert`, `delete`, `f1` to
    #: `f20`, a character, and these after `ctrl-`, `alt-` or `shift-`
    keys: List[str]
    #: of a terminal: `data` is pasted; a program that asked to be told (bracketed paste) is
    paste: bool
    #: of the hold, if the session is held
    lease: str
    #: makes a repeat safe: it is written once
    key: str
    #: offset of the first byte of `data` in all input of the exec, `stdin` included: what is there
    #: already is not written again; an offset after the end is `INVALID_PARAMS` (`data.next`). Not
    #: on a terminal
    at: int
    #: all of `data` or nothing, and answered when it is kept. Not on a terminal
    whole: bool


class _ExecInputResultRequired(TypedDict):
    #: the exec
    exec_id: str
    #: how many bytes are the command's
    bytes: int


class ExecInputResult(_ExecInputResultRequired, total=False):
    """ExecInputResult says how many bytes are the command's."""

    #: offset after the last of them: `at` of what follows. Not on a terminal
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
    """ExecCancelParams names the command to cancel, by itself or by its session."""

    #: cancel what runs in this session
    session_id: str
    #: cancel this exec
    exec_id: str


class ExecCancelResult(TypedDict):
    """ExecCancelResult is answered once the command is gone."""

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


class StreamCloseParams(TypedDict):
    """StreamCloseParams names a stream that was opened over the same connection."""

    #: the stream
    stream_id: str


class StreamCloseResult(TypedDict):
    """StreamCloseResult is answered when no notification of the stream follows any more. Closed is
    false when it had ended already, or never was.
    """

    #: the stream
    stream_id: str
    #: it was open until now; false: it had ended already, or this connection has no such stream
    closed: bool


SessionEventType = Literal[
    "created",  # it can be used: it is `idle`, or `running` if it is a direct one
    "state",  # it became `idle`, or `running` with the command `exec_id`; also when the next of several that wait begins
    "destroyed",  # it is `terminated`, for a reason
    "held",  # `holder` has the keyboard from now on
    "released",  # the keyboard is free
    "resized",  # the terminal has the size `tty`
    "gap",  # the watcher was too slow: so many events are not told
]
"""SessionEventType says what happened to a session."""


class _SessionEventRequired(TypedDict):
    #: the stream it is sent in
    stream_id: str
    #: what happened
    type: SessionEventType
    #: when it happened
    at: str


class SessionEvent(_SessionEventRequired, total=False):
    """SessionEvent is one thing that happened to a session."""

    #: the session; absent in a gap
    session_id: str
    #: of the session
    name: str
    #: of the session
    tags: List[str]
    #: of the session
    owner: str
    #: the session's state from then on
    state: State
    #: the exec that runs, of a session that became `running`
    exec_id: str
    #: of `destroyed`: why, as in Terminated
    reason: str
    #: of `held`: who has the keyboard now
    holder: str
    #: of `resized`: the size of the terminal now
    tty: TTYSize
    #: of a gap: how many events are not told, of any session
    missed: int


ErrorCode = Literal[
    "PARSE_ERROR",  # the line is not JSON
    "INVALID_REQUEST",  # not a JSON-RPC 2.0 request, a batch, a line that is too long; also `exec.cancel` of an idle session
    "METHOD_NOT_FOUND",  # there is no such method here (`data.method`)
    "INVALID_PARAMS",  # a field is unknown, missing, or not what the method takes (`data.field`)
    "INTERNAL",  # a failure of the daemon itself; the call may have had effects
    "MAX_SESSIONS_REACHED",  # the pool is full (`data.max_sessions`)
    "SHELL_NOT_FOUND",  # no such shell or program, or not a shell that can be driven (`data.shell`); nothing was created
    "CWD_NOT_FOUND",  # the directory does not exist or can't be entered (`data.cwd`); nothing was created or run
    "SHELL_CRASHED",  # the shell died while starting, or did not answer and was killed (`data.exit_code`, `data.signal`, `data.stderr`); nothing is left behind
    "SESSION_NOT_FOUND",  # it never existed, or is past its retention
    "EXEC_NOT_FOUND",  # it never existed, or is past its retention
    "SESSION_BUSY",  # the session runs another command (`data.exec_id`) and the caller did not ask to wait; always for a direct session, and while a session is being created (without `data.exec_id`)
    "SESSION_TERMINATED",  # the session has ended (`data.reason`), or is ending
    "OUTPUT_GONE",  # the output of this exec is no longer kept at all (`data.first_offset`); a part that quota dropped is a `gap` chunk instead
    "UNAUTHORIZED",  # on the socket: the peer's user may not use this daemon; the connection is closed after it. Over HTTP: the token is missing, unknown or expired
    "FORBIDDEN",  # the caller's scope is smaller than the method's (`data.scope`, the one it needs), or its token is bound to a tag (`data.tag`) and `session.create` was asked for a session without it
    "RUNTIME_NOT_FOUND",  # a runtime other than `host` was asked for
    "RUNTIME_UNAVAILABLE",  # over HTTP: too many requests with this token (`data.retry_after_ms`). Else reserved for places out of reach; the command line uses it when it finds no daemon
    "LIMITS_UNAVAILABLE",  # `limits` or `isolation` was asked for, which this daemon can't give. Never silently ignored
    "SHUTTING_DOWN",  # the daemon ends its sessions: no new session, no new command. Connections are still taken until the sessions have ended, and may look at them
    "SESSION_HELD",  # somebody else has the session's keyboard (`data.holder`, `data.since`), or the hold of the `lease` that was given has ended
    "SESSION_UNREADABLE",  # the daemon can't go on with what an earlier daemon left of the session; `session.info` lists its processes, `session.destroy` ends them. A name of its own, because the session is neither busy nor ended
    "INPUT_FULL",  # `exec.input` with `whole` was given more than `input_buffer_bytes` (`data.bytes`, `data.input_buffer_bytes`); nothing of it was written
]
"""ErrorCode is the stable name of an error. Clients switch on it; the JSON-RPC number beside
it is for JSON-RPC libraries.
"""


class _ErrorDataRequired(TypedDict):
    #: The stable name: switch on this.
    code: ErrorCode


class ErrorData(_ErrorDataRequired, total=False):
    """What an error carries besides its message; details have names of their own."""

    #: A sentence for a model: the next call to make.
    hint: str


class ErrorObject(TypedDict):
    """The JSON-RPC error object."""

    #: The JSON-RPC number.
    code: int
    message: str
    data: ErrorData


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
    "stream.close": ("StreamCloseParams", "StreamCloseResult", "read"),
}

#: Name of a notification: type of its params.
NOTIFICATIONS: Dict[str, str] = {
    "exec.chunk": "Chunk",
    "session.event": "SessionEvent",
}
