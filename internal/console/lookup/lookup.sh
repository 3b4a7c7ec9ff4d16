# Lists what a word can become, for the prompt of `trl shell`, which puts the kind (file
# or command) and the word into the script. Names of files end with a NUL, names of
# commands with a line break; a directory comes a second time, with a slash.
#
# It runs in the session's own shell, so that it sees its directory, PATH, functions and
# aliases. The subshell keeps the session as it is: options, variables and $?.
(
	_trl_status=$? _trl_flags=$-
	_trl_kind=@KIND@ _trl_word=@WORD@
	_trl_files() {
		case $_trl_word in
		"~/"*) _trl_word=$HOME/${_trl_word#"~/"} ;;
		esac
		set -- "$_trl_word"*
		[ -e "$1" ] || [ -L "$1" ] || return 0
		printf '%s\0' "$@"
		set -- "$_trl_word"*/
		[ ! -d "$1" ] || printf '%s\0' "$@"
	}
	_trl_commands() {
		if [ -n "${BASH_VERSION-}" ]; then
			compgen -c -- "$_trl_word"
			return
		fi
		alias | while IFS= read -r _trl_line; do
			_trl_line=${_trl_line#alias }
			case $_trl_line in
			"$_trl_word"*=*) printf '%s\n' "${_trl_line%%=*}" ;;
			esac
		done
		if [ -n "${KSH_VERSION-}" ]; then
			typeset +f
		fi
		IFS=:
		set -f
		set -- $PATH
		set +f
		for _trl_dir; do
			for _trl_file in "${_trl_dir:-.}/$_trl_word"*; do
				[ ! -f "$_trl_file" ] || [ ! -x "$_trl_file" ] || printf '%s\n' "${_trl_file##*/}"
			done
		done
	}
	_trl_list() {
		if [ "$_trl_kind" = file ]; then
			_trl_files
		else
			_trl_commands
		fi
	}
	if [ -n "${ZSH_VERSION-}" ]; then
		[ "$_trl_kind" = file ] || eval '_trl_list() { print -rl -- ${(k)commands} ${(k)functions} ${(k)aliases} ${(k)builtins} ${(k)reswords}; }'
		[ "$_trl_kind" != file ] || emulate -R sh
	elif [ -n "${BASH_VERSION-}" ]; then
		shopt -u failglob nullglob nocaseglob
	fi
	set +e +f +u +x
	if [ -t 1 ]; then
		# A string that terminals ignore: the session's screen stays as it is.
		printf '\033_trl;'
		_trl_list | od -An -v -tx1
		printf '\033\\'
	else
		_trl_list
	fi
	case $_trl_flags in
	*e*) exit 0 ;; # otherwise the status would end the session's shell
	esac
	exit "$_trl_status"
) 2>/dev/null
