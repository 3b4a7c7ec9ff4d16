# The driver's part inside dash. Read once, when the shell starts.
# @STATUS@ is the path of the daemon's status pipe. All names begin with __trl_.

# Gives $? the value it had for the user.
__trl_r() { return "$1"; }

# Soft abort: inside a command (__trl_b is set) the failing expansion unwinds to
# the dot that runs the command, which survives because `command` runs it.
trap '{ ${__trl_b:+${__trl_abort?}}; } 2>/dev/null' 16

# On a terminal (__trl_y is its path) the keys for INT and QUIT signal the shell
# too. A command that dies of one ends the line it is in, as it does at a prompt;
# one that lives on, as an editor does, is none of our business.
case $__trl_y in ?*) trap 'case ${__trl_b:+$?} in 130|131) __trl_i=$?; { ${__trl_abort?}; } 2>/dev/null;; esac' INT QUIT;; esac

# Forks a copy of this shell that sleeps. A subshell forgets traps, so they are
# written down first. The copy is the last part of a pipeline, not a background
# job: dash makes background jobs ignore INT and QUIT for good. The daemon kills
# the subshell around the pipeline, which leaves the copy to the daemon.
# The copy holds both ends of the pipe it sleeps on, so it sees no end of file.
__trl_t() {
case $- in *e*) __trl_e=-e;; *) __trl_e=+e;; esac
set +e
trap >|"$__trl_q"
( : | {
unset -f command printf read
case $__trl_y in ?*) trap '' INT QUIT TERM HUP;; esac # it can't leave the shell's group
IFS= read -r __trl_l </proc/self/stat
__trl_p=${__trl_l%% *}; __trl_l=${__trl_l##*) }; __trl_l=${__trl_l#? }
printf '\n%s %s %s %s\n' "$__trl_T" "$__trl_k" "$__trl_p" "${__trl_l%% *}" >|@STATUS@
IFS=' ' read -r __trl_l __trl_q __trl_T || exit 0
exec </dev/null >/dev/null 2>&1
case $__trl_y in ?*) trap - INT QUIT TERM HUP;; esac
trap - EXIT
. "$__trl_q"
@KEYS@
case $__trl_k in h) trap '__trl_h "$@"' EXIT;; esac
__trl_w= __trl_q=
set "$__trl_e"
@DOT@ "$__trl_l"
} <>"$__trl_w" )
set "$__trl_e"
}

# The shell ends: say with which status, and leave an heir that has its state.
__trl_h() {
__trl_s=${__trl_i:-$?} __trl_i=
unset -f command printf read kill
printf '\n%s x %s\n' "$__trl_T" "$__trl_s" >|@STATUS@
__trl_k=h
case $__trl_w in ?*) __trl_t "$@";; esac
}
trap '__trl_h "$@"' EXIT
