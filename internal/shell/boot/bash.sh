# The driver's part inside bash. Read once, when the shell starts.
# @STATUS@ is the path of the daemon's status pipe. All names begin with __trl_.

# Gives $? the value it had for the user.
__trl_r() { return "$1"; }

# Soft abort: a DEBUG trap that makes every sourced file and function above the
# driver's depth return. The driver takes it away again after its report. __trl_v is
# the status of what the command ran last, and 1000. A shell that exits (__trl_k is h)
# is not aborted any more: that would end its EXIT trap.
__trl_d=${#BASH_SOURCE[@]}
((__trl_d--))
__trl_k=
__trl_A='[[ $__trl_k != h ]] && ((${#BASH_SOURCE[@]}>__trl_d)) && return 2 || ((1))'
trap '__trl_v=${__trl_v:-$(($?+1000))}; if [[ $__trl_k != h ]]; then shopt -s extdebug; set -T; trap "$__trl_A" DEBUG; fi' 16

# On a terminal (see dash.sh) its keys do the same, if the command died of them.
[[ -z $__trl_y ]] || trap '__trl_j=$?; case $__trl_j in 130|131) if ((${#BASH_SOURCE[@]}>__trl_d)); then __trl_i=$__trl_j; shopt -s extdebug; set -T; trap "$__trl_A" DEBUG; fi;; esac' INT QUIT

# Forks a copy of this shell that sleeps. A subshell forgets traps, so they are
# written down first. Job control is on for the moment of the fork, so that the
# copy is in a process group of its own and ignores no signal.
# The copy holds both ends of the pipe it sleeps on, so it sees no end of file.
# It is opened by exec, because bash would keep what a redirection of the braces
# hides open for ever.
# The loops are nested so that a stray `break 2` of a user does not end them.
__trl_t() {
case $- in *e*) __trl_e=-e;; *) __trl_e=+e;; esac
builtin set +e
builtin trap -p >|"$__trl_q"
( builtin set -m
{ builtin set +m
builtin unset -f command
command exec <>"$__trl_w" >/dev/null 2>&1
case $__trl_k in h)
# The command's output must not stay open in its exit copy; bash has saved
# descriptors of it where redirections were nested.
for ((__trl_p=3; __trl_p<64; __trl_p++)); do
if [[ /proc/self/fd/$__trl_p -ef $__trl_o || /proc/self/fd/$__trl_p -ef $__trl_u ]]; then builtin eval "command exec $__trl_p>&-"; fi
done
esac
builtin printf '\n%s %s %s 0\n' "$__trl_T" "$__trl_k" "$BASHPID" >|@STATUS@
IFS=' ' builtin read -r __trl_l __trl_q __trl_T || builtin exit 0
command exec </dev/null
builtin trap - EXIT
__trl_d=${#BASH_SOURCE[@]}
builtin . "$__trl_q"
case $__trl_k in h) builtin trap '__trl_s=$? __trl_k=h; __trl_h "$@"' EXIT;; esac
__trl_w= __trl_q= __trl_o= __trl_u= __trl_k=
builtin set "$__trl_e"
while ((1)); do while ((1)); do while IFS= builtin read -r __trl_c <"$__trl_l"; do builtin eval "$__trl_c"; done; done; done
} & )
builtin set "$__trl_e"
}

# The shell ends: say with which status, and leave an exit copy with its state, but
# without what an abort has set.
__trl_h() {
case ${__trl_v-}${__trl_i-} in ?*) __trl_v= __trl_i=; builtin trap - DEBUG; builtin shopt -u extdebug; builtin set +T;; esac
builtin printf '\n%s x %s\n' "$__trl_T" "$__trl_s" >|@STATUS@
case $__trl_w in ?*) __trl_t "$@";; esac
}
trap '__trl_s=$? __trl_k=h; __trl_h "$@"' EXIT
BASH_ARGV0=bash
