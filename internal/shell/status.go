package shell

import "bytes"

// tokenLen is the length of a shell's token: 64 random bits in hex, so that a
// command can't guess another session's.
const tokenLen = 16

// reportKind is what a line on the status pipe reports.
type reportKind byte

const (
	reportReady      reportKind = 'r' // seq: the shell reads its control pipe
	reportDone       reportKind = 'd' // seq status: a command is over
	reportCalledExit reportKind = 'e' // seq status: a command is over that called exit, which the boot script caught
	reportExit       reportKind = 'x' // status: the shell is exiting, an exit copy may follow
	reportExitCopy   reportKind = 'h' // pid outer: a copy with the state at exit sleeps
	reportStandby    reportKind = 't' // pid outer: a copy with the state when asked sleeps
)

// report is one line of the status pipe:
//
//	TOKEN KIND NUMBER [NUMBER]
//
// A line begins and ends with a newline, so that a torn or forged line before
// it cannot become a part of it.
type report struct {
	token string
	kind  reportKind
	a, b  int
	at    uint64 // where it ends in the ring, counted over all laps
}

// operands is how many numbers follow each kind.
var operands = map[reportKind]int{reportReady: 1, reportDone: 2, reportCalledExit: 2, reportExit: 1, reportExitCopy: 2, reportStandby: 2}

// parseReport reads one line. Any process of the same user can write to the
// pipe, so anything that is not exactly a report is refused.
func parseReport(line []byte) (report, bool) {
	token, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(token) != tokenLen || len(rest) < 3 || rest[1] != ' ' {
		return report{}, false
	}
	r := report{token: string(token), kind: reportKind(rest[0])}
	want, known := operands[r.kind]
	if !known {
		return report{}, false
	}
	rest = rest[2:]
	for i, to := range []*int{&r.a, &r.b}[:want] {
		field := rest
		if i < want-1 {
			if field, rest, ok = bytes.Cut(rest, []byte(" ")); !ok {
				return report{}, false
			}
		}
		if *to, ok = parseNumber(field); !ok {
			return report{}, false
		}
	}
	return r, true
}

// parseNumber reads a non-negative decimal number that fits a pid or a
// sequence number.
func parseNumber(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 18 { // which fits any int
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
