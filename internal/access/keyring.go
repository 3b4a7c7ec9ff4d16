package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkInterval is the minimum time between two checks of the token file while the
// tokens that come are known, and so the delay until a revoked one stops working.
// Checking more often would cost a system call for every request. For an unknown
// token the file is checked at once: it may be new.
const checkInterval = time.Second

// Keyring caches the tokens of a file and reloads them when the file changes. It is
// safe for concurrent use.
type Keyring struct {
	file File
	log  *slog.Logger
	now  func() time.Time // time.Now, except in tests

	mu        sync.Mutex // guards the fields below
	checkedAt time.Time  // last check of the file
	lastInfo  fs.FileInfo
	lastError string // last logged error, to log it only once
	keys      []key
}

type key struct {
	hash  [sha256.Size]byte
	token Token
}

// OpenKeyring reads the tokens of a file. log may be nil.
func OpenKeyring(path string, log *slog.Logger) (*Keyring, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	k := &Keyring{file: File{Path: path}, log: log, now: time.Now}
	k.checkedAt = k.now()
	if err := k.load(); err != nil {
		return nil, err
	}
	return k, nil
}

// load reads the file. The caller must hold k.mu, unless k is not shared yet.
func (k *Keyring) load() error {
	info, err := os.Stat(k.file.Path) // before reading: a change in between causes a reload
	if err != nil {
		info = nil
	}
	k.lastInfo = info
	c, err := k.file.read()
	if err != nil {
		return err
	}
	keys := make([]key, len(c.Tokens))
	for i, r := range c.Tokens {
		keys[i].token = r.Token
		if _, err := hex.Decode(keys[i].hash[:], []byte(r.Hash)); err != nil {
			return err
		}
	}
	k.keys = keys
	return nil
}

// refresh reads the file again if it has changed. If it cannot be read, refresh logs
// the error and the loaded tokens stay valid. The caller must hold k.mu.
func (k *Keyring) refresh(now time.Time) {
	if now.Sub(k.checkedAt) >= checkInterval {
		k.reload(now)
	}
}

// reload is refresh whenever the last check was.
func (k *Keyring) reload(now time.Time) {
	k.checkedAt = now
	info, err := os.Stat(k.file.Path)
	if err == nil && k.lastInfo != nil && unchanged(info, k.lastInfo) || err != nil && k.lastInfo == nil && os.IsNotExist(err) {
		return
	}
	before := len(k.keys)
	if err := k.load(); err != nil {
		if text := err.Error(); text != k.lastError {
			k.lastError = text
			k.log.Error("cannot read the token file; keeping the loaded tokens", "error", err)
		}
		return
	}
	k.lastError = ""
	k.log.Info("reloaded the token file", "before", before, "now", len(k.keys))
}

// unchanged reports whether a file is the same. Changes replace the whole file, so
// its inode differs, or, if the inode is reused, its time.
func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

// Find returns the token with the given secret, unless it has expired. It compares
// with every token in constant time, so that its timing reveals nothing.
func (k *Keyring) Find(secret string) (Token, bool) {
	hash := hashOf(secret)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	k.refresh(now)
	found := k.index(hash)
	if found < 0 {
		k.reload(now) // it may have been created just now
		found = k.index(hash)
	}
	if found < 0 || k.keys[found].token.Expired(now) {
		return Token{}, false
	}
	return k.keys[found].token, true
}

// index returns the index of the key with the given hash, or -1. The caller must hold
// k.mu.
func (k *Keyring) index(hash [sha256.Size]byte) int {
	found := -1
	for i := range k.keys {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], k.keys[i].hash[:]), i, found)
	}
	return found
}

// Valid reports whether the token with the given id is still valid, for connections
// that were authenticated with it earlier.
func (k *Keyring) Valid(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	k.refresh(now)
	for i := range k.keys {
		if k.keys[i].token.ID == id {
			return !k.keys[i].token.Expired(now)
		}
	}
	return false
}

// Usable returns the number of tokens that have not expired.
func (k *Keyring) Usable() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	k.refresh(now)
	n := 0
	for i := range k.keys {
		if !k.keys[i].token.Expired(now) {
			n++
		}
	}
	return n
}
