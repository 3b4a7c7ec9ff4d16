// Package limits tests the guarantees about limits, as package must does for the
// rest: with the real binary, in virtual machines with real cgroups v2. A limit is
// exact, a session survives its limits, and sessions with limits leave the machine to
// the others.
//
// The tests that begin with TestGuest run in a guest, the others boot one.
package limits
