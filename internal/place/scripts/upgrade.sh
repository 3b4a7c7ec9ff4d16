# shellcheck shell=sh disable=SC2154 # variables of common.sh
# Has the place's daemon replace itself by the program that was delivered.

each_base found || refuse unknown "the program that was delivered is gone"
why=$("$dir/trl" upgrade --socket "$dir/s.sock" 2>&1) || refuse refused "the daemon keeps its program: $why"
echo "trl-place upgraded"
