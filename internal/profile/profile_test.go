package profile

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/proxy"
)

var base = Base{Home: "/home/ann", Cwd: "/home/ann/work"}

func TestRegistries(t *testing.T) {
	hosts := Registries()
	if len(hosts) < 10 {
		t.Fatalf("%d hosts: %q", len(hosts), hosts)
	}
	if _, err := proxy.Parse(hosts); err != nil {
		t.Error(err)
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(hosts))); len(sorted) != len(hosts) {
		t.Error("a host is listed twice")
	}
}

func TestProfiles(t *testing.T) {
	for name, want := range map[api.Profile]struct {
		write   []string
		network api.Network
	}{
		api.ProfileWorkspace: {[]string{base.Cwd}, api.Network{Allow: Registries()}},
		api.ProfileOffline:   {[]string{base.Cwd}, api.Network{Mode: api.NetworkLoopback}},
		api.ProfileReadonly:  {nil, api.Network{Mode: api.NetworkNone}},
	} {
		i, err := Expand(api.Isolation{Profile: name}, base)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if i.Profile != "" || !i.NoNewPrivs || i.Seccomp != "default" || i.Processes != "own" || !i.Filesystem.PrivateTmp {
			t.Errorf("%s: %+v", name, i)
		}
		if !slices.Equal(i.Filesystem.Write, want.write) || !reflect.DeepEqual(*i.Network, want.network) {
			t.Errorf("%s: write %q, network %+v", name, i.Filesystem.Write, i.Network)
		}
		for _, secret := range []string{"/home/ann/.ssh", "/home/ann/.aws", "/home/ann/.netrc", "/etc/shadow", "/root"} {
			if !slices.Contains(i.Filesystem.Deny, secret) {
				t.Errorf("%s: %s can be read", name, secret)
			}
		}
	}
	if _, err := Expand(api.Isolation{Profile: "wide"}, base); err == nil || !strings.Contains(err.Error(), `no profile "wide"`) {
		t.Error(err)
	}
	// root works in its home, which must not be hidden as a whole.
	root, err := Named(api.ProfileWorkspace, Base{Home: "/root", Cwd: "/root/work"})
	if err != nil || slices.Contains(root.Filesystem.Deny, "/root") || !slices.Contains(root.Filesystem.Deny, "/root/.ssh") {
		t.Errorf("%v, %v", root.Filesystem, err)
	}
}

