// Package engines gives tests real container engines and a real SSH server:
// dockerd, podman and sshd.
//
// Main, or Enter, runs the tests of a package in their own namespaces of processes,
// mounts, network and IPC, with their own /run and accounts. So the engines are at
// their usual addresses (plain docker, podman and ssh find them), nothing outside
// can be seen or changed by them, and the kernel ends every process and mount with
// the test process, however that ends. Only empty cgroups can be left; the process
// outside removes them.
//
// Engines are started by the first test that asks for one and are shared by the
// tests of the process: a test that stops one must not run in parallel. A test that
// asks for an engine gets a running one, whatever tests before it did.
//
// A missing engine skips the test, and under CI fails it (see trltest.Need). Without
// root's rights every test that needs an engine is skipped.
// The network has only a loopback device, so images are made and not pulled.
package engines
