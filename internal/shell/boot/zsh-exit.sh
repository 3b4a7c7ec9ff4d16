# Sourced in zsh after an `exit` was turned into an abort: if the user has an
# EXIT trap of their own it must fire, so the shell really exits. The traps can
# only be read by printing them; the kit takes them without a fork.
\builtin \trap >|$__trl_q
IFS= \builtin \read -rd '' __trl_m <$__trl_q || ((1)) # it ends with the file
[[ $__trl_m == *' EXIT'* && $__trl_m != *'__trl_k=h'* ]] && \builtin \exit $__trl_x
