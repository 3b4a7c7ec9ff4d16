package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFormat(t *testing.T) {
	const session = `{"session_id":"s-1","name":"a\u001b[2J\nb","state":"idle","pid":1234567,"exec_count":0,"tags":["x","y\u202e"],` +
		`"tty":{"rows":24,"cols":80},"ratio":0.5,"big":1e300,"ending":true}`
	tests := []struct{ template, result, want string }{
		{`{{.session_id}} {{.state}}`, session, "s-1 idle\n"},
		{`{{.name}}|{{join .tags ","}}|{{index .tags 0}}`, session, `a\x1b[2J\nb|x,y\u202e|x` + "\n"},
		{`{{.pid}} {{.exec_count}} {{.ratio}} {{.ending}}`, session, "1234567 0 0.5 true\n"},
		{`{{.tty.rows}}x{{.tty.cols}}\t{{json .tty}}\n{{.tags}}`, session, "24x80\t" + `{"cols":80,"rows":24}` + "\n" + `["x","y\\u202e"]` + "\n"},
		{`{{.owner}}|{{.terminated.reason}}|{{join .env_keys ","}}`, session, "||\n"}, // optional, and not there
		{`{{if eq .exec_count 0}}new{{else}}{{.exec_count}}{{end}}{{with .held}}{{.holder}}{{else}} free{{end}}`, session, "new free\n"},
		{`{{range .tags}}{{println .}}{{end}}{{"\t"}}{{$p := .pid}}{{$p}}{{$.state}}`, session, "x\ny\\u202e\n\t1234567idle\n"},
		{`{{define "x"}}<{{.}}>{{end}}{{template "x" .missing}}{{template "x" .state}}`, session, "<><idle>\n"},
		{`{{.session_id}}`, `{"sessions":[` + session + `,{"session_id":"s-2"}]}`, "s-1\ns-2\n"}, // a list
		{`{{.session_id}}`, `{"sessions":[]}`, ""},
		{`{{len .chunks}} {{.next}}`, `{"chunks":[1,2],"next":8}`, "2 8\n"}, // no list
		{`\u001b[1m{{.version}}`, `{"version":"v1"}`, `\u001b[1mv1` + "\n"},
	}
	for _, test := range tests {
		var f formatFlag
		if err := f.Set(test.template); err != nil {
			t.Errorf("%s: %v", test.template, err)
			continue
		}
		var out bytes.Buffer
		if err := f.print(&out, json.RawMessage(test.result)); err != nil || out.String() != test.want {
			t.Errorf("%s: %q, %v, want %q", test.template, &out, err, test.want)
		}
	}
}

func TestFormatErrors(t *testing.T) {
	for _, wrong := range []string{"{{.name", "{{end}}", "{{nonsense .name}}", "{{if}}x{{end}}"} {
		if err := new(formatFlag).Set(wrong); err == nil || strings.HasPrefix(err.Error(), "template: ") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	for _, late := range []string{"{{.state.x.y}}", `{{join .state ","}}`, "{{index .tags 7}}"} {
		var f formatFlag
		if err := f.Set(late); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := f.print(&out, json.RawMessage(`{"state":"idle","tags":["x"]}`)); err == nil || out.Len() > 0 {
			t.Errorf("%s: %v after %q", late, err, &out)
		}
	}
}

// A name that the result never has is refused before the command runs; a name of
// something else is not checked.
func TestFormatNames(t *testing.T) {
	for line, want := range map[string]string{
		"ps --format {{.stat}}":                              `has no "stat"; did you mean .state?`,
		"ps --format {{$.nothing_like_it}}":                  `has no "nothing_like_it"; it has session_id, name,`,
		"ps --format {{if(.nothing)}}{{end}}":                `has no "nothing"`,
		"session info x --format {{range(.procs)}}x{{end}}":  `has no "procs"`,
		"token list --format {{.token}}":                     `has no "token"`, // only the new one is shown
		"attach x --format {{.x}}":                           "trl attach prints no result that --format could show",
		"completion bash --format {{.x}}":                    "prints no result",
		"ps --json --format {{.state}}":                      "--json and --format exclude each other",
		"exec output --cast e-1 --format {{.exec_id}}":       "--cast and --format exclude each other",
		"screen x --png --format {{.rows}}":                  "--png and --format exclude each other",
		"ps --format {{range(.tags)}}{{.any}}{{end}}extra x": `unexpected argument "x"`, // the names are fine
	} {
		var out, complaint bytes.Buffer
		a := &app{stdout: &out, stderr: &complaint}
		if status := a.main(strings.Fields(line)); status != statusUsage || !strings.Contains(complaint.String(), want) || out.Len() > 0 {
			t.Errorf("trl %s: status %d, %s, %s", line, status, &out, &complaint)
		}
	}
}

// Every command says what its result has, for --json and --format.
func TestEveryCommandHasAResult(t *testing.T) {
	named := resultNames()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.HasSubCommands() {
			return
		}
		names, ok := named[commandName(cmd)]
		if !ok {
			t.Errorf("resultNames does not have %s: add what it prints with --json", cmd.CommandPath())
		}
		if ok && names != nil && len(names) == 0 {
			t.Errorf("the result of %s has no names", cmd.CommandPath())
		}
		delete(named, commandName(cmd))
	}
	visit((&app{}).rootCommand())
	for _, name := range slices.Sorted(maps.Keys(named)) {
		t.Errorf("resultNames has %q, which is no command", name)
	}
}
