package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/daemon"
	"github.com/terminal-runtime/trl/internal/printable"
)

// logPollInterval is how often a followed log is read: often enough for a person.
const logPollInterval = 200 * time.Millisecond

// printDaemonLog prints the log of the daemon on this machine.
func (a *app) printDaemonLog(ctx context.Context, part logPart) error {
	if a.daemonAddress() != "" {
		return usage("the log of a daemon is on its machine: run `trl logs` there; -s and -e work from here")
	}
	socket, err := a.socketPath()
	if err == nil {
		socket, err = filepath.Abs(socket)
	}
	if err != nil {
		return err
	}
	log, err := a.findLog(socket)
	if err != nil {
		return err
	}
	p := logPrinter{to: a.stdout, json: a.json, since: part.since.time}
	if err := log.printFrom(&p, part.tail); err != nil || !part.follow {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(logPollInterval):
		}
		if err := log.readNew(p.print); err != nil {
			return err
		}
	}
}

// findLog finds the log of the daemon on socket: where the holder of its sessions
// writes it or, if there is none, where the last one in the background did.
func (a *app) findLog(socket string) (*logFile, error) {
	own := a.environment.LogFile(socket)
	holder, err := daemon.FindHolder(socket)
	if err != nil {
		if _, err := os.Stat(own); err != nil {
			return nil, noLogError(socket, own, err)
		}
		return &logFile{path: own, old: own + daemon.OldLog}, nil
	}
	defer holder.Close()
	target, err := holder.LogTarget()
	if err != nil {
		return nil, localError{api.Errorf(api.CodeRuntimeUnavailable, "cannot find out where process %d logs: %w", holder.PID(), err).
			WithHint("run this as the user of the daemon")}
	}
	if info, err := os.Stat(target); err == nil && info.Mode().IsRegular() {
		log := &logFile{path: target}
		if ours, err := os.Stat(own); err == nil && os.SameFile(info, ours) { // next to any other file there may be anything
			log.old = own + daemon.OldLog
		}
		return log, nil
	}
	unit, ofUser := holder.Unit()
	return nil, logElsewhereError(socket, target, unit, ofUser)
}

// noLogError reports that no daemon runs and none has left a log.
func noLogError(socket, path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "no log of a daemon on %s: %s does not exist", socket, path).
		WithHint("`trl serve --detach` writes it there; in the foreground a daemon logs to its terminal, and under systemd to the journal: `journalctl -u trl`")}
}

// logElsewhereError reports a log that is in no file.
func logElsewhereError(socket, target, unit string, ofUser bool) error {
	where, hint := "to "+target, "look where `trl serve` was started; `trl serve --detach` logs to a file"
	switch {
	case target == os.DevNull:
		where = "nowhere: its stderr is " + os.DevNull
	case strings.HasPrefix(target, "socket:") && unit != "":
		where, hint = "to the journal", "run `journalctl -u "+unit+"`"
		if ofUser {
			hint = "run `journalctl --user -u " + unit + "`"
		}
	case strings.HasPrefix(target, "/dev/"):
		where = "to the terminal " + target
	case strings.HasPrefix(target, "pipe:"), strings.HasPrefix(target, "socket:"):
		where = "to the process that started it"
	}
	return localError{api.Errorf(api.CodeRuntimeUnavailable, "the daemon on %s logs %s", socket, where).WithHint("%s", hint)}
}

// logFile reads the lines of a daemon's log. The daemon bounds the file: it copies
// it to old and begins anew.
type logFile struct {
	path string
	old  string // "" if there is none
	next int64  // what was read of path
}

