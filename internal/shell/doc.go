// Package shell drives one long-lived shell: a command goes in, its exit
// status comes out, and the shell with its state is there for the next one,
// whatever the command did.
//
// The driver never touches the command's output and puts no marker into it.
// Everything it says to the shell and hears from it goes over private pipes
// that are opened by path, one line at a time, so that no descriptor of the
// driver is open while user code runs:
//
//   - The control pipe is the shell's script. The shell executes it line by
//     line and waits in read(2) between commands.
//   - The text of a command is in a memfd that the shell sources with fresh
//     stdin, stdout and stderr.
//   - One status pipe for the whole daemon takes the reports. Each line carries
//     the shell's token and the command's number.
//
// A command that ends its shell (exit, exec, set -e, kill -9 $$) does not end
// the session: an heir, forked by the shell's EXIT hook, has the state as of
// the exit; a standby, forked while the shell was idle, has the state as of an
// earlier command. docs/shell-driver.md tells the whole story and its limits.
package shell
