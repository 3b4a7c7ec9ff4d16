package engines

import (
	"os"
	"testing"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// Main is the TestMain of a package that uses engines.
func Main(m *testing.M) {
	Enter()
	trltest.Main(m)
}

// Enter is the beginning of Main, for a TestMain that does more. It returns in the
// process that runs the tests; other processes end in it.
func Enter() {
	if len(os.Args) > 2 && os.Args[1] == hostileArg {
		os.Exit(beHostile(os.Args[2], os.Args[3:]))
	}
	enter()
}
