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

// lookEvery is how often the token file is looked at, at the most: so soon a
// new token works and a revoked one does not. More often would cost a system
// call for every request.
const checkInterval = time.Second

// Keyring knows the tokens of a file, and notices when they change. It is safe
// for concurrent use.
type Keyring struct {
	file File
	log  *slog.Logger
	now  func() time.Time // time.Now, but for tests

	mu        sync.Mutex // guards what follows
	checkedAt time.Time  // when the file was looked at last
	lastInfo  fs.FileInfo
	lastError string // the last complaint, said once
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

// load reads the file. Under k.mu, or before k is shared.
func (k *Keyring) load() error {
	info, err := os.Stat(k.file.Path) // before it is read: a change in between is seen again
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

// refresh reads the file again if it has changed. What can't be read changes
// nothing: the tokens that were good stay so, and the log says why. Under k.mu.
func (k *Keyring) refresh(now time.Time) {
	if now.Sub(k.checkedAt) < checkInterval {
		return
	}
	k.checkedAt = now
	info, err := os.Stat(k.file.Path)
	if err == nil && k.lastInfo != nil && unchanged(info, k.lastInfo) || err != nil && k.lastInfo == nil && os.IsNotExist(err) {
		return
	}
	before := len(k.keys)
	if err := k.load(); err != nil {
		if complaint := err.Error(); complaint != k.lastError {
			k.lastError = complaint
			k.log.Error("the token file can't be read: the tokens that were read before stay in force", "error", err)
		}
		return
	}
	k.lastError = ""
	k.log.Info("the token file was read again", "before", before, "now", len(k.keys))
}

// same reports whether a file has not changed. It is replaced as a whole, so
// its inode tells, and where that is reused its time does.
func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

// Find returns the token with that secret, unless it has expired. It compares
// with all of them, each in constant time, so that how long it takes says
// nothing.
func (k *Keyring) Find(secret string) (Token, bool) {
	hash := hashOf(secret)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	k.refresh(now)
	found := -1
	for i := range k.keys {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], k.keys[i].hash[:]), i, found)
	}
	if found < 0 || k.keys[found].token.Expired(now) {
		return Token{}, false
	}
	return k.keys[found].token, true
}

// Holds reports whether the token with that id is still good, for who came in
// with it some time ago.
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

// Usable counts the tokens that have not expired.
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
