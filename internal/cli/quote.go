package cli

import "strings"

// commandText returns the shell code for the arguments of `trl run`. A single
// argument is shell code already, with pipes, variables and all. Several are a
// program and its arguments, which are passed unchanged.
func commandText(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return quoteAll(args)
}

// quoteAll returns a line that the shell reads back as these words.
func quoteAll(args []string) string {
	quoted := make([]string, len(args))
	for i, word := range args {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// plain are the characters that no shell treats specially, wherever they are in
// a word.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:@,"

// quote returns a word that every POSIX shell, and zsh, reads back as s. It
// adds quotes only if they are needed.
func quote(s string) string {
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
