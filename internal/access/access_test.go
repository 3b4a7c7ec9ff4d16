package access

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestScopesContainTheSmallerOnes(t *testing.T) {
	for _, tc := range []struct {
		has, need Scope
		want      bool
	}{
		{ScopeRead, ScopeRead, true},
		{ScopeRead, ScopeRun, false},
		{ScopeRead, ScopeAdmin, false},
		{ScopeRun, ScopeRead, true},
		{ScopeRun, ScopeRun, true},
		{ScopeRun, ScopeAdmin, false},
		{ScopeAdmin, ScopeRead, true},
		{ScopeAdmin, ScopeRun, true},
		{ScopeAdmin, ScopeAdmin, true},
		{"", ScopeRead, false},
		{"root", ScopeRead, false},
		{ScopeAdmin, "", false},
		{"", "", false},
		{"Admin", ScopeRead, false},
	} {
		if got := tc.has.Covers(tc.need); got != tc.want {
			t.Errorf("%q covers %q: %t", tc.has, tc.need, got)
		}
	}
}

func TestEmptyContextHasNoActor(t *testing.T) {
	if a, ok := From(t.Context()); ok {
		t.Errorf("%+v", a)
	}
	want := Actor{UID: 7, Scope: ScopeRun, Tag: "x"}
	if got, ok := From(With(t.Context(), want)); !ok || got != want {
		t.Errorf("%+v", got)
	}
}

func newFile(t testing.TB) File {
	return File{Path: filepath.Join(t.TempDir(), "state", "trl", "tokens.json")}
}

func (f File) mustCreate(t testing.TB, n NewToken) (string, Token) {
	t.Helper()
	secret, token, err := f.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	return secret, token
}

func TestTokenFileIsPrivateAndHoldsNoSecret(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0)) // the worst one
	file := newFile(t)
	secret, token := file.mustCreate(t, NewToken{Scope: ScopeRun, Name: "ci", Tag: "team", TTL: time.Hour})
	if !regexp.MustCompile(`^trl_[0-9a-v]{52}$`).MatchString(secret) || !regexp.MustCompile(`^t-[0-9a-v]{10}$`).MatchString(token.ID) {
		t.Errorf("secret of %d bytes, id %s", len(secret), token.ID)
	}
	for path, want := range map[string]fs.FileMode{
		filepath.Dir(file.Path): fs.ModeDir | 0o700, file.Path: 0o600, file.Path + ".lock": 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	text, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), secret) || strings.Contains(string(text), strings.TrimPrefix(secret, secretPrefix)) {
		t.Error("the file contains the secret")
	}
	tokens, err := file.List()
	if err != nil || len(tokens) != 1 || tokens[0] != token || token.Expires.Sub(token.Created) != time.Hour {
		t.Errorf("%+v, %v", tokens, err)
	}
	entries, err := os.ReadDir(filepath.Dir(file.Path))
	if err != nil || len(entries) != 2 {
		t.Errorf("in the directory: %v, %v", entries, err)
	}
}

func TestRevoke(t *testing.T) {
	file := newFile(t)
	_, first := file.mustCreate(t, NewToken{Scope: ScopeRead})
	_, second := file.mustCreate(t, NewToken{Scope: ScopeRead})
	if err := file.Revoke(first.ID); err != nil {
		t.Error(err)
	}
	if err := file.Revoke(first.ID); !errors.Is(err, ErrNoToken) {
		t.Errorf("again: %v", err)
	}
	if tokens, err := file.List(); err != nil || len(tokens) != 1 || tokens[0].ID != second.ID {
		t.Errorf("%v, %v", tokens, err)
	}
}

func TestInvalidTokensAreNotCreated(t *testing.T) {
	file := newFile(t)
	for name, n := range map[string]NewToken{
		"no scope":  {},
		"scope":     {Scope: "root"},
		"past":      {Scope: ScopeRead, TTL: -time.Second},
		"long name": {Scope: ScopeRead, Name: strings.Repeat("x", MaxLabel+1)},
		"control":   {Scope: ScopeRead, Tag: "a\nb"},
	} {
		if _, _, err := file.Create(n); err == nil {
			t.Errorf("%s: Create accepted it", name)
		}
	}
	if _, err := os.Stat(file.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Create made a file: %v", err)
	}
}

