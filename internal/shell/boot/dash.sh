# The driver's part inside dash. Read once, when the shell starts.
# @COPY@ is the path of the text of dash-copy.sh. All names begin with __trl_.

# Gives $? the value it had for the user.
__trl_r() { return "$1"; }

# Soft abort: inside a command (__trl_b is set) the failing expansion unwinds to
# the dot that runs the command, which survives because `command` runs it. One that
# has not begun yet finds __trl_a. __trl_v is the status of what it ran last, and 1000.
trap 'case ${__trl_b:+x} in x) __trl_v=${__trl_v:-$(($?+1000))}; { ${__trl_abort?}; } 2>/dev/null;; *) __trl_a=1;; esac' 16

# On a terminal (__trl_y is its path) the keys for INT and QUIT signal the shell
# too. A command that dies of one ends the line it is in, as it does at a prompt;
# one that lives on, as an editor does, is none of our business.
case $__trl_y in ?*) trap 'case ${__trl_b:+$?} in 130|131) __trl_i=$?; { ${__trl_abort?}; } 2>/dev/null;; esac' INT QUIT;; esac

# Forks a standby.
__trl_h=@COPY@
__trl_t() { \. "$__trl_h"; }

# The shell ends: say with which status, and leave an exit copy with its state.
# No function does it: the copy would stay inside, and dash calls functions no
# deeper than 1000. It is no longer inside a command: an abort would end the trap.
trap '__trl_s=$? __trl_k=h __trl_b=; \. "$__trl_h"' EXIT
