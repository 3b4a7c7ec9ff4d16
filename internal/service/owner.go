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

// accounts names an actor in one word: as the caller of a method, and as the
// owner of the sessions it creates. It is safe for concurrent use.
//
// The word is "alice" for a user, "uid:1001" for a user without a name and
// "token:ci" for a token. A request that is made for another caller has the word
// of that caller, as on the machine where it came from. A token can't be mistaken for a user, since a user
// name contains no colon: a colon ends the name in the user database.
type accounts struct {
	userName func(uid int) (string, error)

	mu    sync.Mutex
	names map[int]string // of looked-up users: few, since only those who may connect
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

// caller returns the account that made the request.
func (a *accounts) caller(ctx context.Context) string {
	actor, _ := access.From(ctx) // Call refuses a request without one
	switch {
	case actor.TokenName != "":
		return "token:" + accountName(actor.TokenName)
	case actor.TokenID != "":
		return "token:" + accountName(actor.TokenID)
	case actor.User != "":
		return namedUser(actor.User)
	}
	return a.user(actor.UID)
}

// user returns the account of a user. The name is looked up once: it is in a
// file, and clients ask often.
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

// namedUser returns the account of a user of another machine, by the name that
// the daemon there gives it. A colon, which no user name has, is escaped: the
// name must not pass for a token.
func namedUser(name string) string {
	if id, ok := strings.CutPrefix(name, "uid:"); ok {
		if n, err := strconv.Atoi(id); err == nil && strconv.Itoa(n) == id {
			return name
		}
	}
	return strings.ReplaceAll(accountName(name), ":", "%3A")
}

// accountName makes one word of a name. Spaces, slashes, percent signs and
// unprintable characters become %XX, so that different names stay different.
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

// owner returns the owner of a new session: the account of the caller, followed
// by a slash and the name of the program, if the client gave one.
func (a *accounts) owner(ctx context.Context, client string) (string, error) {
	if client == "" {
		return a.caller(ctx), nil
	}
	if !api.IsClientName(client) {
		return "", api.Errorf(api.CodeInvalidParams, "client must be one word of at most %d ASCII letters, digits and . _ + @ -", api.MaxClientName).
			With("field", "client").WithHint("send the name of the program, such as claude-code, or leave it out")
	}
	return a.caller(ctx) + "/" + client, nil
}
