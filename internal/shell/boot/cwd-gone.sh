# Sourced in place of a command whose cwd could not be entered after all.
# __trl_u is its stderr.
echo 'trl: the directory given as cwd cannot be entered' >|"$__trl_u"
return 1
