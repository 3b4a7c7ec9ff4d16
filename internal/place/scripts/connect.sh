# shellcheck shell=sh disable=SC2154 # variables of common.sh
# Connects to the place's daemon: finds the program, starts the daemon, and becomes
# the relay. Arguments after the common ones: the wanted digest, "" or - if it is the
# first line of standard input, serve.sh or "" if the caller starts the daemon, flags
# of serve.

digest=$1
serve=$2
shift 2
[ "$digest" != - ] || read -r digest
have=
if each_base found; then
  read -r have 2>/dev/null <"$dir/digest"
fi
if [ -z "$have" ] || [ "$have" != "${digest:-$have}" ]; then
  packed=plain
  command -v gzip >/dev/null 2>&1 && packed=gzip
  echo "trl-place need $(uname -m 2>/dev/null) $(uname -s 2>/dev/null) $packed"
  exit 79
fi
if ! held; then
  echo "trl-place start $dir"
  [ -z "$serve" ] || sh -c "$serve" sh "$dir" be-launcher "$@"
fi
exec "$dir/trl" connect --wait --socket "$dir/s.sock"
