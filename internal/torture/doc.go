// Package torture runs sessions in real places and does to them what happens there:
// the commands of the conformance table in containers and on other machines, and the
// loss of everything between a client and its session. The package contains only
// tests.
package torture
