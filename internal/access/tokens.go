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

	"github.com/terminal-runtime/trl/internal/printable"
)

// Token is what is known of a token. The token itself is known to its holder
// alone.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"` // for people
	Scope   Scope     `json:"scope"`
	Tag     string    `json:"tag,omitempty"` // the token is for sessions with this tag alone
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// Expired reports whether the token's time is over.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// record is a token in the file.
type storedToken struct {
	Token
	// Hash is the SHA-256 of the token, in hexadecimal. A plain hash is enough:
	// a token is 256 random bits, so there is nothing to guess that a slow or
	// salted hash would protect.
	Hash string `json:"sha256"`
}

// contents is the whole file.
type contents struct {
	Version int           `json:"version"`
	Tokens  []storedToken `json:"tokens"`
}

const fileVersion = 1

// secretPrefix begins every token, so that one that leaked into a log or a
// repository can be recognised by scanners and by people.
const secretPrefix = "trl_"

// secretBytes are the random ones of a token: 256 bits can't be guessed.
const secretBytes = 32

func newSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	return secretPrefix + base32Lower(b[:])
}

// newID makes an id of 50 random bits, as those of sessions.
func newID() string {
	var b [7]byte
	_, _ = rand.Read(b[:])
	return "t-" + base32Lower(b[:])[:10]
}

// plain32 is base32 without characters at which a terminal would end a word.
func base32Lower(b []byte) string {
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

func hashOf(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// File is a token file. Its methods may be called from any number of processes
// at once: they take turns by a lock beside the file.
type File struct{ Path string }

// NewToken is what is asked for in a new token.
type NewToken struct {
	Name  string
	Scope Scope
	Tag   string
	TTL   time.Duration // 0: it does not expire
}

// maxLabel bounds names and tags: they are shown in tables.
const maxLabel = 200

func (n NewToken) check() error {
	if !n.Scope.Valid() {
		return fmt.Errorf("the scope must be one of %s", scopeList())
	}
	if n.TTL < 0 {
		return errors.New("a token can't expire before it is made")
	}
	for what, text := range map[string]string{"name": n.Name, "tag": n.Tag} {
		if len(text) > maxLabel || !printable.Line(text) {
			return fmt.Errorf("a %s has at most %d bytes and no control or invisible characters", what, maxLabel)
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

// Create makes a token and returns it with its secret, which is not kept
// anywhere and can't be shown again.
func (f File) Create(n NewToken) (secret string, token Token, err error) {
	if err := n.check(); err != nil {
		return "", Token{}, err
	}
	secret = newSecret()
	now := time.Now().UTC().Truncate(time.Second)
	token = Token{ID: newID(), Name: n.Name, Scope: n.Scope, Tag: n.Tag, Created: now}
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

// ErrNoToken says that there is no token with an id.
var ErrNoToken = errors.New("there is no token with this id")

// Revoke forgets a token. Who holds it is refused from then on.
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

// List returns the tokens, oldest first. A file that does not exist has none.
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

// maxFileBytes bounds what is read: some hundred bytes for each of more tokens
// than anyone can oversee.
const maxFileBytes = 16 << 20

// read returns what is in the file. One that others could have read or written
// is refused: who can write it lets himself in.
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
		return fmt.Errorf("token file %s: it is not a file", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("token file %s: others may read or write it: run chmod 600 on it", path)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return fmt.Errorf("token file %s: it belongs to another user (uid %d)", path, owner)
	}
	return nil
}

// parse reads the text of a token file. Its errors never quote it.
func parse(text []byte) (contents, error) {
	if len(text) > maxFileBytes {
		return contents{}, fmt.Errorf("it is longer than %d bytes", maxFileBytes)
	}
	var c contents
	if err := json.Unmarshal(text, &c); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return contents{}, fmt.Errorf("it is not JSON (at byte %d)", syntax.Offset)
		}
		return contents{}, errors.New("it is JSON of another kind")
	}
	if c.Version != fileVersion {
		return contents{}, fmt.Errorf("it has version %d, and this program knows %d", c.Version, fileVersion)
	}
	for i, r := range c.Tokens {
		if hash, err := hex.DecodeString(r.Hash); err != nil || len(hash) != sha256.Size || r.ID == "" || !r.Scope.Valid() {
			return contents{}, fmt.Errorf("token %d of it is not whole", i+1)
		}
	}
	return c, nil
}

// change reads the file, has it changed and writes it, while no other process
// does. The file is replaced as a whole, so that whoever reads it meanwhile
// sees it before or after.
func (f File) update(fn func(*contents) error) error {
	dir := filepath.Dir(f.Path)
	if err := MakePrivateDir(dir); err != nil {
		return fmt.Errorf("token file %s: %w", f.Path, err)
	}
	// The lock is a file of its own: the token file is another one after each
	// change. It is left there, since who waits for it holds it open.
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

// PrivateDir makes dir if it is missing, and refuses one in which someone else
// could put something of their own in the place of ours.
func MakePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return CheckPrivateDir(dir)
}

// CheckDir is PrivateDir for a directory that must be there.
func CheckPrivateDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return fmt.Errorf("%s belongs to another user (uid %d): choose a directory of your own", dir, owner)
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others may write to %s: run chmod go-w on it, or choose another directory", dir)
	}
	return nil
}

// replace writes a file as a whole or not at all, with mode 0600 whatever the
// umask.
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