// printFrom prints what the log has now, or with tail the last lines of that.
func (l *logFile) printFrom(p *logPrinter, tail countFlag) error {
	take, lines := p.print, []string{}
	if tail.given {
		take = func(line string) error {
			if lines = append(lines, line); len(lines) > tail.value {
				lines = lines[1:]
			}
			return nil
		}
	}
	if l.old != "" {
		if _, err := readLines(l.old, 0, take); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var err error
	if l.next, err = readLines(l.path, 0, take); err != nil {
		return err
	}
	for _, line := range lines {
		if err := p.print(line); err != nil {
			return err
		}
	}
	return nil
}

// readNew calls fn for each line since the last call.
func (l *logFile) readNew(fn func(line string) error) error {
	info, err := os.Stat(l.path)
	if err != nil {
		return err
	}
	if info.Size() < l.next { // begun anew; what we have not seen was copied
		if l.old != "" {
			if _, err := readLines(l.old, l.next, fn); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		l.next = 0
	}
	l.next, err = readLines(l.path, l.next, fn)
	return err
}

// readLines calls fn for each whole line of a file from an offset on, and returns
// the offset that follows the last.
func readLines(path string, from int64, fn func(line string) error) (next int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return from, err
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return from, err
	}
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return from, nil
		}
		if err != nil {
			return from, err
		}
		from += int64(len(line))
		if err := fn(strings.TrimSuffix(line, "\n")); err != nil {
			return from, err
		}
	}
}

// logPrinter prints the lines of a daemon's log: for people, or as JSON.
type logPrinter struct {
	to    io.Writer
	json  bool
	since time.Time
	at    time.Time // of the last record: lines without a time belong to it
}

func (p *logPrinter) print(line string) error {
	record, at := parseRecord(line)
	if !at.IsZero() {
		p.at = at
	}
	if p.at.Before(p.since) {
		return nil
	}
	text := visible(line)
	switch {
	case p.json && record == nil:
		raw, err := json.Marshal(map[string]string{"msg": line})
		if err != nil {
			return err
		}
		text = string(printable.JSON(raw))
	case p.json:
		text = string(printable.JSON([]byte(line)))
	case record != nil:
		text = recordText(record)
	}
	if _, err := fmt.Fprintln(p.to, text); err != nil {
		return &writeError{err}
	}
	return nil
}

// attribute is a key of a log record and its value, as JSON.
type attribute struct {
	key   string
	value json.RawMessage
}

// text returns the value for people.
func (a attribute) text() string {
	var s string
	if json.Unmarshal(a.value, &s) == nil {
		return s
	}
	return string(a.value)
}

// parseRecord returns the attributes of a line of the log in their order, nil if it
// is no JSON, and its time, which a record in the format text has too.
func parseRecord(line string) (record []attribute, at time.Time) {
	if rest, ok := strings.CutPrefix(line, "time="); ok {
		word, _, _ := strings.Cut(rest, " ")
		at, _ = time.Parse(time.RFC3339, word) // without a time it belongs to the record before
		return nil, at
	}
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) {
		return nil, time.Time{}
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(line)))
	_, _ = decoder.Token() // the brace
	for decoder.More() {
		var a attribute
		key, err := decoder.Token()
		if err == nil {
			err = decoder.Decode(&a.value)
		}
		if err != nil {
			return nil, time.Time{}
		}
		a.key, _ = key.(string)
		if a.key == "time" {
			at, _ = time.Parse(time.RFC3339, a.text())
		}
		record = append(record, a)
	}
	return record, at
}

// recordText returns a record as one line for people: time, level and message, then
// the attributes.
func recordText(record []attribute) string {
	var at, level, message string
	var rest strings.Builder
	for _, a := range record {
		switch a.key {
		case "time":
			at = visible(a.text())
			if t, err := time.Parse(time.RFC3339, a.text()); err == nil {
				at = t.Local().Format(timestampLayout)
			}
		case "level":
			level = visible(a.text())
		case "msg":
			message = visible(a.text())
		default:
			rest.WriteString(" " + visible(a.key) + "=" + printable.Word(a.text()))
		}
	}
	return fmt.Sprintf("%s %-5s %s%s", at, level, message, rest.String())
}
