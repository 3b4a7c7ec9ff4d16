// Package vm runs tests in virtual machines, with kernels and cgroups that this
// machine does not have.
//
// Run compiles the tests of a package, boots a guest with them, and reports their
// results as those of one test. A guest has real cgroups v2 with all controllers, the
// shells of this machine, busybox for everything else, a user without rights, and
// the binary of this tree; it has no network and no disk. It runs on any machine
// with QEMU, because QEMU emulates the processor; this is 10 to 20 times slower than
// a real one, so tests in a guest compare times only with times in the same guest.
//
// QEMU and the kernels are in the directory that TRL_VM names; `.ci/run vm` downloads
// them. Without them the test is skipped, and under CI it fails (see trltest.Need).
package vm
