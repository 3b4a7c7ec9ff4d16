package service

import (
	"context"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/printable"
)

// accounts says in one word who an actor is: as the caller of a method, and as
// the owner of the sessions it makes. It is safe for concurrent use.
//
// The word is "alice" for a user, "uid:1001" for one without a name and
// "token:ci" for a token. No user name has a colon in it, since a colon ends the
// name in the user database: a token can't be named as a user is.
type accounts struct {
	userName func(uid int) (string, error)

	mu    sync.Mutex
	names map[int]string // of users that were asked for: few, those who may connect
}

func newAccounts(userName func(uid int) (string, error)) *accounts {
	if userName == nil {
		userName = func(uid int) (string, error) {
			u, err := user.LookupId(strconv.Itoa(uid))
			if err != nil {
				return "", err
			}
			return u.Username, nil
		}
	}
	return &accounts{userName: userName, names: map[int]string{}}
}

// caller is the account that a request comes from.
func (a *accounts) caller(ctx context.Context) string {
	actor, _ := access.From(ctx) // Call has refused a request without one
	switch {
	case actor.TokenName != "":
		return "token:" + accountName(actor.TokenName)
	case actor.TokenID != "":
		return "token:" + accountName(actor.TokenID)
	}
	return a.user(actor.UID)
}

// user is the account of a user. Its name is asked for once: it is in a file, and
// clients ask often who they are.
func (a *accounts) user(uid int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := a.names[uid]
	if name == "" {
		found, err := a.userName(uid)
		if err != nil || found == "" {
			return fmt.Sprintf("uid:%d", uid)
		}
		name = accountName(found)
		a.names[uid] = name
	}
	return name
}

// accountWord makes one word of a name: blanks, slashes, percent signs and what
// can't be seen are written as %XX, so that two names stay two.
func accountName(name string) string {
	var b strings.Builder
	for _, r := range name {
		part := string(r)
		if r == '/' || r == '%' || unicode.IsSpace(r) || printable.Text(part) != part {
			for i := range len(part) {
				fmt.Fprintf(&b, "%%%02X", part[i])
			}
			continue
		}
		b.WriteString(part)
	}
	return b.String()
}

// owner is who a new session belongs to: the account of its maker, and behind a
// slash the program that it says it is.
func (a *accounts) owner(ctx context.Context, client string) (string, error) {
	if client == "" {
		return a.caller(ctx), nil
	}
	if !api.IsClientName(client) {
		return "", api.Errorf(api.CodeInvalidParams, "client must be a word of at most %d ASCII letters, digits and . _ + @ -", api.MaxClientName).
			With("field", "client").WithHint("give the name of the program, as in claude-code, or leave it out")
	}
	return a.caller(ctx) + "/" + client, nil
}
