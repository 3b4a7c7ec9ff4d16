# shellcheck shell=sh disable=SC2154 # variables of common.sh
# Ends the place's daemon and removes all that was delivered.

removed() {
  dir=$1/$name
  mine "$dir" || return
  if [ -x "$dir/trl" ] && [ -e "$dir/s.sock.lock" ]; then
    why=$("$dir/trl" stop --socket "$dir/s.sock" 2>&1) || refuse unknown "the daemon does not stop: $why"
  fi
  rm -rf "$dir" || refuse unknown "can not remove $dir"
  drop_base "$1"
  return 1 # every base may have one
}
each_base removed
echo "trl-place removed"
