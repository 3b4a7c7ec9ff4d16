package vt

import "slices"

// Widths are the default widths of xterm.js, which are those of Unicode 6, so
// that a screen here and a screen there never disagree about a column. In them an
// emoji is as wide as a letter, unless it is in one of the ranges of wide
// scripts. The oracle (oracle/oracle.mjs) generates the table, and a test
// compares the two.
//
//go:generate sh -c "cd oracle && npm ci && node oracle.mjs widths > ../width_table.go"

type widthRange struct {
	first, last rune
	width       uint8
}

// runeWidth returns the number of columns of a printable character: 0 for those
// that join the one before them.
func runeWidth(r rune) int {
	if r < widthTable[0].first {
		return 1
	}
	i, found := slices.BinarySearchFunc(widthTable[:], r, func(w widthRange, r rune) int {
		switch {
		case w.last < r:
			return -1
		case w.first > r:
			return 1
		}
		return 0
	})
	if !found {
		return 1
	}
	return int(widthTable[i].width)
}

// Columns returns how many columns of a screen a character takes: 0 if it joins
// the one before it.
func Columns(r rune) int { return runeWidth(r) }
