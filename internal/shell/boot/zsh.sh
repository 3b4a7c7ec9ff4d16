# The driver's part inside zsh. Read once, when the shell starts.
# @STATUS@ is the path of the daemon's status pipe, @COPY@ that of the text of
# zsh-copy.sh. All names begin with __trl_.

# Gives $? the value it had for the user.
__trl_r() { return "$1"; }

# Soft abort: inside a command (__trl_b is set) a trap function that returns
# non-zero interrupts whatever runs, up to the driver's `always`. One that has not
# begun yet finds __trl_a. Under `set -e` zsh would exit, without its EXIT trap: the
# next command finds __trl_E and sets that option again.
TRAPSTKFLT() { [[ -n $__trl_b ]] || { __trl_a=1; return 0; }; [[ ! -o errexit ]] || { __trl_E=1; \builtin \set +e; }; return 143; }

# On a terminal (see dash.sh) its keys do the same, if the command died of them.
if [[ -n $__trl_y ]]; then
TRAPINT() { local s=$?; [[ -n $__trl_b ]] && (( s == 130 || s == 131 )) && { __trl_i=$s; [[ ! -o errexit ]] || { __trl_E=1; \builtin \set +e; }; return 130; }; return 0; }
functions -c TRAPINT TRAPQUIT
fi

# zsh runs an EXIT trap of a sourced file's caller too late to fork an exit copy with
# the state, so `exit` outside a subshell is turned into an abort of the command
# that remembers the status.
__trl_pid=$$ __trl_z=$ZSH_SUBSHELL
exit() { if (( ZSH_SUBSHELL > __trl_z )); then builtin exit "$@"; fi; __trl_x=${1:-$?}; builtin kill -STKFLT $__trl_pid; while ((1)); do ((1)); done; }
trap '__trl_s=$? __trl_b=; builtin printf "\n%s x %s\n" $__trl_T $__trl_s >|@STATUS@; __trl_k=h; [[ -z $__trl_w ]] || builtin . @COPY@' EXIT
