package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/terminal-runtime/trl/internal/trltest"
)

// acpScenes are the recordings of Gemini CLI, as `gemini --acp`.
var acpScenes = []scene{
	{"two_turns", func(s *stage) {
		s.models(say("The first answer, in pieces."), say("The second answer."))
		d, id := s.gemini()
		d.result(d.prompt(id, "say something"))
		d.result(d.prompt(id, "and again"))
		d.finish()
	}},
	{"thought", func(s *stage) {
		s.models(say("It is four.").with(live{thought: "**Adding** Two and two."}))
		d, id := s.gemini()
		d.result(d.prompt(id, "what is two and two"))
		d.finish()
	}},
	{"approval", func(s *stage) {
		s.models(
			run("touch a; echo hello; exit 3").with(live{before: "I will run it."}), say("It failed."),
			run("touch b; echo again"), say("Fine."),
			run("touch b; echo again"), say("Fine again."))
		d, id := s.gemini()
		p := d.prompt(id, "run it")
		d.choose(d.asked(), "proceed_once")
		d.result(p)
		p = d.prompt(id, "run the other")
		d.choose(d.asked(), "proceed_always")
		d.result(p)
		d.result(d.prompt(id, "run the other once more"))
		d.finish()
	}},
	{"denial", func(s *stage) {
		s.models(run("rm -rf build"), say("Then not."), say("I am here."))
		d, id := s.gemini()
		p := d.prompt(id, "remove it")
		d.choose(d.asked(), "cancel")
		d.result(p)
		d.result(d.prompt(id, "are you there"))
		d.finish()
	}},
	{"interrupt_text", func(s *stage) {
		s.models(say(words(3)).with(live{hold: s.hold}), say("I am here."))
		d, id := s.gemini()
		p := d.prompt(id, "tell me all")
		d.updated("agent_message_chunk")
		d.cancel(id)
		d.result(p)
		s.release()
		d.result(d.prompt(id, "are you there"))
		d.finish()
	}},
	{"interrupt_question", func(s *stage) {
		s.models(run("touch a; echo hello"), say("I am here."), say("I am here."))
		d, id := s.gemini()
		p := d.prompt(id, "run it")
		q := d.asked()
		d.cancel(id)
		d.answer(q, object{"outcome": object{"outcome": "cancelled"}})
		d.result(p)
		d.result(d.prompt(id, "are you there"))
		d.finish()
	}},
	{"interrupt_tool", func(s *stage) {
		s.models(run("echo started > started; exec sleep 600"), say("I am here."))
		d, id := s.gemini()
		p := d.prompt(id, "run it")
		d.choose(d.asked(), "proceed_once")
		d.running("started")
		d.cancel(id)
		d.result(p)
		d.finish()
	}},
	{"killed_starting", func(s *stage) {
		d := s.open()
		d.call("initialize", acpHello)
		d.kill()
	}},
	{"killed_idle", func(s *stage) {
		s.models(say("Done."))
		d, id := s.gemini()
		d.result(d.prompt(id, "say something"))
		d.kill()
	}},
	{"killed_thinking", func(s *stage) {
		seen := make(chan struct{})
		s.model.expectAny(func(modelInput) reply {
			close(seen)
			return reply{live: &live{hold: s.hold}}
		})
		d, id := s.gemini()
		d.prompt(id, "think")
		<-seen
		d.kill()
	}},
	{"killed_text", func(s *stage) {
		s.models(say(words(3)).with(live{hold: s.hold}))
		d, id := s.gemini()
		d.prompt(id, "tell me all")
		d.updated("agent_message_chunk")
		d.kill()
	}},
	{"killed_question", func(s *stage) {
		s.models(run("touch a; echo hello"))
		d, id := s.gemini()
		d.prompt(id, "run it")
		d.asked()
		d.kill()
	}},
	{"killed_tool", func(s *stage) {
		s.models(run("echo started > started; exec sleep 600"))
		d, id := s.gemini()
		d.prompt(id, "run it")
		d.choose(d.asked(), "proceed_once")
		d.running("started")
		d.kill()
	}},
	{"loaded", func(s *stage) {
		s.models(say("The first answer.").with(live{thought: "**Thinking** First."}), list("."), say("Listed."), say("I go on."))
		d, id := s.gemini()
		d.name = "loaded_1"
		d.result(d.prompt(id, "one"))
		d.result(d.prompt(id, "list"))
		d.finish()
		d = s.open()
		d.name = "loaded_2"
		d.result(d.call("initialize", acpHello))
		d.result(d.call("session/load", object{"sessionId": id, "cwd": d.project, "mcpServers": []any{}}))
		d.result(d.prompt(id, "go on"))
		d.finish()
	}},
	{"loaded_after_kill", func(s *stage) {
		s.models(say("The first answer."), run("touch a; echo hello"), say("I go on."))
		d, id := s.gemini()
		d.name = "loaded_after_kill_1"
		d.result(d.prompt(id, "one"))
		d.prompt(id, "run it")
		d.asked()
		d.kill()
		d = s.open()
		d.name = "loaded_after_kill_2"
		d.result(d.call("initialize", acpHello))
		d.result(d.call("session/load", object{"sessionId": id, "cwd": d.project, "mcpServers": []any{}}))
		d.result(d.prompt(id, "go on"))
		d.finish()
	}},
	{"loaded_unknown", func(s *stage) {
		d := s.open()
		d.result(d.call("initialize", acpHello))
		d.result(d.call("session/load", object{"sessionId": "3e0b1324-bb2c-4774-b69d-427dabe62050", "cwd": d.project, "mcpServers": []any{}}))
		d.finish()
	}},
	{"parallel_calls", func(s *stage) {
		s.models(both(run("touch a; echo one"), run("touch b; echo two; exit 1")), both(list("."), read("README")), say("All ran."))
		d, id := s.gemini()
		p := d.prompt(id, "run both")
		d.choose(d.asked(), "proceed_once")
		d.choose(d.asked(), "proceed_once")
		d.result(p)
		d.finish()
	}},
	{"model_error", func(s *stage) {
		s.models(reply{live: &live{status: 400}}, say("Better."))
		d, id := s.gemini()
		d.result(d.prompt(id, "say something"))
		d.result(d.prompt(id, "and now"))
		d.finish()
	}},
	{"model_cut", func(s *stage) {
		s.models(say(words(2)).with(live{cut: true}), say("At last."), say("At last."), say("At last."), say("At last."))
		d, id := s.gemini()
		d.result(d.prompt(id, "say something"))
		d.finish()
	}},
	{"long_line", func(s *stage) {
		s.models(say(words(10000)).with(live{piece: 1 << 20}), say("Long."))
		d, id := s.gemini()
		d.result(d.prompt(id, "talk"))
		d.result(d.prompt(id, strings.Repeat("listen ", 20000)))
		d.finish()
	}},
	{"edit", func(s *stage) {
		s.models(
			use("write_file", object{"file_path": "new.txt", "content": "one\ntwo\n"}),
			use("replace", object{"file_path": "README", "instruction": "praise", "old_string": "A project.", "new_string": "A good project."}),
			say("Changed."))
		d, id := s.gemini()
		p := d.prompt(id, "change it")
		d.choose(d.asked(), "proceed_once")
		d.choose(d.asked(), "proceed_once")
		d.result(p)
		d.finish()
	}},
	{"set", func(s *stage) {
		s.models(say("As one."), run("touch a; echo unasked"), say("Done."))
		d, id := s.gemini()
		d.result(d.call("session/set_model", object{"sessionId": id, "modelId": "gemini-2.5-pro"}))
		d.result(d.prompt(id, "who are you"))
		d.result(d.call("session/set_mode", object{"sessionId": id, "modeId": "plan"}))
		d.result(d.call("session/set_mode", object{"sessionId": id, "modeId": "default"}))
		p := d.prompt(id, "run")
		d.choose(d.asked(), "proceed_once")
		d.result(p)
		d.result(d.call("session/set_mode", object{"sessionId": id, "modeId": "no-such-mode"}))
		d.result(d.call("no/such/method", object{"sessionId": id}))
		d.finish()
	}},
	{"plan_mode", func(s *stage) {
		s.models(use("enter_plan_mode", object{"reason": "It is large."}), say("Planned."))
		d, id := s.gemini()
		p := d.prompt(id, "plan it")
		d.choose(d.asked(), "proceed_once")
		d.result(p)
		d.finish()
	}},
	{"queued_prompt", func(s *stage) {
		s.models(say(words(2)).with(live{hold: s.hold}), say("And of two."))
		d, id := s.gemini()
		d.prompt(id, "tell me of one")
		d.updated("agent_message_chunk")
		p := d.prompt(id, "and of two")
		s.release()
		d.result(p)
		d.finish()
	}},
	{"subagent", func(s *stage) {
		s.model.expectAny(func(g modelInput) reply {
			switch {
			case strings.Contains(g.body, "delegate it") && len(g.results) == 0:
				return use("invoke_agent", object{"agent_name": "codebase_investigator", "prompt": "You count files."})
			case strings.Contains(g.body, "delegate it"):
				return say("One file.")
			case len(g.results) == 0:
				return list(".")
			}
			return use("complete_task", object{"result": "one file", "report": object{"SummaryOfFindings": "one", "ExplorationTrace": []any{"list"}, "RelevantLocations": []any{}}})
		})
		d, id := s.gemini()
		p := d.prompt(id, "delegate it")
		m := d.await("a request or the answer", func(m said) bool { return m.ID != nil })
		if m.Method != "" {
			d.choose(m, "proceed_once")
			d.result(p)
		}
		d.finish()
	}},
	{"file_system", func(s *stage) {
		s.models(read("README"), say("Read."))
		d := s.open()
		d.result(d.call("initialize", object{"protocolVersion": 1, "clientCapabilities": object{"fs": object{"readTextFile": true, "writeTextFile": true}, "terminal": true}}))
		m := d.result(d.call("session/new", object{"cwd": d.project, "mcpServers": []any{}}))
		p := d.prompt(m.Result["sessionId"].(string), "read it")
		for {
			m := d.await("a request or the answer", func(m said) bool { return m.ID != nil })
			if m.Method == "" {
				break
			}
			d.send(object{"id": m.ID, "error": object{"code": -32601, "message": "TRL does not do this for an agent"}})
		}
		_ = p
		d.finish()
	}},
	{"long_turn", func(s *stage) {
		var script []reply
		for i := range 25 {
			file := fmt.Sprintf("file%d", i)
			s.write(filepath.Join(s.project, file), file)
			script = append(script, read(file).with(live{before: fmt.Sprintf("Now I read %s, which is another one.", file), thought: fmt.Sprintf("**Reading** The file %s.", file)}))
		}
		s.models(append(script, say(words(2)+strings.Join(strings.Fields(acpNumbers), " and ")))...)
		d, id := s.gemini()
		d.result(d.prompt(id, "read it all"))
		d.finish()
	}},
	{"turn_limit", func(s *stage) {
		var script []reply
		for range 25 {
			script = append(script, read("README").with(live{before: words(1), thought: "**Reading** On."}))
		}
		s.models(append(script, say(words(40)))...)
		d, id := s.gemini()
		d.result(d.prompt(id, "read it all"))
		d.finish()
	}},
	{"end_of_input", func(s *stage) {
		s.models(run("touch a; echo hello"))
		d, id := s.gemini()
		d.prompt(id, "run it")
		d.asked()
		d.hangUp()
	}},
}

