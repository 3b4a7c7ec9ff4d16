# The driver's part inside mksh. Read once, when the shell starts.
# @STATUS@ is the path of the daemon's status pipe. All names begin with __trl_.

# Gives $? the value it had for the user.
__trl_r() { return "$1"; }

# Soft abort: inside a command (__trl_b is set) the trap returns, which leaves one
# function or the dot that runs the command. The caller of a function then fails, and
# the ERR trap makes it return too. An error would end the shell, because it has an
# EXIT trap. An abort that comes before the command has begun sets __trl_a. __trl_v is
# the status of what the command ran last, plus 1000. Under `set -e` the status
# would make mksh begin to exit, so the option is off until __trl_E restores it. If it
# had begun already, the return keeps it, but its EXIT trap is gone.
__trl_X='__trl_s=$? __trl_b=; __trl_h "$@"'
__trl_A='case $- in *e*) __trl_E=1; \set +e;; esac; \trap >|"$__trl_q"; case $(<"$__trl_q") in *" EXIT"*) ;; *) \trap "$__trl_X" EXIT;; esac; __trl_R=1; \trap "$__trl_A" ERR; \return 143'
trap 'case ${__trl_b:+x} in x) __trl_v=${__trl_v:-$(($?+1000))}; \eval "$__trl_A";; *) __trl_a=1;; esac' 16

# On a terminal (see dash.sh) its keys do the same, if the command died of them.
case $__trl_y in ?*) trap 'case ${__trl_b:+$?} in 130|131) __trl_i=$?; \eval "$__trl_A";; esac' INT QUIT;; esac

# Forks a copy of this shell that sleeps. A subshell forgets traps, so they are
# written first, without that of an abort. mksh reports the subshell that the daemon
# kills (see dash-copy.sh), so that goes nowhere. Something follows the pipeline: else
# mksh runs its last part in the subshell itself, and waits for its own copy.
# The copy opens the control pipe for each line and redirects itself by exec, because
# it cannot close what else it inherits, and no descriptor may be above 127.
__trl_t() {
case ${__trl_E-} in ?*) __trl_E=; \set -e;; esac
case $- in *e*) __trl_e=-e;; *) __trl_e=+e;; esac
\set +e
case ${__trl_R-} in ?*) __trl_R=; \trap - ERR;; esac
\exec 2>/dev/null
\trap >|"$__trl_q"
( \: | {
\unset -f builtin print read
case $__trl_y in ?*) \trap '' INT QUIT TERM HUP;; esac # it can't leave the shell's group
IFS= \read -r __trl_l </proc/self/stat
__trl_p=${__trl_l%% *}; __trl_l=${__trl_l##*) }; __trl_l=${__trl_l#? }
\exec <>"$__trl_w"
\print "\n$__trl_T $__trl_k $__trl_p ${__trl_l%% *}" >|@STATUS@
IFS=' ' \read -r __trl_l __trl_q __trl_T || \exit 0
\exec </dev/null >/dev/null 2>&1
case $__trl_y in ?*) \trap - INT QUIT TERM HUP;; esac
\trap - EXIT
\. "$__trl_q"
case $__trl_k in h) \trap "$__trl_X" EXIT;; esac
__trl_w= __trl_q= __trl_a= __trl_b=
\set "$__trl_e"
while \:; do while IFS= \read -r __trl_c <"$__trl_l"; do \eval "$__trl_c"; done; done
}; \: )
\set "$__trl_e"
}

# The shell ends: report the status, and leave an exit copy that has its state. It is
# no longer inside a command: an abort would end the trap.
__trl_h() {
__trl_s=${__trl_i:-$__trl_s} __trl_i= __trl_k=h
\unset -f builtin print read kill
\print "\n$__trl_T x $__trl_s" >|@STATUS@
case $__trl_w in ?*) __trl_t "$@";; esac
}
trap "$__trl_X" EXIT
