// Package exec runs one command: it owns the command's pipes or its part of a
// terminal, its output in a journal, its input, its timeouts and its result, and
// persists what a later process needs to go on with it.
//
// An Exec knows neither its session nor the pool. Its owner gives it a number, lets
// it begin, runs it in a shell or as a process, and drops it when its result is no
// longer retained. What execs share is in Env.
//
// Files, from top to bottom; a file refers only to those below it:
//
//	format2_linux.go      states of format 2
//	restore_linux.go      execs of an earlier process
//	run_linux.go          running, timeouts, how a command ended
//	stream_linux.go       following the output
//	output_linux.go       reading the output, results with excerpts
//	times_linux.go        output with times, sizes of the terminal
//	chunks.go             journal chunks as api chunks
//	sendinput_linux.go    input, once for each key
//	files_linux.go        stdin, stdout and stderr
//	lifecycle_linux.go    from queued to done
//	limits_linux.go       what a command used in a session with limits
//	persist_linux.go      writing the state to the ledger
//	exec_linux.go         Exec, Spec
//	input_linux.go        stdin, InputRequest
//	inputbuffer_linux.go  input that the pipe has not taken yet
//	outputpump_linux.go   from a pipe into the journal
//	env_linux.go          Env, Config, Ledger
//	outputpipe_linux.go   reusable pipes
//	state_linux.go        State, InputState
package exec
