// Package confined tests the guarantees about confined sessions, as package must does
// for the rest, with the real binary: every command that works in a plain session works
// in a confined one, programs build and install through the allow-list, and what a
// machine can't enforce is refused.
//
// TRL_LONG=1 runs the whole table in every isolation, and the tests of this project in
// a workspace.
package confined