// acpNumbers are words that do not repeat: the agent stops a model that repeats itself.
const acpNumbers = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"

func run(command string) reply {
	return use("run_shell_command", object{"command": command, "description": "Runs it."})
}
func list(dir string) reply  { return use("list_directory", object{"dir_path": dir}) }
func read(file string) reply { return use("read_file", object{"file_path": file}) }

// acpHello begins the conversation with the program.
var acpHello = object{
	"protocolVersion": 1, "clientCapabilities": object{"elicitation": object{"form": object{}}},
	"clientInfo": object{"name": "trl", "title": "TRL", "version": "0"},
}

// gemini starts Gemini CLI and a session.
func (s *stage) gemini() (d *talk, session string) {
	s.t.Helper()
	d = s.open()
	d.result(d.call("initialize", acpHello))
	m := d.result(d.call("session/new", object{"cwd": d.project, "mcpServers": []any{}}))
	id, ok := m.Result["sessionId"].(string)
	if !ok {
		s.t.Fatalf("no session: %v\n%s", m.Error, &d.stderr)
	}
	return d, id
}

// prompt sends a prompt, and returns the id of its request.
func (d *talk) prompt(session, text string) int {
	d.t.Helper()
	return d.call("session/prompt", object{"sessionId": session, "prompt": []any{object{"type": "text", "text": text}}})
}

// choose answers a question by an option.
func (d *talk) choose(q said, option string) {
	d.t.Helper()
	d.answer(q, object{"outcome": object{"outcome": "selected", "optionId": option}})
}

// cancel stops the turn.
func (d *talk) cancel(session string) {
	d.t.Helper()
	d.send(object{"method": "session/cancel", "params": object{"sessionId": session}})
}

// updated waits for an update of a kind.
func (d *talk) updated(kind string) {
	d.t.Helper()
	d.await(kind, func(m said) bool {
		update, _ := m.Params["update"].(map[string]any)
		return update["sessionUpdate"] == kind
	})
}

// running waits until a command of the agent has made a file.
func (d *talk) running(file string) {
	d.t.Helper()
	trltest.Eventually(d.t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(d.project, file))
		return err == nil
	})
}
