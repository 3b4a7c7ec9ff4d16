//go:build linux && (amd64 || arm64)

// Package process starts what the tests start; it is not imported by confine itself.
package confine_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/terminal-runtime/trl/internal/confine"
	"github.com/terminal-runtime/trl/internal/process"
)

func TestMain(m *testing.M) {
	confine.RunChild()
	process.RunChild()
	confine.RunHelper()
	goleak.VerifyTestMain(m)
}
