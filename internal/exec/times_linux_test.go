package exec

import (
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/holder"
	"github.com/terminal-runtime/trl/internal/journal"
)

// TestResizesAreBounded: any number of resizes costs no more than maxResizes.
func TestResizesAreBounded(t *testing.T) {
	store := journal.NewStore(journal.Config{Dir: t.TempDir()})
	defer store.Close()
	env := NewEnv(Config{Keeper: holder.NewLocalKeeper(), Journals: store})
	defer env.Close()
	e := New(env, Spec{})
	defer e.journal.Release()
	for i := range 2 * maxResizes {
		e.journal.Append(0, []byte("x"))
		e.addResize(api.TTYSize{Rows: 1, Cols: i})
	}
	if n := len(e.sizes); n != maxResizes || e.sizes[n-1].size.Cols != 2*maxResizes-1 {
		t.Errorf("%d sizes, the last is %+v", n, e.sizes[n-1])
	}
}
