# Sourced in zsh to fork a copy of the shell that sleeps (see dash-copy.sh).
[[ -o errexit ]] && __trl_e=-e || __trl_e=+e
\builtin \set +e
\builtin \trap >|$__trl_q
( {
\builtin \trap - INT QUIT EXIT
[[ -z $__trl_y ]] || \builtin \trap '' INT QUIT TERM HUP
IFS= \builtin \read -r __trl_l </proc/self/stat
__trl_p=${__trl_l%% *}
\builtin \printf '\n%s %s %s 0\n' $__trl_T $__trl_k $__trl_p >|@STATUS@
IFS=' ' \builtin \read -r __trl_l __trl_q __trl_T || \builtin \exit 0
\builtin \exec </dev/null >/dev/null 2>&1
[[ -z $__trl_y ]] || \builtin \trap - INT QUIT TERM HUP
__trl_pid=$__trl_p __trl_z=$ZSH_SUBSHELL
\builtin \. $__trl_q
TRAPSTKFLT() { [[ -n $__trl_b ]] || { __trl_a=1; return 0; }; [[ ! -o errexit ]] || { __trl_E=1; \builtin \set +e; }; return 143; }
__trl_w= __trl_q= __trl_a= __trl_b=
\builtin \set $__trl_e
while ((1)); do while IFS= \builtin \read -r __trl_c <$__trl_l; do \builtin \eval $__trl_c; done; done
} <>$__trl_w & )
\builtin \set $__trl_e
