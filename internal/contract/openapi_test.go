package contract

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReferencesResolve follows every $ref, and every mapping of a
// discriminator, in both documents.
func TestReferencesResolve(t *testing.T) {
	for _, name := range []string{schemaFile, openAPIFile} {
		var document any
		if err := json.Unmarshal(file(t, name), &document); err != nil {
			t.Fatal(err)
		}
		n := 0
		var walk func(at any)
		walk = func(at any) {
			switch at := at.(type) {
			case []any:
				for _, v := range at {
					walk(v)
				}
			case map[string]any:
				for key, v := range at {
					ref, ok := v.(string)
					if !ok || key != "$ref" && !strings.HasPrefix(ref, "#/") {
						walk(v)
						continue
					}
					n++
					if target(document, ref) == nil {
						t.Errorf("%s: %s does not resolve", name, ref)
					}
				}
			}
		}
		walk(document)
		if n == 0 {
			t.Errorf("%s has no references", name)
		}
	}
}

// TestOpenAPIIsWellFormed checks the requirements of OpenAPI 3.1 for the parts
// that the document has.
func TestOpenAPIIsWellFormed(t *testing.T) {
	var d struct {
		OpenAPI  string
		Info     struct{ Title, Version string }
		Security []map[string][]string
		Paths    map[string]map[string]struct {
			OperationID string
			Summary     string
			Security    *[]any
			Parameters  []struct {
				Name, In string
				Required bool
				Schema   any
			}
			RequestBody *struct {
				Content map[string]struct{ Schema any }
			}
			Responses map[string]struct {
				Description string
				Content     map[string]struct{ Schema any }
			}
			Scope  string            `json:"x-trl-scope"`
			Scopes map[string]string `json:"x-trl-scopes"`
		}
		Components struct {
			Schemas         map[string]any
			SecuritySchemes map[string]struct{ Type, Scheme string }
		}
	}
	if err := json.Unmarshal(file(t, openAPIFile), &d); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.1.") || d.Info.Title == "" || d.Info.Version == "" {
		t.Errorf("openapi %q, info %+v", d.OpenAPI, d.Info)
	}
	for _, requirement := range d.Security {
		for name := range requirement {
			if d.Components.SecuritySchemes[name].Scheme != "bearer" {
				t.Errorf("the security scheme %s is missing", name)
			}
		}
	}
	if len(d.Security) == 0 {
		t.Error("no operation requires a token")
	}
	ids := map[string]bool{}
	var got []string
	for path, operations := range d.Paths {
		for verb, op := range operations {
			got = append(got, strings.ToUpper(verb)+" "+path)
			if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" {
				t.Errorf("%s %s: the operation's id is missing or not unique, or it has no summary", verb, path)
			}
			ids[op.OperationID] = true
			succeeds := false
			for status, r := range op.Responses {
				succeeds = succeeds || status < "300"
				if len(status) != 3 || r.Description == "" {
					t.Errorf("%s %s: response %s is not described", verb, path, status)
				}
				for media, content := range r.Content {
					if content.Schema == nil {
						t.Errorf("%s %s: response %s has %s without a schema", verb, path, status, media)
					}
				}
			}
			if !succeeds {
				t.Errorf("%s %s has no success response", verb, path)
			}
			for _, p := range op.Parameters {
				if p.Name == "" || p.Schema == nil || (p.In == "path") != p.Required ||
					p.In == "path" && !strings.Contains(path, "{"+p.Name+"}") {
					t.Errorf("%s %s: parameter %+v", verb, path, p)
				}
			}
			open := op.Security != nil && len(*op.Security) == 0
			if _, asks := op.Responses["401"]; asks == open {
				t.Errorf("%s %s: must need no token, or answer 401", verb, path)
			}
			if open != (path == "/healthz") {
				t.Errorf("%s %s: only /healthz needs no token", verb, path)
			}
		}
	}
	slices.Sort(got)
	want := []string{"GET /healthz", "GET /metrics", "GET /v1/execs/{exec_id}/stream", "GET /ws", "POST /mcp", "POST /rpc"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	scopes := map[string]string{}
	for _, m := range read(t).Methods {
		scopes[m.Name] = m.Scope
	}
	if diff := cmp.Diff(scopes, d.Paths["/rpc"]["post"].Scopes); diff != "" {
		t.Error(diff)
	}
}

// target returns the value that a reference within a document points to, or
// nil.
func target(document any, ref string) any {
	for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		object, ok := document.(map[string]any)
		if !ok {
			return nil
		}
		document = object[step]
	}
	return document
}
