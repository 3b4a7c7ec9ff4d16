# shellcheck shell=sh disable=SC3067 # -O: dash, bash, busybox, mksh and zsh have it
# Functions of the other scripts, which follow this one in one text. The first
# argument is the name of the place's directory. Scripts speak to the daemon in lines
# that begin with trl-place, on standard output.

name=$1
shift

# each_base runs "$@ BASE" for the directories that may hold the place's, until one
# succeeds.
each_base() {
  if [ -n "${XDG_CACHE_HOME:-}" ]; then "$@" "$XDG_CACHE_HOME" && return; fi
  if [ -n "${HOME:-}" ]; then "$@" "${HOME%/}/.cache" && return; fi
  for base in /run /var/tmp /tmp /dev/shm; do
    "$@" "$base" && return
  done
  return 1
}

# mine reports whether $1 is a directory of this user and not a link to one: another
# user can make a directory of any name in /tmp.
mine() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }

# drop_base removes base $1 if a delivery made it and nothing is left in it.
drop_base() {
  [ -e "$1/.trl-base" ] || return 0
  for other in "$1"/.trl-place-*; do
    [ ! -e "$other" ] || return 0
  done
  rm -f "$1/.trl-base"
  rmdir "$1" 2>/dev/null
}

# found sets dir to the place's directory in base $1, if a program was delivered there.
found() {
  dir=$1/$name
  mine "$dir" && [ -x "$dir/trl" ]
}

# held reports whether the holder that the lock in $dir names is alive. It starts no
# process. The lock says "trl-holder PID-NUMBER-NAMESPACE START …", START in
# nanoseconds after boot. After the name of a process the kernel says its state, Z if
# it waits to be reaped, and as the 20th word its start in hundredths of a second.
held() {
  [ -S "$dir/s.sock" ] && read -r kind holder start _ 2>/dev/null <"$dir/s.sock.lock" && [ "$kind" = trl-holder ] || return
  read -r stat 2>/dev/null <"/proc/${holder%%-*}/stat" || return
  # shellcheck disable=SC2086 # words
  set -- ${stat##*) }
  [ "$1" != Z ] && [ "${20}0000000" = "$start" ]
}

# refuse REASON WORDS says why the place can't be used, and ends the script.
refuse() {
  echo "trl-place refuse $*"
  exit 79
}
