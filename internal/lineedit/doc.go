// Package lineedit edits the command line of a prompt: one or several lines of
// text, with history, incremental search and lists of completions.
//
// It neither reads nor writes a terminal. Its caller decodes typed bytes with
// Decode, passes the keys to an Editor, and writes what Paint returns. So bytes
// behind the end of a line stay with the caller, who may have another reader for
// them, and a test needs no terminal.
package lineedit
