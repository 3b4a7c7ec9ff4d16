# Sourced in dash and ash to fork a copy of the shell that sleeps: a standby, or an
# exit copy if the shell ends. @STATUS@ is the path of the daemon's status pipe; __trl_h
# has that of this text. A backslash keeps aliases of the user out.
case $__trl_k in h)
__trl_s=${__trl_i:-$__trl_s} __trl_i=
\unset -f command printf read kill
\printf '\n%s x %s\n' "$__trl_T" "$__trl_s" >|@STATUS@
esac

# A subshell forgets traps, so they are written down first. The copy is the last
# part of a pipeline, not a background job: dash makes background jobs ignore INT
# and QUIT for good. The daemon kills the subshell around the pipeline, which
# leaves the copy to the daemon.
# The copy holds both ends of the pipe it sleeps on, so it sees no end of file.
case $__trl_w in ?*)
case $- in *e*) __trl_e=-e;; *) __trl_e=+e;; esac
\set +e
\trap >|"$__trl_q"
( \: | {
\unset -f command printf read
case $__trl_y in ?*) \trap '' INT QUIT TERM HUP;; esac # it can't leave the shell's group
IFS= \read -r __trl_l </proc/self/stat
__trl_p=${__trl_l%% *}; __trl_l=${__trl_l##*) }; __trl_l=${__trl_l#? }
\printf '\n%s %s %s %s\n' "$__trl_T" "$__trl_k" "$__trl_p" "${__trl_l%% *}" >|@STATUS@
IFS=' ' \read -r __trl_l __trl_q __trl_T || \exit 0
\exec </dev/null >/dev/null 2>&1
case $__trl_y in ?*) \trap - INT QUIT TERM HUP;; esac
\trap - EXIT
\. "$__trl_q"
@KEYS@
case $__trl_k in h) \trap '__trl_s=$? __trl_k=h __trl_b=; \. "$__trl_h"' EXIT;; esac
__trl_w= __trl_q= __trl_a= __trl_b=
\set "$__trl_e"
@DOT@ "$__trl_l"
} <>"$__trl_w" )
\set "$__trl_e"
esac
