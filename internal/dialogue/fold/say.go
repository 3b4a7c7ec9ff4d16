package fold

import (
	"slices"
	"strconv"

	"github.com/terminal-runtime/trl/api"
)

// This file has what is said to the agent, and how far it has come.

// say takes a message of a person.
func (f *Fold) say(r *Record) {
	if f.entities[r.ID] != nil {
		return // said before
	}
	f.put(api.DialogueEntity{
		Type: api.EntityMessage, ID: r.ID, Role: "user", Text: r.Text, Content: r.Content, Final: true, Delivery: "accepted", By: r.By, Key: r.Key,
	})
	f.pending = append(f.pending, &message{ID: r.ID, Key: r.Key, Text: r.Text, Content: r.Content})
	f.tellPending()
}

// tellPending tells what the agent of this run has not got.
func (f *Fold) tellPending() {
	if !f.alive || !f.isReady {
		return
	}
	for _, m := range slices.Clone(f.pending) {
		if m.Told == f.run {
			continue
		}
		if m.Written != 0 && !f.agent.again(f, m) {
			f.delivery(m.ID, "unknown")
			continue
		}
		m.Told = f.run
		n := len(f.out)
		if err := f.agent.message(f, m); err != nil {
			f.fault(api.DialogueEntity{Code: api.DialogueAgentError, Message: err.Error()})
			f.delivery(m.ID, "dropped")
			continue
		}
		for i := n; i < len(f.out); i++ {
			f.out[i].Msg = m.ID
		}
	}
}

// written notes that a line is in the input of the agent.
func (f *Fold) written(key string) {
	i := slices.IndexFunc(f.out, func(o outLine) bool { return o.Key == key })
	if i < 0 {
		return
	}
	msg := f.out[i].Msg
	f.out = slices.Delete(f.out, i, i+1)
	for _, m := range f.pending {
		if m.ID == msg {
			m.Written = f.run
			f.delivery(msg, "written")
			break
		}
	}
}

// The states of a message that a person said, in their order.
func deliveryRank(s string) int {
	return slices.Index([]string{"", "accepted", "written", "taken", "done", "dropped", "unknown"}, s)
}

// delivery moves a message on, never back.
func (f *Fold) delivery(id, to string) {
	x := f.entities[id]
	if x == nil || x.e.Type != api.EntityMessage || deliveryRank(x.e.Delivery) >= deliveryRank(to) || x.e.Delivery == "" {
		return
	}
	if deliveryRank(to) >= deliveryRank("taken") {
		f.pending = slices.DeleteFunc(f.pending, func(m *message) bool { return m.ID == id })
		f.out = slices.DeleteFunc(f.out, func(o outLine) bool { return o.Msg == id })
	}
	if deliveryRank(to) >= deliveryRank("done") {
		x.keep = false
	}
	f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Delivery: to})
}

// taken notes that the agent has a message and works on it, or will without
// getting it again. It reports false if that was known.
func (f *Fold) taken(id string) bool {
	x := f.entities[id]
	if x == nil || deliveryRank(x.e.Delivery) >= deliveryRank("taken") {
		return false
	}
	f.delivery(id, "taken")
	f.inTurn = append(f.inTurn, id)
	if f.turn != nil {
		f.put(api.DialogueEntity{Type: api.EntityMessage, ID: id, Turn: f.turn.e.ID})
	}
	return true
}

// done notes that the agent has finished what a message set off.
func (f *Fold) done(id string) {
	f.delivery(id, "done")
	f.inTurn = slices.DeleteFunc(f.inTurn, func(x string) bool { return x == id })
}

// doneAll does it for all that the agent has taken.
func (f *Fold) doneAll() {
	for _, id := range slices.Clone(f.inTurn) {
		f.done(id)
	}
}

// leaveTaken leaves what the agent has taken as it is: what became of it is not known.
func (f *Fold) leaveTaken() {
	for _, id := range f.inTurn {
		if x := f.entities[id]; x != nil {
			x.keep = false
		}
	}
	f.inTurn = nil
}

// dropMessage notes that the agent will never take a message.
func (f *Fold) dropMessage(id string) { f.delivery(id, "dropped") }

func (f *Fold) answer(r *Record) error {
	q := f.entities[r.ID]
	e := q.entity()
	n := len(f.out)
	if err := f.agent.answer(f, &e, r.Answer); err != nil {
		f.out, f.refused = f.out[:n], ""
		return err
	}
	state := "answered"
	if r.Reason == "expired" {
		state = "expired"
	}
	f.settleQuestion(q, state, r.By, r.Answer)
	if f.refused != "" {
		f.settle(api.DialogueEntity{Type: api.EntityToolCall, ID: f.refused, Status: "denied"})
		f.refused = ""
	}
	return nil
}

// tell queues a line for the agent of this run. The key must be unique within the
// run and the same after every replay.
func (f *Fold) tell(key string, data []byte) {
	if n := len(data); n == 0 || data[n-1] != '\n' {
		data = append(data, '\n')
	}
	f.out = append(f.out, outLine{Key: "r" + strconv.Itoa(f.run) + "." + key, Data: data})
}
