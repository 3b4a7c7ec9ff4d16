// Package console lets a person use a session on their own terminal: Attach
// shows the session's terminal and types on it, Shell reads command lines and
// runs them in the session, Run runs one command. Steps waits for a key between
// the steps of a tour.
//
// All are clients like any other. The caller provides the connection, the
// terminal and the texts that other commands print too, and turns results into
// exit statuses.
//
// Files, from top to bottom; a file refers only to those below it:
//
//	attach.go          Attach: keys, notices, detaching
//	attach_follow.go   output and events of a session, across lost connections
//	attach_screen.go   painting a session's screen on the local terminal
//	run.go             Run: one command
//	shell.go           Shell: from prompt to prompt
//	shell_run.go       one command line: its output, keys and signals
//	shell_state.go     the user at the prompt, results of commands
//	shell_prompt.go    reading and editing a line
//	shell_complete.go  completing a word as the session sees it
//	steps.go           Steps: one key from step to step
//	keyboard.go        the keyboard lease, sending input
//	session.go         how a session ended, why it can't be used
//	silence.go         exiting when the daemon does not answer
//	tty.go             taking over and restoring the local terminal
//	config.go          Config, AttachConfig, ShellConfig, RunConfig, SignalError
//	key.go             names of control keys
package console
