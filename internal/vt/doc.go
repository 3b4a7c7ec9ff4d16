// Package vt turns the bytes that programs write to a terminal into the screen
// that a person would see, without a terminal.
//
// A Screen is a terminal emulator: it takes output (Write), gives what a real
// terminal would send back (Answers, Key, Paste), and can be read at any time
// as text (Text), as data (Cells), or as bytes that restore it elsewhere
// (ANSI). PlainText is for output that never had a terminal.
//
// It behaves as xterm.js 6 does, cell by cell, which a test holds it to over a
// corpus of recordings; where it differs on purpose, the test lists the case
// and the authority followed instead. So a screen kept here and one in a
// browser show the same.
//
// Ownership: a Screen belongs to one goroutine at a time and starts none. What
// its methods return is the caller's.
//
// Bounds: a screen of r rows and c columns with a scrollback of n lines takes
// at most 16·c·(2·r+n) bytes and half a megabyte for links and combined
// characters; nothing that a program writes makes it grow beyond, and nothing
// makes Write fail or panic. The alternate screen and the scrollback take
// memory when they are first used.
//
// Trust: output is untrusted. Answers consist of numbers and fixed words; the
// clipboard (OSC 52) is ignored, and titles are never reported back.
//
// Deliberately not done: breaking lines anew on Resize; pictures (sixel, kitty,
// iTerm2); the kitty keyboard protocol and modifyOtherKeys; double-width and
// double-height lines; national character sets other than the British; single
// shifts; VT52 mode; 132 columns by DECCOLM; blinking, or anything else that
// needs a clock; grapheme clusters by newer Unicode, as xterm.js comes.
package vt
