package agents

import (
	"path/filepath"
	"strings"
)

// codexScenes are the recordings of Codex, as `codex app-server`.
var codexScenes = []scene{
	{"two_turns", func(s *stage) {
		s.models(say("The first answer, in pieces."), say("The second answer."))
		d, th := s.codex()
		d.turn(th, "u-1", "say something", nil)
		d.turnDone()
		d.turn(th, "u-2", "and again", nil)
		d.turnDone()
		d.finish()
	}},
	{"reasoning", func(s *stage) {
		s.models(say("It is four.").with(live{thought: "**Adding** two and two"}))
		d, th := s.codex()
		d.turn(th, "u-1", "what is two and two", nil)
		d.turnDone()
		d.finish()
	}},
	{"approval", func(s *stage) {
		s.models(
			shell("echo hello; pwd; exit 3").with(live{before: "I will run it."}), say("It failed with 3."),
			shell("echo again"), say("Fine."),
			shell("echo again"), say("Fine again."))
		d, th := s.codex()
		d.turn(th, "u-1", "run it", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.turnDone()
		d.turn(th, "u-2", "run the other", nil)
		q := d.asked()
		d.answer(q, object{"decision": object{"acceptWithExecpolicyAmendment": object{"execpolicy_amendment": q.Params["proposedExecpolicyAmendment"]}}})
		d.turnDone()
		d.turn(th, "u-3", "run the other once more", nil)
		d.turnDone()
		d.finish()
	}},
	{"denial", func(s *stage) {
		s.models(shell("rm -rf build"), say("Then not."), shell("rm -rf build"), say("never said"))
		d, th := s.codex()
		d.turn(th, "u-1", "remove it", nil)
		d.answer(d.asked(), object{"decision": "decline"})
		d.turnDone()
		d.turn(th, "u-2", "try again", nil)
		d.answer(d.asked(), object{"decision": "cancel"})
		d.turnDone()
		d.finish()
	}},
	{"interrupt_text", func(s *stage) {
		s.models(say(words(3)).with(live{hold: s.hold}), say("I am here."))
		d, th := s.codex()
		turn := d.turn(th, "u-1", "tell me all", nil)
		d.notified("item/agentMessage/delta")
		d.interrupt(th, turn)
		d.turnDone()
		s.release()
		d.turn(th, "u-2", "are you there", nil)
		d.turnDone()
		d.finish()
	}},
	{"interrupt_question", func(s *stage) {
		s.models(shell("echo hello"), say("I am here."))
		d, th := s.codex()
		turn := d.turn(th, "u-1", "run it", nil)
		q := d.asked()
		d.interrupt(th, turn)
		d.turnDone()
		d.answer(q, object{"decision": "accept"}) // too late
		d.turn(th, "u-2", "are you there", nil)
		d.turnDone()
		d.finish()
	}},
	{"interrupt_tool", func(s *stage) {
		s.models(shell("for i in $(seq 600); do echo tick; sleep 0.2; done"), say("never said"))
		d, th := s.codex()
		turn := d.turn(th, "u-1", "run it", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.notified("item/commandExecution/outputDelta")
		d.interrupt(th, turn)
		d.turnDone()
		d.finish()
	}},
	{"killed_starting", func(s *stage) {
		d := s.open()
		d.call("initialize", codexHello)
		d.kill()
	}},
	{"killed_idle", func(s *stage) {
		s.models(say("Done."))
		d, th := s.codex()
		d.turn(th, "u-1", "say something", nil)
		d.turnDone()
		d.kill()
	}},
	{"killed_thinking", func(s *stage) {
		s.models(reply{live: &live{hold: s.hold}})
		d, th := s.codex()
		d.turn(th, "u-1", "think", nil)
		d.notified("item/completed") // the message
		d.kill()
	}},
	{"killed_question", func(s *stage) {
		s.models(shell("echo hello"))
		d, th := s.codex()
		d.turn(th, "u-1", "run it", nil)
		d.asked()
		d.kill()
	}},
	{"killed_tool", func(s *stage) {
		s.models(shell("for i in $(seq 600); do echo tick; sleep 0.2; done"))
		d, th := s.codex()
		d.turn(th, "u-1", "run it", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.notified("item/commandExecution/outputDelta")
		d.kill()
	}},
	{"resumed", func(s *stage) {
		s.models(say(words(3)).with(live{hold: s.hold}), say("I go on."))
		d, th := s.codex()
		d.name = "resumed_1"
		d.turn(th, "u-1", "tell me all", nil)
		d.notified("item/agentMessage/delta")
		d.kill()
		s.release()
		d = s.open()
		d.name = "resumed_2"
		d.result(d.call("initialize", codexHello))
		d.send(object{"method": "initialized"})
		d.result(d.call("thread/resume", object{"threadId": th, "cwd": d.project, "approvalPolicy": "untrusted", "sandbox": "workspace-write", "excludeTurns": true}))
		d.turn(th, "u-2", "go on", nil)
		d.turnDone()
		d.finish()
	}},
	{"resumed_untaken", func(s *stage) {
		s.models(say("The first answer."), say("I go on."), say("I go on."))
		d, th := s.codex()
		d.name = "resumed_untaken_1"
		d.turn(th, "u-1", "one", nil)
		d.turnDone()
		d.call("turn/start", object{"threadId": th, "clientUserMessageId": "u-2", "input": []any{object{"type": "text", "text": "two", "text_elements": []any{}}}})
		d.kill() // before it says that it has it
		d = s.open()
		d.name = "resumed_untaken_2"
		d.result(d.call("initialize", codexHello))
		d.send(object{"method": "initialized"})
		d.result(d.call("thread/resume", object{"threadId": th, "cwd": d.project, "approvalPolicy": "untrusted", "sandbox": "workspace-write", "excludeTurns": true}))
		m := d.result(d.call("thread/turns/list", object{"threadId": th, "limit": 4, "itemsView": "full"}))
		if !strings.Contains(mustJSON(m.Result), `"u-2"`) {
			d.turn(th, "u-2", "two", nil)
			d.turnDone()
		}
		d.finish()
	}},
	{"resumed_unknown", func(s *stage) {
		d := s.open()
		d.result(d.call("initialize", codexHello))
		d.send(object{"method": "initialized"})
		d.result(d.call("thread/resume", object{"threadId": "01a1e281-99bd-7da1-a832-ed294fccde72", "cwd": d.project, "approvalPolicy": "untrusted", "excludeTurns": true}))
		d.finish()
	}},
	{"forked", func(s *stage) {
		s.models(say("The first answer."), say("The second answer."), say("Another second answer."))
		d, th := s.codex()
		d.name = "forked_1"
		first := d.turn(th, "u-1", "one", nil)
		d.turnDone()
		d.turn(th, "u-2", "two", nil)
		d.turnDone()
		d.finish()
		d = s.open()
		d.name = "forked_2"
		d.result(d.call("initialize", codexHello))
		d.send(object{"method": "initialized"})
		m := d.result(d.call("thread/fork", object{"threadId": th, "lastTurnId": first, "cwd": d.project, "approvalPolicy": "untrusted", "sandbox": "workspace-write", "excludeTurns": true}))
		d.turn(m.Result["thread"].(map[string]any)["id"].(string), "u-3", "two, differently", nil)
		d.turnDone()
		d.finish()
	}},
	{"parallel_calls", func(s *stage) {
		s.models(both(shell("echo one"), shell("echo two; exit 1")), say("Both ran."))
		d, th := s.codex()
		d.turn(th, "u-1", "run both", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.answer(d.asked(), object{"decision": "acceptForSession"})
		d.turnDone()
		d.finish()
	}},
	{"streamed_output", func(s *stage) {
		s.models(shell("for i in 1 2 3 4; do echo line $i; sleep 0.3; done; printf 'caf\\303\\251 \\033[31mred\\033[0m'"), say("Counted."))
		d, th := s.codex()
		d.turn(th, "u-1", "count", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.turnDone()
		d.finish()
	}},
	{"model_error", func(s *stage) {
		s.models(reply{live: &live{status: 400}}, say("Better."))
		d, th := s.codex()
		d.turn(th, "u-1", "say something", nil)
		d.turnDone()
		d.turn(th, "u-2", "and now", nil)
		d.turnDone()
		d.finish()
	}},
	{"model_retried", func(s *stage) {
		s.models(say(words(2)).with(live{cut: true}), say("At last."))
		d, th := s.codex()
		d.turn(th, "u-1", "say something", nil)
		d.turnDone()
		d.finish()
	}},
	{"model_gone", func(s *stage) {
		cut := say(words(1)).with(live{cut: true})
		s.models(cut, cut, cut, cut, cut, cut, cut, cut)
		d, th := s.codex()
		d.turn(th, "u-1", "say something", nil)
		d.turnDone()
		d.finish()
	}},
	{"long_line", func(s *stage) {
		s.models(say(words(10000)).with(live{piece: 100000}), shell("yes 'a line of output' | head -c 100000"), say("Long."))
		d, th := s.codex()
		d.turn(th, "u-1", "talk", nil)
		d.turnDone()
		d.turn(th, "u-2", "run", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.turnDone()
		d.finish()
	}},
	{"plan", func(s *stage) {
		step := func(text, status string) object { return object{"step": text, "status": status} }
		s.models(
			use("update_plan", object{"explanation": "Two steps.", "plan": []any{step("Look", "in_progress"), step("Leap", "pending")}}),
			use("update_plan", object{"plan": []any{step("Look", "completed"), step("Leap", "in_progress")}}),
			say("Planned."))
		d, th := s.codex()
		d.turn(th, "u-1", "plan it", nil)
		d.turnDone()
		d.finish()
	}},
	{"file_change", func(s *stage) {
		patch := func(text string) reply { return use("apply_patch", object{"custom": text}) }
		s.models(
			patch("*** Begin Patch\n*** Add File: new.txt\n+one\n+two\n*** Update File: README\n@@\n-A project.\n+A good project.\n*** End Patch\n"),
			say("Changed."),
			patch("*** Begin Patch\n*** Delete File: new.txt\n*** End Patch\n"),
			say("Kept."))
		d, th := s.codex()
		d.turn(th, "u-1", "change it", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.turnDone()
		d.turn(th, "u-2", "delete it", nil)
		d.answer(d.asked(), object{"decision": "decline"})
		d.turnDone()
		d.finish()
	}},
	{"queued_message", func(s *stage) {
		s.models(say(words(2)).with(live{hold: s.hold}), say("Both it is."))
		d, th := s.codex()
		d.turn(th, "u-1", "tell me of one", nil)
		d.notified("item/agentMessage/delta")
		d.turn(th, "u-2", "and of two", nil)
		s.release()
		d.turnDone()
		d.finish()
	}},
	{"set_model", func(s *stage) {
		s.models(say("As one."), say("As the other."))
		d, th := s.codex()
		d.turn(th, "u-1", "who are you", nil)
		d.turnDone()
		d.turn(th, "u-2", "and now", object{"model": "gpt-5.6-sol"})
		d.turnDone()
		d.finish()
	}},
	{"set_mode", func(s *stage) {
		s.models(shell("echo unasked"), say("Done."))
		d, th := s.codex()
		d.result(d.call("thread/settings/update", object{"threadId": th, "approvalPolicy": "never", "sandboxPolicy": object{"type": "dangerFullAccess"}}))
		d.turn(th, "u-1", "run", nil)
		d.turnDone()
		d.result(d.call("thread/settings/update", object{"threadId": th, "approvalPolicy": "no-such-policy"}))
		d.finish()
	}},
	{"background_command", func(s *stage) {
		s.models(use("exec_command", object{"cmd": "echo started; sleep 4; echo ended", "yield_time_ms": 250}), say("It runs."))
		d, th := s.codex()
		d.turn(th, "u-1", "run it", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.turnDone()
		d.await("the end of the command", func(m said) bool {
			item, _ := m.Params["item"].(map[string]any)
			return m.Method == "item/completed" && item["type"] == "commandExecution"
		})
		d.finish()
	}},
	{"choice", func(s *stage) {
		s.models(use("request_user_input", object{"questions": []any{object{
			"id": "colour", "header": "Colour", "question": "Which colour?",
			"options": []any{object{"label": "Red (Recommended)", "description": "Warm."}, object{"label": "Blue", "description": "Cold."}},
		}}}), say("Blue it is."))
		d, th := s.codex()
		d.turn(th, "u-1", "ask me", nil)
		d.answer(d.asked(), object{"answers": object{"colour": object{"answers": []any{"Blue"}}}})
		d.turnDone()
		d.finish()
	}},
	{"subagent", func(s *stage) {
		s.model.expectAny(func(g modelInput) reply {
			switch {
			case strings.Contains(g.body, "You count files") && !strings.Contains(g.body, "delegate it"):
				if len(g.results) == 0 {
					return shell("ls | wc -l")
				}
				return say("There is one file.")
			case len(g.results) == 0:
				return use("multi_agent_v1/spawn_agent", object{"message": "You count files."})
			case strings.Contains(g.toolText(), "agent_id"):
				return use("multi_agent_v1/wait_agent", object{"targets": []any{between(g.toolText(), `"agent_id":"`, `"`)}, "timeout_ms": 20000})
			}
			return say("One file.")
		})
		d, th := s.codex()
		d.turn(th, "u-1", "delegate it", nil)
		d.answer(d.asked(), object{"decision": "accept"})
		d.await("the end of the turn of the main thread", func(m said) bool { return m.Method == "turn/completed" && m.Params["threadId"] == th })
		d.finish()
	}},
	{"long_turn", func(s *stage) {
		var script []reply
		for range 25 {
			script = append(script, shell("cat README").with(live{before: words(1), thought: "**Reading** on"}))
		}
		s.models(append(script, say(words(40)))...)
		d, th := s.codex()
		d.turn(th, "u-1", "read it all", nil)
		for {
			m := d.await("a question or the end", func(m said) bool { return m.Method == "turn/completed" || m.Method != "" && m.ID != nil })
			if m.Method == "turn/completed" {
				break
			}
			d.answer(m, object{"decision": "accept"})
		}
		d.finish()
	}},
	{"end_of_input", func(s *stage) {
		s.models(shell("echo hello"))
		d, th := s.codex()
		d.turn(th, "u-1", "run it", nil)
		d.asked()
		d.hangUp()
	}},
	{"wrong_requests", func(s *stage) {
		s.models(say("Still here."))
		d, th := s.codex()
		d.result(d.call("turn/interrupt", object{"threadId": th, "turnId": "no-such-turn"}))
		d.result(d.call("no/such/method", object{}))
		d.turn(th, "u-1", "are you there", nil)
		d.turnDone()
		d.turn(th, "u-1", "are you there", nil) // the same id again
		d.turnDone()
		d.finish()
	}},
}

// shell returns a reply that runs a command.
func shell(command string) reply {
	return use("exec_command", object{"cmd": command, "yield_time_ms": 20000})
}

// words returns a long text.
func words(n int) string { return strings.Repeat("A line of words that is long. ", n) }

// between returns the part of a text between two others.
func between(text, before, after string) string {
	_, rest, _ := strings.Cut(text, before)
	found, _, _ := strings.Cut(rest, after)
	return found
}

// codexHello begins the conversation with the program.
var codexHello = object{
	"clientInfo":   object{"name": "trl", "title": "TRL", "version": "0"},
	"capabilities": object{"experimentalApi": true, "requestAttestation": false},
}

// codex starts Codex and a thread.
func (s *stage) codex() (d *talk, thread string) {
	s.t.Helper()
	s.write(filepath.Join(s.project, ".keep"), "")
	d = s.open()
	d.result(d.call("initialize", codexHello))
	d.send(object{"method": "initialized"})
	m := d.result(d.call("thread/start", object{"cwd": d.project, "approvalPolicy": "untrusted", "sandbox": "workspace-write"}))
	info, ok := m.Result["thread"].(map[string]any)
	if !ok {
		s.t.Fatalf("no thread: %v\n%s", m.Error, &d.stderr)
	}
	return d, info["id"].(string)
}

// turn starts a turn, and returns its id.
func (d *talk) turn(thread, key, text string, more object) string {
	d.t.Helper()
	params := object{"threadId": thread, "clientUserMessageId": key, "input": []any{object{"type": "text", "text": text, "text_elements": []any{}}}}
	for name, value := range more {
		params[name] = value
	}
	m := d.result(d.call("turn/start", params))
	turn, _ := m.Result["turn"].(map[string]any)
	id, _ := turn["id"].(string)
	return id
}

// interrupt stops a turn.
func (d *talk) interrupt(thread, turn string) {
	d.t.Helper()
	d.call("turn/interrupt", object{"threadId": thread, "turnId": turn})
}

// turnDone waits for the end of a turn.
func (d *talk) turnDone() {
	d.t.Helper()
	d.notified("turn/completed")
}
