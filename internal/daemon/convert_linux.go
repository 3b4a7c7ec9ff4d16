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

// formatKey is the ledger key of the format of its records. A ledger of format 2
// does not have it.
const formatKey = "format"

// unreadablePrefix and a key: the original of a record that could not be converted.
const unreadablePrefix = "u/"

func formatRecord() []byte {
	return state.Encode(func(c *state.Coder) {
		n := format
		state.Int(c, 1, &n)
	})
}

// formatOf returns the format that the record at formatKey states. found reports
// whether there is such a record.
func formatOf(record []byte, found bool) (n int, err error) {
	if !found {
		return 2, nil
	}
	err = state.Decode(record, func(c *state.Coder) { state.Int(c, 1, &n) })
	return n, err
}

// convertLedger converts the records of an earlier format to the current one.
func (d *daemon) convertLedger() error {
	record, found := d.ledger.Get(formatKey)
	has, err := formatOf(record, found)
	switch {
	case !found && len(d.ledger.Damage()) > 0:
		return fmt.Errorf("ledger: %w: its format is missing", ledger.ErrLost)
	case err != nil:
		return fmt.Errorf("read the format of the ledger: %w", err)
	case has == format:
		return nil
	case has != 2:
		return fmt.Errorf("the ledger has format %d, and this program reads %d to %d", has, oldestFormat, format)
	}
	records := map[string][]byte{formatKey: formatRecord()}
	for key, value := range d.ledger.All("") {
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

// convert2 converts a record of format 2 to records of the current format.
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

// checkLedger returns an error that names the parts of a ledger that this program
// cannot read. It skips records that the daemon that wrote the ledger could not read
// either: they are no reason to refuse an upgrade.
func checkLedger(fd int) error {
	records, damage, err := ledger.Read(fd)
	if err != nil {
		return err
	}
	record, found := records[formatKey]
	has, err := formatOf(record, found)
	if err != nil {
		return fmt.Errorf("format record: %w", err)
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