// A TRL that does not know about confined tokens must refuse the file that has one:
// it reads version 1 only.
func TestConfinedTokensNeedANewerVersion(t *testing.T) {
	file := newFile(t)
	version := func() (v int) {
		text, err := os.ReadFile(file.Path)
		_, scanErr := fmt.Sscanf(string(text), "{\n  \"version\": %d,", &v)
		if errors.Join(err, scanErr) != nil {
			t.Fatal(err, scanErr)
		}
		return v
	}
	file.mustCreate(t, NewToken{Scope: ScopeRun, Tag: "x"})
	if version() != 1 {
		t.Error("a file without such a token is not what an older TRL reads")
	}
	secret, token := file.mustCreate(t, NewToken{Scope: ScopeRun, Tag: "x", Sandbox: "offline"})
	if version() != 2 {
		t.Error("an older TRL reads a file with such a token")
	}
	k, err := OpenKeyring(file.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := k.Find(secret); !ok || got.Sandbox != "offline" {
		t.Errorf("%+v", got)
	}
	if err := file.Revoke(token.ID); err != nil || version() != 1 {
		t.Errorf("after revoke: version %d, %v", version(), err)
	}
	for name, n := range map[string]NewToken{
		"unknown": {Scope: ScopeRun, Tag: "x", Sandbox: "wide"}, "admin": {Scope: ScopeAdmin, Tag: "x", Sandbox: "offline"}, "no tag": {Scope: ScopeRun, Sandbox: "offline"},
	} {
		if _, _, err := file.Create(n); err == nil {
			t.Errorf("%s: created", name)
		}
	}
}

// Concurrent changes lose no token.
func TestChangesTakeTurns(t *testing.T) {
	file := newFile(t)
	const writers, each = 8, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				_, token, err := file.Create(NewToken{Scope: ScopeRead})
				if err == nil {
					_, _, err = file.Create(NewToken{Scope: ScopeRun})
				}
				if err == nil {
					err = file.Revoke(token.ID)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	tokens, err := file.List()
	if err != nil || len(tokens) != writers*each {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
}

func TestUnsafeTokenFilesAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"readable by group":    func(p string) error { return os.Chmod(p, 0o640) },
		"writable by all":      func(p string) error { return os.Chmod(p, 0o602) },
		"not JSON":             func(p string) error { return os.WriteFile(p, []byte(`{"version": 1, "tokens": [}`), 0o600) },
		"another kind of JSON": func(p string) error { return os.WriteFile(p, []byte(`{"version": 1, "tokens": 3}`), 0o600) },
		"another version":      func(p string) error { return os.WriteFile(p, []byte(`{"version": 3}`), 0o600) },
		"half a hash": func(p string) error {
			return os.WriteFile(p, []byte(`{"version":1,"tokens":[{"id":"t","scope":"run","sha256":"ab"}]}`), 0o600)
		},
		"a scope of its own": func(p string) error {
			return os.WriteFile(p, []byte(`{"version":1,"tokens":[{"id":"t","scope":"root","sha256":"`+strings.Repeat("0", 64)+`"}]}`), 0o600)
		},
		"a directory":           func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
		"a directory of others": func(p string) error { return errors.Join(os.Chmod(filepath.Dir(p), 0o777), os.Chmod(p, 0o606)) },
	} {
		t.Run(name, func(t *testing.T) {
			file := newFile(t)
			secret, _ := file.mustCreate(t, NewToken{Scope: ScopeAdmin})
			if err := spoil(file.Path); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenKeyring(file.Path, nil); err == nil {
				t.Error("OpenKeyring accepted it")
			} else if strings.Contains(err.Error(), secret) {
				t.Error("the error contains the secret")
			}
			if _, _, err := file.Create(NewToken{Scope: ScopeRead}); err == nil {
				t.Error("Create wrote to it")
			}
		})
	}
}

func TestDirectoryOfOthersIsRefused(t *testing.T) {
	file := newFile(t)
	dir := filepath.Dir(file.Path)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o770)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := file.Create(NewToken{Scope: ScopeRead}); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("got %v", err)
	}
}