func TestNarrow(t *testing.T) {
	fs := func(f api.Filesystem) api.Isolation { return api.Isolation{Filesystem: &f} }
	network := func(mode string, allow ...string) api.Isolation {
		return api.Isolation{Network: &api.Network{Mode: mode, Allow: allow}}
	}
	paths := func(p ...string) []string { return p }
	for name, tc := range map[string]struct {
		outer, inner, want api.Isolation
		field              string // of the error
	}{
		"nothing on nothing":       {},
		"inner alone":              {inner: network("none"), want: network("none")},
		"outer alone":              {outer: network("none"), want: network("none")},
		"flags add up":             {outer: api.Isolation{NoNewPrivs: true, User: "build"}, inner: api.Isolation{Seccomp: "default", Processes: "own"}, want: api.Isolation{NoNewPrivs: true, User: "build", Seccomp: "default", Processes: "own"}},
		"the same user":            {outer: api.Isolation{User: "build"}, inner: api.Isolation{User: "build"}, want: api.Isolation{User: "build"}},
		"another user":             {outer: api.Isolation{User: "build"}, inner: api.Isolation{User: "root"}, field: "user"},
		"deny adds up":             {outer: fs(api.Filesystem{Deny: paths("/b")}), inner: fs(api.Filesystem{Deny: paths("/a", "/b")}), want: fs(api.Filesystem{Deny: paths("/a", "/b")})},
		"write below":              {outer: fs(api.Filesystem{Write: paths("/w")}), inner: fs(api.Filesystem{Write: paths("/w/x")}), want: fs(api.Filesystem{Write: paths("/w/x")})},
		"write above":              {outer: fs(api.Filesystem{Write: paths("/w/x")}), inner: fs(api.Filesystem{Write: paths("/w")}), field: "filesystem.write"},
		"write beside":             {outer: fs(api.Filesystem{Write: paths("/w")}), inner: fs(api.Filesystem{Write: paths("/wide")}), field: "filesystem.write"},
		"write by ..":              {outer: fs(api.Filesystem{Write: paths("/w")}), inner: fs(api.Filesystem{Write: paths("/w/../etc")}), field: "filesystem.write"},
		"write where none is":      {outer: fs(api.Filesystem{PrivateTmp: true}), inner: fs(api.Filesystem{Write: paths("/w")}), field: "filesystem.write"},
		"read of everything":       {outer: fs(api.Filesystem{}), inner: fs(api.Filesystem{Read: paths("/usr")}), want: fs(api.Filesystem{Read: paths("/usr")})},
		"read beside":              {outer: fs(api.Filesystem{Read: paths("/usr")}), inner: fs(api.Filesystem{Read: paths("/etc")}), field: "filesystem.read"},
		"read is kept":             {outer: fs(api.Filesystem{Read: paths("/usr")}), inner: fs(api.Filesystem{PrivateTmp: true}), want: fs(api.Filesystem{Read: paths("/usr"), PrivateTmp: true})},
		"root has every path":      {outer: fs(api.Filesystem{Write: paths("/")}), inner: fs(api.Filesystem{Write: paths("/srv")}), want: fs(api.Filesystem{Write: paths("/srv")})},
		"none to loopback":         {outer: network("none"), inner: network("loopback"), field: "network"},
		"none to a list":           {outer: network("none"), inner: network("", "a.example:443"), field: "network"},
		"loopback to none":         {outer: network("loopback"), inner: network("none"), want: network("none")},
		"loopback to a list":       {outer: network("loopback"), inner: network("", "a.example:443"), field: "network"},
		"a list to loopback":       {outer: network("", "a.example:443"), inner: network("loopback"), want: network("loopback")},
		"a shorter list":           {outer: network("", "a.example:443", "b.example:443"), inner: network("", "B.example:443"), want: network("", "B.example:443")},
		"a name below":             {outer: network("", "*.a.example:443"), inner: network("", "x.y.a.example:443"), want: network("", "x.y.a.example:443")},
		"a wildcard below":         {outer: network("", "*.a.example:443"), inner: network("", "*.y.a.example:443"), want: network("", "*.y.a.example:443")},
		"the name of a wildcard":   {outer: network("", "*.a.example:443"), inner: network("", "a.example:443"), field: "network.allow"},
		"a wider wildcard":         {outer: network("", "*.y.a.example:443"), inner: network("", "*.a.example:443"), field: "network.allow"},
		"another port":             {outer: network("", "a.example:443"), inner: network("", "a.example:80"), field: "network.allow"},
		"a name as an address":     {outer: network("", "a.example:443"), inner: network("", "a.example=10.0.0.1:443"), field: "network.allow"},
		"another address":          {outer: network("", "a.example=10.0.0.2:443"), inner: network("", "a.example=10.0.0.1:443"), field: "network.allow"},
		"the same address":         {outer: network("", "a.example=10.0.0.1:443"), inner: network("", "a.example=10.0.0.1:443"), want: network("", "a.example=10.0.0.1:443")},
		"a pinned name, looked up": {outer: network("", "a.example=10.0.0.1:443"), inner: network("", "a.example:443"), field: "network.allow"},
		"an address":               {outer: network("", "10.0.0.1:80"), inner: network("", "10.0.0.1:80"), want: network("", "10.0.0.1:80")},
		"an address that is not":   {outer: network("", "10.0.0.1:80"), inner: network("", "10.0.0.2:80"), field: "network.allow"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Narrow(tc.outer, tc.inner)
			var wider *WideningError
			if tc.field != "" {
				if !errors.As(err, &wider) || wider.Field != tc.field {
					t.Errorf("%v, want an error about %s", err, tc.field)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, want %+v; %v", got, tc.want, err)
			}
		})
	}
}

