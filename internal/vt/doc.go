// Package vt turns the bytes that programs write to a terminal into the screen
// that a person would see, without a terminal.
//
// A Screen is a terminal emulator: it takes output (Write), returns what a real
// terminal would send back (Answers, Key, Paste), and can be read at any time
// as text (Text), as data (Cells), or as bytes that restore it elsewhere
// (ANSI). PlainText is for output that never had a terminal.
//
// It behaves like xterm.js 6, cell by cell, which a test verifies with a corpus
// of recordings; where it differs on purpose, the test lists the case and the
// authority followed instead. So a screen kept here and one in a browser show
// the same.
//
// Ownership: a Screen is not safe for concurrent use and starts no goroutine.
// The caller owns what its methods return.
//
// Bounds: a screen of r rows and c columns with a scrollback of n lines takes
// at most 16·c·(2·r+n) bytes and half a megabyte for links and combined
// characters; no output makes it grow beyond that, and none makes Write fail or
// panic. The alternate screen and the scrollback are allocated when they are
// first used.
//
// Trust: output is untrusted. Answers consist of numbers and fixed words; the
// clipboard (OSC 52) is ignored, and titles are never reported back.
//
// Deliberately not supported: rewrapping lines on Resize; images (sixel, kitty,
// iTerm2); the kitty keyboard protocol and modifyOtherKeys; double-width and
// double-height lines; national character sets other than the British; single
// shifts; VT52 mode; 132 columns by DECCOLM; blinking, or anything else that
// needs a clock; grapheme clusters of newer Unicode, as in default xterm.js.
package vt
