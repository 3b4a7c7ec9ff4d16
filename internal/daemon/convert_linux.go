package daemon

import (
	"errors"
	"fmt"
	"strings"

	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/ledger"
	"github.com/terminal-runtime/trl/internal/session"
	"github.com/terminal-runtime/trl/internal/shell"
	"github.com/terminal-runtime/trl/internal/state"
)

// formatKey is where the ledger says in which format its records are. A ledger of
// format 2 does not say.
const formatKey = "format"

// unreadable and a key: what is kept of a record that could not be converted.
const unreadablePrefix = "u/"

func formatRecord() []byte {
	return state.Encode(func(c *state.Coder) {
		n := format
		state.Int(c, 1, &n)
	})
}

// formatOf returns the format of records of which this is the one that says it.
func formatOf(record []byte, said bool) (n int, err error) {
	if !said {
		return 2, nil
	}
	err = state.Decode(record, func(c *state.Coder) { state.Int(c, 1, &n) })
	return n, err
}

// convertLedger makes the records of an earlier format those of this one.
func (d *daemon) convertLedger() error {
	record, said := d.ledger.Get(formatKey)
	has, err := formatOf(record, said)
	switch {
	case !said && len(d.ledger.Damage()) > 0:
		return fmt.Errorf("ledger: %w: it does not say which format it has", ledger.ErrLost)
	case err != nil:
		return fmt.Errorf("read the format of the ledger: %w", err)
	case has == format:
		return nil
	case has != 2:
		return fmt.Errorf("the ledger has format %d, and this program reads %d to %d", has, oldestFormat, format)
	}
	records := map[string][]byte{formatKey: formatRecord()}
	for key, value := range d.ledger.All() {
		converted, err := convert2(key, value)
		if err != nil {
			d.log.Error("cannot convert a record of an earlier daemon", "event", "unreadable", "record", key, "error", err)
			converted = map[string][]byte{unreadablePrefix + key: value}
		}
		for key, value := range converted {
			records[key] = value
		}
	}
	return d.ledger.Rewrite(records)
}

// convert2 returns what a record of format 2 is in this one.
func convert2(key string, value []byte) (map[string][]byte, error) {
	r := state.Positional(value)
	switch key {
	case driverKey:
		saved, err := shell.ConvertDriverState2(value)
		return map[string][]byte{key: saved}, err
	case listenKey:
		l := listenState{holder.Slot(r.Int()), holder.Slot(r.Int()), r.Text()}
		return map[string][]byte{key: state.Encode(l.fields)}, r.Err()
	case webKey:
		n := webState{holder.Slot(r.Int()), r.Text(), r.Bool()}
		return map[string][]byte{key: state.Encode(n.fields)}, r.Err()
	default:
		return session.Convert2(key, value)
	}
}

// checkLedger returns an error that names what this program could not read of a
// ledger. A record that the daemon which wrote it could not read either is no
// reason to stay with that daemon.
func checkLedger(fd int) error {
	records, damage, err := ledger.Read(fd)
	if err != nil {
		return err
	}
	record, said := records[formatKey]
	has, err := formatOf(record, said)
	if err != nil {
		return fmt.Errorf("the record of its format: %w", err)
	}
	var errs []error
	for _, d := range damage {
		errs = append(errs, errors.New(d.String()))
	}
	for key, value := range records {
		if strings.HasPrefix(key, unreadablePrefix) || key == formatKey {
			continue
		}
		converted := map[string][]byte{key: value}
		if has == 2 {
			if converted, err = convert2(key, value); err != nil {
				errs = append(errs, fmt.Errorf("record %q: %w", key, err))
				continue
			}
		}
		for key, value := range converted {
			if err := checkRecord(key, value); err != nil {
				errs = append(errs, fmt.Errorf("record %q: %w", key, err))
			}
		}
	}
	if len(errs) > 3 {
		errs = append(errs[:3], fmt.Errorf("and %d more", len(errs)-3))
	}
	return errors.Join(errs...)
}

func checkRecord(key string, value []byte) error {
	switch key {
	case driverKey:
		return shell.CheckDriverState(value)
	case listenKey:
		return state.Decode(value, new(listenState).fields)
	case webKey:
		return state.Decode(value, new(webState).fields)
	default:
		return session.CheckRecord(key, value)
	}
}
