package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/printable"
)

// Token describes a token. Only the client that uses it has the secret.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"` // for people
	Scope   Scope     `json:"scope"`
	Tag     string    `json:"tag,omitempty"`     // limits the token to sessions with this tag
	Sandbox string    `json:"sandbox,omitempty"` // the profile that confines the sessions that it creates; "": none must
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// Expired reports whether the token has expired.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// storedToken is a token in the file.
type storedToken struct {
	Token
	// Hash is the SHA-256 of the secret, in hexadecimal. A plain hash is enough: the
	// secret is 256 random bits, which a slow or salted hash would not protect any
	// better.
	Hash string `json:"sha256"`
}

// contents is the whole file.
type contents struct {
	Version int           `json:"version"`
	Tokens  []storedToken `json:"tokens"`
}

// The versions of the file. A token that is confined makes a file that a TRL without
// confinement refuses as a whole: it would take such a token for an unlimited one.
const (
	fileVersion     = 1
	confinedVersion = 2
)

// version returns the version that a file with these tokens must have.
func (c *contents) version() int {
	if slices.ContainsFunc(c.Tokens, func(t storedToken) bool { return t.Sandbox != "" }) {
		return confinedVersion
	}
	return fileVersion
}

// secretPrefix is the prefix of every secret, so that scanners and people recognise
// one that leaked into a log or a repository.
const secretPrefix = "trl_"

// secretBytes is the number of random bytes: 256 bits cannot be guessed.
const secretBytes = 32

func newSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	return secretPrefix + base32Lower(b[:])
}

// newID returns an id of 50 random bits, like those of sessions.
func newID() string {
	var b [7]byte
	_, _ = rand.Read(b[:])
	return "t-" + base32Lower(b[:])[:10]
}

