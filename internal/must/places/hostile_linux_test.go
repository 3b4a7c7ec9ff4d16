package places

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/trltest"
	"github.com/terminal-runtime/trl/internal/trltest/engines"
	"github.com/terminal-runtime/trl/internal/trltest/gauge"
)

// The goals for a daemon with a place that means harm.
const (
	hostileMemory = 16 << 20 // the daemon must not grow by more than this
	hostileSlower = 1.2      // exec.run true on the host, over the same without the place
	// hostileTime is how long a call may take: the daemon stops an attempt to connect
	// after a minute.
	hostileTime = 75 * time.Second

	hostileRoundsLeast = 5
)

// hostileKind is a kind of hostile place.
type hostileKind struct {
	name string // of its table, and its node
	kind engines.Hostility
	ids  func(host, polite string) engines.IDs // whose ids it uses; nil: invented ones
	// silent means that calls take long to fail.
	silent bool
	// answers means that the place may answer for itself: what it says about others
	// must have no effect.
	answers bool
}

var hostileKinds = []hostileKind{
	{name: "silent", kind: engines.Silent, silent: true},
	{name: "deaf", kind: engines.Deaf, silent: true},
	{name: "banner", kind: engines.BannerForever},
	{name: "lhello", kind: engines.LongHello},
	{name: "lline", kind: engines.LongLine},
	{name: "hostids", kind: engines.OtherIDs, ids: func(host, _ string) engines.IDs { return engines.IDs{Session: host, Exec: "e-0123456789"} }},
	{name: "placeids", kind: engines.OtherIDs, ids: func(_, polite string) engines.IDs { return engines.IDs{Session: polite, Exec: "e-k7-0123456789"} }},
	{name: "unasked", kind: engines.Unasked, answers: true},
	{name: "hosteven", kind: engines.Events, answers: true, ids: func(host, _ string) engines.IDs { return engines.IDs{Session: host} }},
	{name: "placeven", kind: engines.Events, answers: true, ids: func(_, polite string) engines.IDs { return engines.IDs{Session: polite} }},
	{name: "digest", kind: engines.Digest, answers: true},
}

