package engines

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Accounts that exist only in the namespace, besides root. Their home directories are
// empty at first.
const (
	Guest     = "trlguest" // its shell is dash
	BashGuest = "trlbash"  // its shell is bash
)

// homes contains the home directory of each account, root's too: ssh looks there for
// keys and configuration, whatever HOME is.
const homes = dir + "/home"

// Home returns the home directory of an account.
func Home(account string) string { return filepath.Join(homes, account) }

// guests are at the end of the ids that Debian assigns to people.
var guests = []struct {
	name, shell string
	id          int
}{
	{Guest, "/bin/dash", 59998},
	{BashGuest, "/bin/bash", 59999},
}

// addAccounts creates the accounts in a copy of /etc.
func addAccounts(etc string) error {
	userFile, groupFile := filepath.Join(etc, "passwd"), filepath.Join(etc, "group")
	users, err1 := os.ReadFile(userFile)
	groups, err2 := os.ReadFile(groupFile)
	err3 := os.MkdirAll(Home("root"), 0o755)
	if err := errors.Join(err1, err2, err3, os.Chmod(Home("root"), 0o700)); err != nil {
		return err
	}
	var passwd strings.Builder
	for line := range strings.Lines(string(users)) {
		if fields := strings.Split(line, ":"); fields[0] == "root" && len(fields) == 7 {
			fields[5] = Home("root")
			line = strings.Join(fields, ":")
		}
		passwd.WriteString(line)
	}
	group := string(groups)
	for _, g := range guests {
		fmt.Fprintf(&passwd, "%s:*:%d:%d::%s:%s\n", g.name, g.id, g.id, Home(g.name), g.shell)
		group += fmt.Sprintf("%s:*:%d:\n", g.name, g.id)
		if err := errors.Join(os.Mkdir(Home(g.name), 0o700), os.Chown(Home(g.name), g.id, g.id)); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(userFile, []byte(passwd.String()), 0o644), os.WriteFile(groupFile, []byte(group), 0o644))
}