// base32Lower returns b in base32, which a double click in a terminal selects as a
// whole.
func base32Lower(b []byte) string {
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

func hashOf(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// File is a token file. Its methods are safe for concurrent use by any number of
// processes: changes are serialised by a lock file next to it.
type File struct{ Path string }

// NewToken has the parameters of a token to create.
type NewToken struct {
	Name  string
	Scope Scope
	Tag   string
	TTL   time.Duration // 0: it does not expire
	// Sandbox confines the sessions that the token creates; "": none must. It needs a
	// tag: without one, the token could use the sessions of others.
	Sandbox string
}

// MaxLabel is the maximum length of names and tags: they are shown in tables.
const MaxLabel = 200

func (n NewToken) check() error {
	if !n.Scope.Valid() {
		return fmt.Errorf("the scope must be one of %s", scopeList())
	}
	if n.TTL < 0 {
		return errors.New("the ttl of a token must not be negative")
	}
	switch {
	case n.Sandbox == "":
	case n.Sandbox != string(api.ProfileWorkspace) && n.Sandbox != string(api.ProfileReadonly) && n.Sandbox != string(api.ProfileOffline):
		return fmt.Errorf("no profile %q confines sessions", n.Sandbox)
	case n.Scope == ScopeAdmin:
		return errors.New("a token with the scope admin cannot be confined: it changes the daemon itself")
	case n.Tag == "":
		return errors.New("a token that confines its sessions needs a tag: without one it could use the sessions of others")
	}
	for what, text := range map[string]string{"name": n.Name, "tag": n.Tag} {
		if len(text) > MaxLabel || !printable.Line(text) {
			return fmt.Errorf("a %s must have at most %d bytes and no control or invisible characters", what, MaxLabel)
		}
	}
	return nil
}

func scopeList() string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// Create creates a token and returns it with its secret. The secret is stored nowhere
// and cannot be shown again.
func (f File) Create(n NewToken) (secret string, token Token, err error) {
	if err := n.check(); err != nil {
		return "", Token{}, err
	}
	secret = newSecret()
	now := time.Now().UTC().Truncate(time.Second)
	token = Token{ID: newID(), Name: n.Name, Scope: n.Scope, Tag: n.Tag, Sandbox: n.Sandbox, Created: now}
	if n.TTL > 0 {
		token.Expires = now.Add(n.TTL)
	}
	hash := hashOf(secret)
	err = f.update(func(c *contents) error {
		c.Tokens = append(c.Tokens, storedToken{Token: token, Hash: hex.EncodeToString(hash[:])})
		return nil
	})
	if err != nil {
		return "", Token{}, err
	}
	return secret, token, nil
}

// ErrNoToken is returned if there is no token with the given id.
var ErrNoToken = errors.New("no token with this id")

// Revoke removes a token. Clients that use it are refused from then on.
func (f File) Revoke(id string) error {
	return f.update(func(c *contents) error {
		before := len(c.Tokens)
		c.Tokens = slices.DeleteFunc(c.Tokens, func(r storedToken) bool { return r.ID == id })
		if len(c.Tokens) == before {
			return ErrNoToken
		}
		return nil
	})
}

// List returns the tokens, oldest first; none if the file does not exist.
func (f File) List() ([]Token, error) {
	c, err := f.read()
	if err != nil {
		return nil, err
	}
	tokens := make([]Token, len(c.Tokens))
	for i, r := range c.Tokens {
		tokens[i] = r.Token
	}
	return tokens, nil
}

// maxFileBytes is the maximum size of the file: a few hundred bytes for each of more
// tokens than anyone can manage.
const maxFileBytes = 16 << 20

// read returns the contents of the file. It refuses a file that others could have
// read or written: anyone who can write it can get in.
func (f File) read() (contents, error) {
	file, err := os.Open(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return contents{Version: fileVersion}, nil
	}
	if err != nil {
		return contents{}, fmt.Errorf("token file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return contents{}, fmt.Errorf("token file: %w", err)
	}
	if err := checkPrivate(f.Path, info); err != nil {
		return contents{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return contents{}, fmt.Errorf("token file: %w", err)
	}
	c, err := parse(text)
	if err != nil {
		return contents{}, fmt.Errorf("token file %s: %w", f.Path, err)
	}
	return c, nil
}

func checkPrivate(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("token file %s: not a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("token file %s: others may read or write it: run chmod 600 on it", path)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return fmt.Errorf("token file %s: belongs to another user (uid %d)", path, owner)
	}
	return nil
}

// parse parses the text of a token file. Its errors never quote the text.
func parse(text []byte) (contents, error) {
	if len(text) > maxFileBytes {
		return contents{}, fmt.Errorf("longer than %d bytes", maxFileBytes)
	}
	var c contents
	if err := json.Unmarshal(text, &c); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return contents{}, fmt.Errorf("invalid JSON at byte %d", syntax.Offset)
		}
		return contents{}, errors.New("unexpected JSON structure")
	}
	if c.Version != fileVersion && c.Version != confinedVersion {
		return contents{}, fmt.Errorf("unsupported version %d, want at most %d", c.Version, confinedVersion)
	}
	for i, r := range c.Tokens {
		if hash, err := hex.DecodeString(r.Hash); err != nil || len(hash) != sha256.Size || r.ID == "" || !r.Scope.Valid() {
			return contents{}, fmt.Errorf("token %d is incomplete", i+1)
		}
	}
	return c, nil
}

// update reads the file, applies fn and writes it, while no other process does. The
// file is replaced atomically, so that a concurrent reader sees the old or the new
// contents.
func (f File) update(fn func(*contents) error) error {
	dir := filepath.Dir(f.Path)
	if err := MakePrivateDir(dir); err != nil {
		return fmt.Errorf("token file %s: %w", f.Path, err)
	}
	// The lock is a separate file, because each change replaces the token file. It is
	// never removed, because waiting processes have it open.
	lock, err := os.OpenFile(f.Path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("token file: %w", err)
	}
	defer lock.Close()
	if err := flock(lock); err != nil {
		return fmt.Errorf("token file %s: lock: %w", f.Path, err)
	}
	c, err := f.read()
	if err != nil {
		return err
	}
	if err := fn(&c); err != nil {
		return err
	}
	c.Version = c.version()
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(f.Path, append(text, '\n'))
}

func flock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// MakePrivateDir creates dir if it is missing, and refuses one in which another user
// could replace files.
func MakePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return CheckPrivateDir(dir)
}

// CheckPrivateDir is like MakePrivateDir, for a directory that must exist.
func CheckPrivateDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d): choose your own directory", dir, owner)
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others may write to %s: run chmod go-w on it, or choose another directory", dir)
	}
	return nil
}

// writeAtomic writes a file completely or not at all, with mode 0600 regardless of
// the umask.
func writeAtomic(path string, text []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
