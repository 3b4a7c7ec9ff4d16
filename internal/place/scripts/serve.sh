# shellcheck shell=sh
# Becomes the place's daemon. Arguments: directory, launcher or "", flags of serve.
# Settings of a TRL that the user of the place has are not meant for this one.

dir=$1
launcher=$2
shift 2
case $(export -p) in
*TRL_*) # rarely: it takes two processes
  for variable in $(env 2>/dev/null | sed -n 's/^\(TRL_[A-Z0-9_]*\)=.*/\1/p' 2>/dev/null); do
    unset "$variable"
  done
  ;;
esac
# shellcheck disable=SC2086 # no word if it is empty
exec "$dir/trl" $launcher serve --config /dev/null --socket "$dir/s.sock" "$@" </dev/null >/dev/null 2>"$dir/log"
