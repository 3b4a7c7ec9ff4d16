package vt

import "slices"

// Widths are those of xterm.js as it comes, which are those of Unicode 6: a
// screen here and a screen there then never disagree about a column. An emoji
// is as wide as a letter in them, unless it is in one of the ranges of wide
// scripts. The table is made by the oracle (oracle/oracle.mjs), and a test
// compares the two.
//
//go:generate sh -c "cd oracle && npm ci && node oracle.mjs widths > ../width_table.go"

type widthRange struct {
	first, last rune
	width       uint8
}

// runeWidth is the number of columns that a printable character takes: 0 for
// those that join the one before them.
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

// Columns is how many columns of a screen a character takes: none if it joins
// the one before it.
func Columns(r rune) int { return runeWidth(r) }
