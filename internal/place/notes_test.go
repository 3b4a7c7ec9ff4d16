package place

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terminal-runtime/trl/api"
)

const someNotes = `{"version":1,"serial":3,"colour":"red","places":[{"name":"k7","runtime":"cmd:box","created":"2026-01-02T03:04:05Z","user":"alice","size":{"n":[1]}},` +
	`{"name":"m2","runtime":"pigeon:home","created":"2026-01-02T03:04:05Z"}]}`

// openNotes opens a registry whose file has this text, and returns its log.
func openNotes(t *testing.T, text string) (r *Registry, file string, log *bytes.Buffer) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "places.json")
	if text != "" {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log = &bytes.Buffer{}
	r = openRegistry(t, []string{"false"}, func(c *Config) { c.File, c.Log = file, slog.New(slog.NewJSONHandler(log, nil)) })
	return r, file, log
}

func TestUnknownFieldsAndKindsAreKept(t *testing.T) {
	r, file, _ := openNotes(t, someNotes)
	if p := r.Find("k7"); p == nil || p.Runtime() != "cmd:box" || r.Find("m2") != nil {
		t.Fatalf("found %v", r.All())
	}
	r.save()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"colour":"red"`, `"size":{"n":[1]}`, `"pigeon:home"`, `"serial":4`, `"user":"alice"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
	if _, err := parseNotes(text); err != nil {
		t.Error(err)
	}
	if !r.taken("m2") {
		t.Error("the name of an unknown place is free")
	}
}

func TestAnotherVersionIsNotOverwritten(t *testing.T) {
	const text = `{"version":2,"places":{}}`
	for name, text := range map[string]string{"object": text, "list": `{"version":2,"places":[]}`} {
		r, file, log := openNotes(t, text)
		_, _, err := r.Get(t.Context(), "cmd:box")
		if e := api.AsError(err); e.Code != api.CodeRuntimeUnavailable || !strings.Contains(e.Hint, file) {
			t.Errorf("%s: a new place: %v", name, err)
		}
		r.save()
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("%s: the file is %s now, %v", name, now, err)
		}
		if !strings.Contains(log.String(), "places_unreadable") {
			t.Errorf("%s: logged %s", name, log)
		}
	}
}

func TestDamagedNotesAreMovedAside(t *testing.T) {
	for _, text := range []string{
		"{", "[]", `{"version":1,"places":[{"name":"Not a name","runtime":"cmd:x"}]}`, `{"version":1,"places":[{"name":"k7"}]}`,
		`{"version":1,"places":[{"name":"k7","runtime":"cmd:x"},{"name":"k7","runtime":"cmd:y"}]}`,
	} {
		r, file, log := openNotes(t, text)
		if len(r.All()) != 0 || !strings.Contains(log.String(), "places_damaged") {
			t.Errorf("%s: %v, logged %s", text, r.All(), log)
		}
		if aside, err := os.ReadFile(file + damagedSuffix); err != nil || string(aside) != text {
			t.Errorf("%s: moved aside: %s, %v", text, aside, err)
		}
		if _, err := r.get(parsed{kind: kinds()[0], first: "cmd:box", address: "box"}); err != nil {
			t.Errorf("%s: a new place: %v", text, err)
		}
	}
}

// The newer one of the file and its copy is used.
func TestTheCopy(t *testing.T) {
	older := strings.Replace(strings.Replace(someNotes, `"serial":3`, `"serial":2`, 1), "k7", "old", 1)
	newer := strings.Replace(strings.Replace(someNotes, `"serial":3`, `"serial":4`, 1), "k7", "new", 1)
	for name, c := range map[string]struct{ file, copied, want string }{
		"only the file":  {someNotes, "", "k7"},
		"only the copy":  {"", someNotes, "k7"},
		"a newer copy":   {someNotes, newer, "new"},
		"an older copy":  {someNotes, older, "k7"},
		"a damaged file": {"{", someNotes, "k7"},
		"a damaged copy": {someNotes, "{", "k7"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "places.json")
			if c.file != "" {
				if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			saved := []byte(c.copied)
			r := openRegistry(t, nil, func(cfg *Config) {
				cfg.File = file
				cfg.Load = func() []byte { return saved }
				cfg.Save = func(text []byte) error { saved = text; return nil }
			})
			if r.Find(c.want) == nil {
				t.Fatalf("no place %s in %v", c.want, r.All())
			}
			r.save()
			if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, saved) {
				t.Errorf("file %s\ncopy %s, %v", text, saved, err)
			}
		})
	}
}

func FuzzNotes(f *testing.F) {
	f.Add([]byte(someNotes))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"places":[{"name":"k7","runtime":"a","Name":"x","OS":"A"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseNotes(text)
		if err != nil {
			return
		}
		again, err := n.encode()
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseNotes(again)
		if err != nil {
			t.Fatalf("%v in %s", err, again)
		}
		third, err := m.encode()
		if diff := cmp.Diff(string(again), string(third)); diff != "" || err != nil {
			t.Fatal(diff, err)
		}
	})
}