// keyring returns a Keyring and the time that its clock returns.
func keyring(t *testing.T, file File, log *bytes.Buffer) (*Keyring, *time.Time) {
	t.Helper()
	k, err := OpenKeyring(file.Path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	k.now = func() time.Time { return now }
	return k, &now
}

func TestKeyringNoticesChanges(t *testing.T) {
	file := newFile(t)
	var log bytes.Buffer
	k, now := keyring(t, file, &log) // there is no file yet
	if k.Usable() != 0 {
		t.Error("a missing file has tokens")
	}
	secret, token := file.mustCreate(t, NewToken{Scope: ScopeRun, Tag: "x"})
	if got, ok := k.Find(secret); !ok || got.ID != token.ID || got.Scope != ScopeRun || got.Tag != "x" {
		t.Errorf("%+v %t", got, ok)
	}
	for _, wrong := range []string{"", secret[:len(secret)-1], secret + "x", strings.ToUpper(secret), token.ID} {
		if _, ok := k.Find(wrong); ok {
			t.Errorf("a wrong secret of %d bytes is accepted for one of %d", len(wrong), len(secret))
		}
	}
	if err := file.Revoke(token.ID); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.Find(secret); !ok {
		t.Error("the file is checked more than once a second")
	}
	*now = now.Add(checkInterval)
	if _, ok := k.Find(secret); ok || k.Valid(token.ID) {
		t.Error("a revoked token is valid")
	}
	if strings.Contains(log.String(), secret) {
		t.Error("the log contains the secret")
	}
}

func TestKeyringKeepsWhatWasGood(t *testing.T) {
	file := newFile(t)
	secret, token := file.mustCreate(t, NewToken{Scope: ScopeRun})
	var log bytes.Buffer
	k, now := keyring(t, file, &log)
	whole, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file.Path, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		*now = now.Add(checkInterval)
		if _, ok := k.Find(secret); !ok || !k.Valid(token.ID) {
			t.Error("a valid token was lost")
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors logged: %s", n, &log)
	}
	if regexp.MustCompile(`[0-9a-f]{16}`).MatchString(log.String()) {
		t.Errorf("the log contains a hash: %s", &log)
	}
	// Removing the file revokes all tokens.
	if err := os.Remove(file.Path); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(checkInterval)
	if _, ok := k.Find(secret); ok {
		t.Error("a token of a removed file is valid")
	}
}

func TestTokensExpire(t *testing.T) {
	file := newFile(t)
	secret, token := file.mustCreate(t, NewToken{Scope: ScopeRun, TTL: time.Hour})
	var log bytes.Buffer
	k, now := keyring(t, file, &log)
	*now = token.Expires.Add(-time.Nanosecond)
	if _, ok := k.Find(secret); !ok || !k.Valid(token.ID) || k.Usable() != 1 {
		t.Error("the token expired early")
	}
	*now = token.Expires
	if _, ok := k.Find(secret); ok || k.Valid(token.ID) || k.Usable() != 0 {
		t.Error("the token did not expire")
	}
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Rate: 10})
		for i := range 10 {
			if leave, _ := l.Enter("a"); leave == nil {
				t.Errorf("request %d of a burst was refused", i)
			}
		}
		leave, wait := l.Enter("a")
		if leave != nil || wait <= 0 || wait > 100*time.Millisecond {
			t.Errorf("the 11th: %v", wait)
		}
		if leave, _ := l.Enter("b"); leave == nil {
			t.Error("another token was refused")
		}
		time.Sleep(wait) // pace: the clock is the bubble's
		if leave, _ := l.Enter("a"); leave == nil {
			t.Error("refused after the wait")
		}
	})
}

func TestLimiterForgetsThoseAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(Limits{Rate: 1, Concurrent: 1})
		stay, _ := l.Enter("busy")
		for i := range 10 * maxUsers {
			leave, _ := l.Enter(fmt.Sprint(i))
			leave()
			time.Sleep(time.Second) // pace: the clock is the bubble's; its bucket is full again
		}
		if len(l.users) > maxUsers {
			t.Errorf("%d tokens are tracked", len(l.users))
		}
		if leave, _ := l.Enter("busy"); leave != nil {
			t.Error("a busy token was forgotten")
		}
		stay()
		if leave, _ := l.Enter("busy"); leave == nil {
			t.Error("refused after leave")
		}
	})
}

// FuzzTokenFile parses arbitrary text as a token file: a parsed token is always
// complete.
func FuzzTokenFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"tokens":[{"id":"t-1","scope":"run","sha256":"` + strings.Repeat("ab", 32) + `"}]}`))
	f.Add([]byte(`{"version":1,"tokens":[{"id":"t-1","scope":"run","sha256":""}]}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parse(text)
		if err != nil {
			return
		}
		for _, r := range c.Tokens {
			if !r.Scope.Valid() || len(r.Hash) != 64 || r.ID == "" {
				t.Errorf("%+v", r)
			}
		}
	})
}
