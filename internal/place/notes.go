package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trust"
)

// notesVersion is the version of the notes that this program reads and writes.
const notesVersion = 1

// errVersion is wrapped by the error for notes of another version. They are in order
// and must not be overwritten: a newer program wrote them.
var errVersion = errors.New("another version")

// Limits of the notes, far above what a daemon can connect to.
const (
	maxNotesBytes = 4 << 20
	maxPlaces     = 10_000
)

// validName matches the name of a place. The random end of an id has ten characters,
// so the two can't be mistaken for each other.
var validName = regexp.MustCompile(`^[a-z][a-z0-9]{1,7}$`)

// validID matches the id of a place, which is part of a path.
var validID = regexp.MustCompile(`^[A-Z2-7]{12}$`)

// notes say which places there are. They outlive the daemon, and have nothing secret.
// Fields that this program does not know are kept.
type notes struct {
	serial int64 // the higher one of two copies is the newer
	places []note
	others map[string]json.RawMessage
}

// note is one place that was reached at least once.
type note struct {
	Name    string    `json:"name"`
	ID      string    `json:"id,omitempty"` // part of the name of its directory there
	Runtime string    `json:"runtime"`
	Created time.Time `json:"created"`
	Node    string    `json:"node,omitempty"` // this and the following: of the last hello
	Digest  string    `json:"digest,omitempty"`
	Version string    `json:"version,omitempty"`
	OS      string    `json:"os,omitempty"`
	Arch    string    `json:"arch,omitempty"`
	User    string    `json:"user,omitempty"`
	Boot    string    `json:"boot,omitempty"`

	// Of a place that was made for one session: its limits, and the key of the call
	// that made it, if it had one.
	Limits *api.Limits `json:"limits,omitempty"`
	Key    string      `json:"key,omitempty"`

	others map[string]json.RawMessage
}

// parseNotes reads notes. Its errors wrap errVersion, or mean that they are damaged.
func parseNotes(text []byte) (*notes, error) {
	if len(text) > maxNotesBytes {
		return nil, fmt.Errorf("the notes have more than %d bytes", maxNotesBytes)
	}
	// The version first: anything else may have another meaning.
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, err
	}
	if version.Version == 0 {
		return nil, errors.New("the notes have no version")
	}
	if version.Version != notesVersion {
		return nil, fmt.Errorf("%w: the notes have version %d, this program reads version %d", errVersion, version.Version, notesVersion)
	}
	var head struct {
		Serial int64             `json:"serial"`
		Places []json.RawMessage `json:"places"`
	}
	n := &notes{}
	if err := errors.Join(json.Unmarshal(text, &head), json.Unmarshal(text, &n.others)); err != nil {
		return nil, err
	}
	if len(head.Places) > maxPlaces {
		return nil, fmt.Errorf("the notes have more than %d places", maxPlaces)
	}
	n.serial = head.Serial
	names, runtimes := map[string]bool{}, map[string]bool{}
	for _, text := range head.Places {
		var p note
		if err := errors.Join(json.Unmarshal(text, &p), json.Unmarshal(text, &p.others)); err != nil {
			return nil, err
		}
		switch {
		case !validName.MatchString(p.Name):
			return nil, fmt.Errorf("%q is not the name of a place", p.Name)
		case p.Runtime == "" || len(p.Runtime) > maxRuntime:
			return nil, fmt.Errorf("place %s has no valid runtime", p.Name)
		case p.ID != "" && !validID.MatchString(p.ID):
			return nil, fmt.Errorf("place %s has no valid id", p.Name)
		case names[p.Name] || runtimes[p.Runtime] && p.Limits == nil:
			return nil, fmt.Errorf("place %s, %s is there twice", p.Name, p.Runtime)
		}
		names[p.Name] = true
		if p.Limits == nil {
			runtimes[p.Runtime] = true
		}
		n.places = append(n.places, p)
	}
	return n, nil
}

// encode returns the notes as text.
func (n *notes) encode() ([]byte, error) {
	places := make([]json.RawMessage, len(n.places))
	for i, p := range n.places {
		text, err := merge(p.others, p)
		if err != nil {
			return nil, err
		}
		places[i] = text
	}
	text, err := merge(n.others, struct {
		Version int               `json:"version"`
		Serial  int64             `json:"serial"`
		Places  []json.RawMessage `json:"places"`
	}{notesVersion, n.serial, places})
	return append(text, '\n'), err
}

// merge returns an object with the fields of known, and those of others that known
// does not have.
func merge(others map[string]json.RawMessage, known any) ([]byte, error) {
	text, err := json.Marshal(known)
	if err != nil || len(others) == 0 {
		return text, err
	}
	all := maps.Clone(others)
	for _, name := range optionalFields {
		delete(all, name) // known leaves out what is empty now
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// optionalFields are the fields of a note that may be missing.
var optionalFields = []string{"id", "node", "digest", "version", "os", "arch", "user", "boot", "limits", "key"}

// damagedSuffix is appended to the name of a notes file that can't be read.
const damagedSuffix = ".damaged"

// writeNotes replaces the file at path, so that it has the old or the new text after
// a crash.
func writeNotes(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := trust.Directory(dir, os.Geteuid()); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".places-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err says more
		return err
	}
	return syncDirectory(dir)
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
