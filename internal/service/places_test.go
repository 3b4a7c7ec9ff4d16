package service

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

// fakePlaces has one place with every field that a caller could see.
type fakePlaces struct{ calls []string }

var secretPlace = api.Place{
	Name: "k7", Runtime: "docker:web", State: api.PlaceUnreachable, Configured: true, OS: "linux", Arch: "amd64",
	User: "secret", Version: "secret", Digest: "secret", Shells: []string{"secret"}, Limits: []string{"secret"},
	Isolates: []string{"secret"}, Reason: "secret", Message: "secret", Hint: "secret", RetryMS: 999,
}

func (f *fakePlaces) List(context.Context) *api.PlaceListResult {
	return &api.PlaceListResult{Places: []api.Place{secretPlace}}
}

func (f *fakePlaces) answer(call, runtime string) (*api.Place, error) {
	f.calls = append(f.calls, call+" "+runtime)
	return &secretPlace, nil
}

func (f *fakePlaces) Add(_ context.Context, p api.PlaceParams) (*api.Place, error) {
	return f.answer("add", p.Runtime)
}

func (f *fakePlaces) Check(_ context.Context, p api.PlaceParams) (*api.Place, error) {
	return f.answer("check", p.Runtime)
}

func (f *fakePlaces) Upgrade(_ context.Context, p api.PlaceParams) (*api.Place, error) {
	return f.answer("upgrade", p.Runtime)
}

func (f *fakePlaces) Remove(_ context.Context, p api.PlaceRemoveParams) (*api.PlaceRemoveResult, error) {
	call := "remove"
	if p.Force {
		call += " force"
	}
	if p.Forget {
		call += " forget"
	}
	f.calls = append(f.calls, call+" "+p.Runtime)
	return &api.PlaceRemoveResult{Name: "k7", Runtime: p.Runtime}, nil
}

// changing are the methods that change a place, with params.
var changing = map[string]string{
	api.MethodPlaceAdd:     `{"runtime":"docker:web"}`,
	api.MethodPlaceCheck:   `{"runtime":"docker:web"}`,
	api.MethodPlaceRemove:  `{"runtime":"docker:web","force":true,"forget":true}`,
	api.MethodPlaceUpgrade: `{"runtime":"docker:web"}`,
}

func TestPlaceMethods(t *testing.T) {
	places := &fakePlaces{}
	table := New(Config{Places: places, System: fakeSystem{}})
	ctx := as(t, access.ScopeAdmin, "")
	for method, params := range changing {
		if _, err := table.Call(ctx, method, json.RawMessage(params)); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		if _, err := table.Call(ctx, method, json.RawMessage(`{}`)); !api.IsCode(err, api.CodeInvalidParams) {
			t.Errorf("%s without a runtime: %v", method, err)
		}
	}
	slices.Sort(places.calls)
	want := []string{"add docker:web", "check docker:web", "remove force forget docker:web", "upgrade docker:web"}
	if diff := cmp.Diff(want, places.calls); diff != "" {
		t.Error(diff)
	}
	got, err := table.Call(as(t, access.ScopeRead, ""), api.MethodPlaceList, nil)
	if diff := cmp.Diff(any(&api.PlaceListResult{Places: []api.Place{secretPlace}}), got); err != nil || diff != "" {
		t.Errorf("place.list: %v\n%s", err, diff)
	}
	info, err := table.Call(as(t, access.ScopeRead, ""), api.MethodSystemInfo, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]api.Place{secretPlace}, info.(*api.SystemInfo).Places); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"docker:web"}, info.(*api.SystemInfo).Runtimes); diff != "" {
		t.Error(diff)
	}
}

// placedSystem runs sessions in a place by default.
type placedSystem struct{ fakeSystem }

func (placedSystem) SystemInfo(context.Context) *api.SystemInfo {
	return &api.SystemInfo{Config: map[string]any{"socket": "secret", "default_runtime": "docker:web"}}
}

func TestTagSeesOnlyThatPlacesExist(t *testing.T) {
	places := &fakePlaces{}
	table := New(Config{Places: places, System: placedSystem{}})
	for _, method := range []string{api.MethodPlaceList, api.MethodSystemInfo} {
		got, err := table.Call(as(t, access.ScopeRead, "red"), method, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if want := `"places":[{"name":"k7","runtime":"docker:web","state":"unreachable"}]`; !strings.Contains(string(text), want) {
			t.Errorf("%s shows %s", method, text)
		}
		if method == api.MethodSystemInfo && !strings.Contains(string(text), `"config":{"default_runtime":"docker:web"}`) {
			t.Errorf("system.info shows %s", text)
		}
	}
	for method, params := range changing {
		if _, err := table.Call(as(t, access.ScopeAdmin, "red"), method, json.RawMessage(params)); !api.IsCode(err, api.CodeForbidden) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if len(places.calls) > 0 {
		t.Errorf("calls that reached the places: %v", places.calls)
	}
}

func TestWithoutPlaces(t *testing.T) {
	table := New(Config{System: fakeSystem{}})
	ctx := as(t, access.ScopeAdmin, "")
	got, err := table.Call(ctx, api.MethodPlaceList, nil)
	if diff := cmp.Diff(any(&api.PlaceListResult{Places: []api.Place{}}), got); err != nil || diff != "" {
		t.Errorf("place.list: %v\n%s", err, diff)
	}
	for method, params := range changing {
		_, err := table.Call(ctx, method, json.RawMessage(params))
		if e := api.AsError(err); !api.IsCode(err, api.CodeRuntimeNotFound) || e.Details["runtime"] != "docker:web" {
			t.Errorf("%s: %v", method, err)
		}
	}
}
