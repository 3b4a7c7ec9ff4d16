package main_test

import "testing"

// Help is wrapped to a narrow terminal: no line is continued by the terminal
// itself.
func TestHelpOnANarrowTerminal(t *testing.T) {
	alice := newTerminalRig(t).window("alice", 60, 60)
	alice.line("clear; trl session destroy --help")
	alice.waitFor(`(?m)^Destroy sessions and kill every process in them\. It returns$\nonce they are gone\.$`)
	alice.waitFor(`(?m)^  trl session destroy \[flags\] SESSION\.\.\.$`)
	alice.waitFor(`(?m)^Global flags:$`)
}

// `trl mcp` at a terminal says what it is, instead of waiting silently, and
// answers what is not JSON.
func TestMCPAtATerminal(t *testing.T) {
	alice := newTerminalRig(t).window("alice", 24, 100)
	alice.line("clear; trl mcp --no-start")
	alice.waitFor("^trl: this serves MCP to an agent, which starts it itself")
	alice.line("hello")
	alice.waitFor(`"code":-32700`)
	alice.keys("C-c")
	alice.line("echo status $?")
	alice.waitFor("^status [0-9]+$")
}
