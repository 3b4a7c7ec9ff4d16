package api

import "strconv"

// Succeeded reports whether the command ended by itself with exit code 0.
func (r *ExecResult) Succeeded() bool {
	return r.ExitCode != nil && *r.ExitCode == 0 && (r.Outcome == OutcomeExited || r.Outcome == OutcomeShellExited)
}

// Running reports whether the command still runs or is queued.
func (r *ExecResult) Running() bool { return r.State != ExecExited }

// Code returns the exit code, or -1 if there is none, as while the command
// runs.
func (r *ExecResult) Code() int {
	if r.ExitCode == nil {
		return -1
	}
	return *r.ExitCode
}

// Status returns how the command ended in a few words, such as "exit 2" or
// "timed_out, exit 143".
func (r *ExecResult) Status() string {
	switch {
	case r.ExitCode == nil:
		return string(r.Outcome)
	case r.Outcome == OutcomeExited:
		return "exit " + strconv.Itoa(*r.ExitCode)
	}
	return string(r.Outcome) + ", exit " + strconv.Itoa(*r.ExitCode)
}
