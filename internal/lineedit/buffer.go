package lineedit

import (
	"slices"
	"unicode"
)

// buffer is a text with a cursor.
type buffer struct {
	text    []rune
	at      int    // the cursor is before this character
	deleted []rune // what was deleted last, for yank
}

func (b *buffer) set(text string) {
	b.text = []rune(text)
	b.at = len(b.text)
}

func (b *buffer) insert(text string) {
	typed := []rune(text)
	b.text = slices.Insert(b.text, b.at, typed...)
	b.at += len(typed)
}

// cut deletes the characters between two places and moves the cursor there.
func (b *buffer) cut(from, to int) {
	if from == to {
		return
	}
	b.deleted = slices.Clone(b.text[from:to])
	b.drop(from, to)
}

// drop is cut without keeping what was deleted.
func (b *buffer) drop(from, to int) {
	b.text = slices.Delete(b.text, from, to)
	b.at = from
}

// lineStart and lineEnd return where the line around a place begins and ends.
func (b *buffer) lineStart(at int) int {
	for at > 0 && b.text[at-1] != '\n' {
		at--
	}
	return at
}

func (b *buffer) lineEnd(at int) int {
	for at < len(b.text) && b.text[at] != '\n' {
		at++
	}
	return at
}

// up and down move the cursor by a line, and report whether there is one.
func (b *buffer) up() bool {
	start := b.lineStart(b.at)
	if start == 0 {
		return false
	}
	b.at = min(b.lineStart(start-1)+b.at-start, start-1)
	return true
}

func (b *buffer) down() bool {
	end := b.lineEnd(b.at)
	if end == len(b.text) {
		return false
	}
	b.at = min(end+1+b.at-b.lineStart(b.at), b.lineEnd(end+1))
	return true
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

func notBlank(r rune) bool { return !unicode.IsSpace(r) }

// left returns where the word before the cursor begins, right where the one
// behind it ends; is says what belongs to a word.
func (b *buffer) left(is func(rune) bool) int {
	at := b.at
	for at > 0 && !is(b.text[at-1]) {
		at--
	}
	for at > 0 && is(b.text[at-1]) {
		at--
	}
	return at
}

func (b *buffer) right(is func(rune) bool) int {
	at := b.at
	for at < len(b.text) && !is(b.text[at]) {
		at++
	}
	for at < len(b.text) && is(b.text[at]) {
		at++
	}
	return at
}
