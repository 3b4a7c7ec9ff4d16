# shellcheck shell=sh disable=SC2154 # variables of common.sh
# Prints the end of the log of a daemon that did not start.

each_base found && tail -n 5 "$dir/log"
