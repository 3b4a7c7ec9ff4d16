# shellcheck shell=sh disable=SC2154 # variables of common.sh
# Delivers the program, which comes on standard input. Arguments after the common
# ones: its digest, its size in bytes, gzip or plain.

digest=$1
size=$2
packed=$3
umask 077

# deny refuses the program once all of it has come: what delivers it may take a broken
# pipe for the reason.
deny() {
  cat >/dev/null 2>&1
  refuse "$@"
}

[ -r /proc/self/stat ] || deny no_proc "/proc is not mounted"
problem=
shell=$(command -v sh)
case $shell in
/*) ;;
*) shell=/bin/sh ;; # a busybox that is its own sh
esac

# usable makes the place's directory in base $1 and reports whether programs can run
# in it: whether a mount is noexec can only be found out by trying.
usable() {
  dir=$1/$name
  [ "${#dir}" -le 90 ] || return # a socket's path has at most 107 bytes
  if [ ! -d "$1" ]; then # of the bases only ~/.cache is made
    [ "${1##*/}" = .cache ] && mkdir "$1" 2>/dev/null || return
    : >"$1/.trl-base"
  fi
  made=
  if [ ! -e "$dir" ] && mkdir "$dir" 2>/dev/null; then made=1; fi
  if mine "$dir" && fits "$dir"; then
    test=$dir/test.$$
    if echo "#!$shell" >"$test" 2>/dev/null; then
      chmod 700 "$test"
      "$test" 2>/dev/null && rm -f "$test" && return
      problem=${problem:-"noexec programs can not run in $1"}
    else
      problem="no_space can not write to $1"
    fi
    rm -f "$test"
  fi
  [ -z "$made" ] || rm -rf "$dir"
  drop_base "$1"
  return 1
}

# fits reports whether the file system of $1 has room for the program.
fits() {
  # shellcheck disable=SC2046 # words
  set -- $(df -Pk "$1" 2>/dev/null | sed -n '2p' 2>/dev/null)
  case ${4:-} in
  '' | *[!0-9]*) return 0 ;; # no df, or not this one
  esac
  [ "$4" -gt $((size / 1024 + 1024)) ] && return
  problem="no_space ${6:-a file system} has $4 KiB left for a program of $((size / 1024)) KiB"
  return 1
}

# An earlier delivery decides the directory, so that all find the same one.
if ! each_base found && ! each_base usable; then
  # shellcheck disable=SC2086 # words
  deny ${problem:-noexec no directory can be written to}
fi
had=
[ ! -e "$dir/digest" ] || read -r had <"$dir/digest"
if [ "$had" = "$digest" ]; then # another call has delivered it meanwhile
  cat >/dev/null
else
  new=$dir/new.$$
  log=$dir/log.$$
  # clean removes what this delivery leaves, and the directory if it holds no program.
  clean() {
    rm -f "$new" "$log"
    [ ! -e "$dir/trl" ] || return 0
    rmdir "$dir" 2>/dev/null
    drop_base "${dir%/*}"
  }
  trap clean EXIT
  if [ "$packed" = gzip ]; then gzip -dc; else cat; fi >"$new" 2>"$log"
  if [ "$(wc -c <"$new")" -ne "$size" ]; then
    read -r why <"$log"
    case $why in
    *space* | *quota*) deny no_space "$why" ;;
    esac
    deny unknown "the program arrived incomplete${why:+: $why}"
  fi
  chmod 700 "$new"
  if ! "$new" version >/dev/null 2>"$log"; then
    read -r why <"$log"
    case $why in
    *"not found"* | *"No such file"*) why="it needs libraries that the place lacks: $why" ;;
    esac
    deny no_arch "the delivered program does not run: ${why:-it said nothing}"
  fi
  mv -f "$new" "$dir/trl" || deny unknown "can not write to $dir"
  # The daemon of an earlier program goes on if it can't be replaced.
  if held; then "$dir/trl" upgrade --socket "$dir/s.sock" >/dev/null 2>&1; fi
  # shellcheck disable=SC2015 # either failure is one
  echo "$digest" >"$new" && mv -f "$new" "$dir/digest" || deny no_space "can not write to $dir"
fi
echo "trl-place delivered $dir"
