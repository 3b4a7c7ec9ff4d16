// Package shellsyntax reads command lines as shells do, as far as a prompt needs it:
// whether a command goes on in the next line, which word the cursor is in, and how a
// name is quoted. It does not check commands; their shell does that.
package shellsyntax
