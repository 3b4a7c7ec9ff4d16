package place

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
)

func TestMain(m *testing.M) {
	engines.Enter()
	goleak.VerifyTestMain(m, goleak.Cleanup(trltest.Exit))
}
