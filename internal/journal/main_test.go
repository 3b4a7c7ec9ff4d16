package journal

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleEnv selects a role for a process of the test binary that does not run
// tests.
const roleEnv = "TRL_JOURNAL_ROLE"

// roles are the functions of these roles.
var roles map[string]func()

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		if role := roles[name]; role != nil {
			role()
		}
		os.Exit(3) // never run the tests again
	}
	goleak.VerifyTestMain(m)
}

// newStore returns a store whose spill files are in the test's own directory.
func newStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	cfg.Dir = t.TempDir()
	s := NewStore(cfg)
	t.Cleanup(s.Close)
	return s
}

// newJournal returns a journal that is released when the test ends.
func newJournal(t testing.TB, cfg Config) *Journal {
	t.Helper()
	j := newStore(t, cfg).New()
	t.Cleanup(j.Release)
	return j
}

// readAll reads from offset to the end in steps of limit bytes.
func readAll(t testing.TB, j *Journal, offset int64, limit int) []Chunk {
	t.Helper()
	var all []Chunk
	for offset < j.Size() {
		chunks, next, err := j.Read(offset, limit)
		if err != nil {
			t.Fatalf("Read(%d, %d): %v", offset, limit, err)
		}
		if len(chunks) == 0 || next <= offset {
			t.Fatalf("Read(%d, %d) = %d chunks, next %d, at size %d", offset, limit, len(chunks), next, j.Size())
		}
		all = append(all, chunks...)
		offset = next
	}
	return all
}
