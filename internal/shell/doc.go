// Package shell drives long-lived shells: a command goes in, its exit status comes
// out, and the shell with its state is there for the next one, whatever the command
// did.
//
// The driver never touches the command's output and puts no marker into it. What it
// writes to a shell and what a shell reports go through private pipes that are opened
// by path, one line at a time, so that no descriptor of the driver is open while user
// code runs:
//
//   - The control pipe is the shell's script. The shell executes it line by
//     line and waits in read(2) between commands.
//   - A command is a script in a memfd, which the shell sources with its own stdin,
//     stdout and stderr.
//   - One status pipe for the whole daemon takes the reports. Each line carries
//     the shell's token and the command's number.
//
// A command that ends its shell (exit, exec, set -e, kill -9 $$) does not end
// the session: an exit copy, forked by the shell's EXIT hook, has the state as of
// the exit; a standby, forked while the shell was idle, has the state as of an
// earlier command. docs/shell-driver.md describes all of it and its limits.
//
// Files, from top to bottom; a file refers only to those below it:
//
//	format2_linux.go  states of an older format
//	adopt_linux.go    take over a shell of an earlier daemon
//	open_linux.go     start and close a shell
//	run_linux.go      run or resume a command
//	wait_linux.go     wait for a command, stop it, notice a wedged shell
//	copy_linux.go     replace a shell by a copy or a new one
//	standby_linux.go  take standbys
//	boot_linux.go     start the process of a shell
//	reports_linux.go  act on reports
//	save_linux.go     save the state of a shell
//	shell_linux.go    Shell and its command
//	control_linux.go  control pipe
//	driver_linux.go   Driver: what all shells share
//	router_linux.go   deliver reports to shells
//	ring_linux.go     reports that are not acted upon yet
//	state_linux.go    the persisted state
//	command_linux.go  Command and Result
//	stop_linux.go     how far a stop has come
//	wedge.go          when to look for a wedged shell
//	budget.go         when to take a standby
//	clock_linux.go    one clock for all commands
//	script_linux.go   scripts and descriptors of copies
//	heldfd_linux.go   descriptors that the holder keeps
//	program.go        find a shell
//	families.go       the list of families
//	family_mksh.go
//	family_zsh.go
//	family_bash.go
//	family_ash.go
//	family_dash.go
//	scope.go          env and cwd of one command
//	family.go         what a family is, and the lines made of it
//	status.go         reports as text
package shell
