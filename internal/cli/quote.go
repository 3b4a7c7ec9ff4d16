package cli

import "strings"

// commandText makes the text for the shell out of the words on the command
// line. One word is text already: pipes, variables and all. Several are a
// command with its arguments, each of which arrives as it was given.
func commandText(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return quoteAll(words)
}

// quoteAll makes a line of words that the shell reads back as they are.
func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// plain are the characters that mean nothing to any shell, wherever they are
// in a word.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:@,"

// quote makes a word that every POSIX shell, and zsh, reads back as s. A word
// that needs no quotes has none.
func quote(s string) string {
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
