package cell

import (
	"os/user"
	"strconv"
)

// account is a user of this machine.
type account struct {
	name, home string
	uid, gid   int
	groups     []int
}

// lookup finds a user by its name or its uid.
func lookup(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, err
		}
	}
	a := &account{name: u.Username, home: u.HomeDir}
	if a.uid, err = strconv.Atoi(u.Uid); err != nil {
		return nil, err
	}
	if a.gid, err = strconv.Atoi(u.Gid); err != nil {
		return nil, err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	for _, text := range groups {
		gid, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		a.groups = append(a.groups, gid)
	}
	return a, nil
}
