# Sourced in place of a command whose cwd could not be entered after all.
echo 'trl: the directory given as cwd cannot be entered' >&2
return 1