// TestMustStandHostilePlaces connects to places that mean harm, next to the host and
// a polite place.
func TestMustStandHostilePlaces(t *testing.T) {
	scripts := t.TempDir()
	polite, _ := far(t, "k7")
	configuration := commandTable("polite", polite)
	for _, k := range hostileKinds {
		configuration += commandTable(k.name, []string{"/bin/sh", filepath.Join(scripts, k.name)})
	}
	r := start(t, configuration)
	host := r.create(api.SessionCreateParams{Shell: "dash"}).SessionID
	there := r.create(api.SessionCreateParams{Runtime: "cmd:polite"}).SessionID
	for _, session := range []string{host, there} {
		r.run(session, "x=kept")
	}
	for _, k := range hostileKinds {
		var ids engines.IDs
		if k.ids != nil {
			ids = k.ids(host, there)
		}
		ids.Node = k.name
		argv := engines.HostilePlace(t, k.kind, ids)
		// What a place itself computes would be done by another machine, and must not
		// count: it gets the processor when no one else wants it.
		script := fmt.Sprintf("exec nice -n 19 '%s' %s %s '%s'\n", argv[0], argv[1], argv[2], argv[3])
		if err := os.WriteFile(filepath.Join(scripts, k.name), []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen := r.watch()
	waiting := r.askSilent()
	for _, k := range hostileKinds {
		t.Run(k.name, func(t *testing.T) { r.stand(t, host, k) })
	}
	for name, err := range waiting() {
		if err := unavailable(err, ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for session, runtime := range map[string]string{host: api.RuntimeHost, there: "cmd:polite"} {
		if got := r.run(session, "echo $x"); got != "kept\n" {
			t.Errorf("%s: %q", session, got)
		}
		var info api.Session
		r.call(api.MethodSessionInfo, api.SessionParams{SessionID: session}, &info)
		if info.State != api.StateIdle || info.Runtime != runtime {
			t.Errorf("%s: %+v", session, info)
		}
	}
	own := func(session string) bool {
		for _, k := range hostileKinds {
			if strings.HasPrefix(session, "s-"+k.name+"-") {
				return true
			}
		}
		return false
	}
	for _, s := range r.sessions() {
		if s.SessionID != host && s.SessionID != there && !own(s.SessionID) {
			t.Errorf("forged: %+v", s)
		}
	}
	for _, e := range seen() {
		// Our own commands change the states of our sessions, and nothing else does.
		if !own(e.SessionID) && (e.Type != api.EventState || e.State == api.StateTerminated) {
			t.Errorf("forged: %+v", e)
		}
	}
}

// stand measures the daemon while a hostile place is used.
func (r *rig) stand(t *testing.T, session string, k hostileKind) {
	runtime := "cmd:" + k.name
	before, peak, longest := r.resident(), int64(0), time.Duration(0)
	use := func() error {
		began := time.Now()
		err := r.use(t, runtime)
		longest = max(longest, time.Since(began))
		peak = max(peak, r.resident())
		if err == nil && k.answers {
			return nil
		}
		return unavailable(err, "")
	}
	alone, beside := r.runsIn(session), r.runsIn(session)
	var slower float64
	for i := range gauge.Rounds {
		if err := alone.Round(); err != nil {
			t.Fatal(err)
		}
		used := make(chan error, 1)
		go func() {
			if k.silent { // a call waits all the time: see askSilent
				used <- nil
				return
			}
			used <- use()
		}()
		err := beside.Round()
		if err := errors.Join(err, <-used); err != nil {
			t.Fatal(err)
		}
		if slower = gauge.Ratio(beside.Best, alone.Best); i >= hostileRoundsLeast && slower <= hostileSlower {
			break
		}
	}
	grown := max(peak, r.resident()) - before
	gauge.Figures(t, "the daemon grew by %.1f MiB; exec.run true on the host p50 %v beside it = %.2f × alone (%v); the longest call %v",
		float64(grown)/(1<<20), beside.Best, slower, alone.Best, longest.Round(time.Millisecond))
	if grown > hostileMemory || slower > hostileSlower {
		t.Errorf("the daemon grew by %d bytes, want at most %d, and commands on the host took %.2f × as long, want at most %.1f",
			grown, hostileMemory, slower, hostileSlower)
	}
}

// use makes calls to a place: one that ignores the backoff, and one that does not.
func (r *rig) use(t *testing.T, runtime string) error {
	ctx, cancel := within(t)
	defer cancel()
	if err := r.client.Call(ctx, api.MethodPlaceCheck, api.PlaceParams{Runtime: runtime}, nil); err != nil {
		return err
	}
	s, err := r.client.CreateSession(ctx, api.SessionCreateParams{Runtime: runtime})
	if err == nil {
		_, err = r.client.Run(ctx, runParams(s.SessionID, "true"))
	}
	return err
}

// askSilent calls the places that do not answer. It returns a function that waits
// for the errors.
func (r *rig) askSilent() (errs func() map[string]error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	all := map[string]error{}
	for _, k := range hostileKinds {
		if !k.silent {
			continue
		}
		wg.Go(func() {
			began := time.Now()
			_, err := r.client.CreateSession(r.t.Context(), api.SessionCreateParams{Runtime: "cmd:" + k.name})
			if took := time.Since(began); took > hostileTime {
				err = fmt.Errorf("it took %s, want at most %s: %w", took, hostileTime, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all[k.name] = err
		})
	}
	return func() map[string]error {
		wg.Wait()
		return all
	}
}

// sessions returns session.list.
func (r *rig) sessions() []api.Session {
	r.t.Helper()
	var list api.SessionListResult
	r.call(api.MethodSessionList, nil, &list)
	return list.Sessions
}

// watch collects events of sessions until the function it returns is called.
func (r *rig) watch() (seen func() []api.SessionEvent) {
	r.t.Helper()
	events, err := r.client.Watch(r.t.Context(), api.SessionWatchParams{})
	if err != nil {
		r.t.Fatal(err)
	}
	var all []api.SessionEvent
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range events.All() {
			if err != nil {
				return
			}
			all = append(all, *e)
		}
	}()
	return func() []api.SessionEvent {
		events.Close()
		<-done
		return all
	}
}

// TestHostileWords connects to places that print what a terminal would act on: in
// errors and lists it is escaped.
func TestHostileWords(t *testing.T) {
	hello := fmt.Sprintf(`{"jsonrpc":"2.0","method":"system.hello","params":{"version":"\\u001b[31mred\\u009b","protocol":%d,"node":"red","os":"\\u001b]0;owned\\u0007","arch":"\\r\\n","user":"\\u202e"}}`, api.Protocol)
	r := start(t, commandTable("says", []string{"/bin/sh", "-c", `printf '\033]0;owned\007\033[31mred\n'; printf '\033[31mred\302\233\n' >&2; exit 3`})+
		commandTable("hello", []string{"/bin/sh", "-c", `printf '` + strings.ReplaceAll(hello, `\`, `\\`) + `\n'; while read -r line; do [ -z "$line" ] || printf '{"jsonrpc":"2.0","id":%s,"result":{}}\n' "$((n+=1))"; done`}))
	for _, name := range []string{"says", "hello"} {
		ctx, cancel := within(t)
		_, err := r.client.CreateSession(ctx, api.SessionCreateParams{Runtime: "cmd:" + name})
		cancel()
		if name == "hello" && err == nil {
			continue // it has answered
		}
		if err := unavailable(err, ""); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e := api.AsError(err); acts(e.Message) || acts(e.Hint) {
			t.Errorf("%s: %q %q", name, e.Message, e.Hint)
		}
	}
	binary, err := trltest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"place", "list"}, {"place", "check", "cmd:says"}, {"status"}} {
		cmd := exec.Command(binary, append([]string{"--socket", r.Socket}, args...)...)
		cmd.Env = trltest.Environ(r.Dir)
		out, _ := cmd.CombinedOutput() // place check fails for a place that can't be reached
		if acts(string(out)) {
			t.Errorf("%v prints %q", args, out)
		}
		if args[0] == "place" && !strings.Contains(string(out), "cmd:says") {
			t.Errorf("%v prints %q", args, out)
		}
	}
	for _, p := range r.places() {
		if all := fmt.Sprint(p); acts(all) {
			t.Errorf("place.list: %q", all)
		}
	}
	r.stop()
}

// acts reports whether a terminal would do more with a text than print it.
func acts(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == '\u202e'
	})
}