func TestAdd(t *testing.T) {
	more := &api.Addition{Write: []string{"/data"}, Allow: []string{"a.example:443"}}
	got, err := Expand(api.Isolation{Profile: api.ProfileWorkspace, Add: more}, base)
	if err != nil || got.Add != nil || !slices.Equal(got.Filesystem.Write, []string{base.Cwd, "/data"}) ||
		!slices.Equal(got.Network.Allow, append(Registries(), "a.example:443")) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = Expand(api.Isolation{Profile: api.ProfileReadonly, Add: more}, base)
	if err != nil || !slices.Equal(got.Filesystem.Write, []string{"/data"}) || got.Network.Mode != "" || !slices.Equal(got.Network.Allow, more.Allow) {
		t.Errorf("%+v, %v", got, err)
	}
	// What is added can be narrowed, and is not there without being added.
	narrow := api.Isolation{Profile: api.ProfileOffline, Add: more, Filesystem: &api.Filesystem{Write: []string{"/data/x"}}}
	if got, err = Expand(narrow, base); err != nil || !slices.Equal(got.Filesystem.Write, []string{"/data/x"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Expand(api.Isolation{Add: more}, base); !errors.Is(err, ErrNoProfile) {
		t.Error(err)
	}
}

func TestAtMost(t *testing.T) {
	none := &api.Network{Mode: api.NetworkNone}
	for name, tc := range map[string]struct {
		limit  api.Profile
		wanted *api.Isolation
		want   api.Isolation
		field  string // of the error
	}{
		"nothing":         {"offline", nil, api.Isolation{Profile: "offline"}, ""},
		"none":            {"offline", &api.Isolation{}, api.Isolation{Profile: "offline"}, ""},
		"the same":        {"offline", &api.Isolation{Profile: "offline"}, api.Isolation{Profile: "offline"}, ""},
		"a stricter one":  {"workspace", &api.Isolation{Profile: "readonly"}, api.Isolation{Profile: "readonly"}, ""},
		"a wider one":     {"readonly", &api.Isolation{Profile: "offline"}, api.Isolation{}, "profile"},
		"an unknown one":  {"workspace", &api.Isolation{Profile: "wide"}, api.Isolation{}, "profile"},
		"other members":   {"workspace", &api.Isolation{Network: none}, api.Isolation{Profile: "workspace", Network: none}, ""},
		"an addition":     {"workspace", &api.Isolation{Profile: "readonly", Add: &api.Addition{}}, api.Isolation{}, "add"},
		"an added member": {"workspace", &api.Isolation{Add: &api.Addition{Write: []string{"/"}}}, api.Isolation{}, "add"},
	} {
		got, err := AtMost(tc.limit, tc.wanted)
		wider, ok := errors.AsType[*WideningError](err)
		switch {
		case tc.field != "" && (!ok || wider.Field != tc.field):
			t.Errorf("%s: %v", name, err)
		case tc.field == "" && (err != nil || !reflect.DeepEqual(*got, tc.want)):
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// Each profile allows nothing that the one before it forbids.
	for i, name := range strictness[1:] {
		outer, err1 := Named(strictness[i], base)
		inner, err2 := Named(name, base)
		_, err := Narrow(outer, inner)
		if err = errors.Join(err1, err2, err); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(outer.Filesystem.Write) < len(inner.Filesystem.Write) || !slices.Equal(outer.Filesystem.Deny, inner.Filesystem.Deny) {
			t.Errorf("%s: %+v", name, inner.Filesystem)
		}
	}
}
