package session

import (
	"log/slog"
	"sync/atomic"

	"github.com/terminal-runtime/trl/internal/ledger"
)

// ledgerWriter writes what a later process needs to go on with the sessions. An
// exec is written before its shell gets the command, and before any client gets the
// result.
type ledgerWriter struct {
	ledger *ledger.Ledger // nil if nothing is written
	log    *slog.Logger
	failed atomic.Bool // a write has failed, and was logged
}

// Put writes one value. On an error the daemon goes on: what it can't write is lost
// only if it dies.
func (w *ledgerWriter) Put(key string, value []byte) {
	if err := w.ledger.Put(key, value); err != nil && w.failed.CompareAndSwap(false, true) {
		w.log.Error("cannot persist session state", "event", "not_noted", "error", err)
	}
}

// Erase removes a value.
func (w *ledgerWriter) Erase(key string) {
	if w.ledger != nil {
		_ = w.ledger.Delete(key) // Put logs such errors
	}
}
