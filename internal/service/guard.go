package service

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
)

// This file is who may call what. Call asks allowed before it looks at
// parameters; what an actor with a tag may name is asked when they are decoded.

// allowed refuses who has no business with a method.
func allowed(actor access.Actor, known bool, m *Method) *api.Error {
	if !known {
		return api.Errorf(api.CodeUnauthorized, "nobody is known to make this request").
			WithHint("this is a fault of the daemon's carrier: connect to its Unix socket instead")
	}
	if actor.Scope.Covers(m.Scope) {
		return nil
	}
	return api.Errorf(api.CodeForbidden, "%s needs the scope %s", m.Name, m.Scope).
		With("scope", m.Scope).
		WithHint("ask for a token made with `trl token create --scope %s`", m.Scope)
}

// ids are the fields of a params struct that name a session or an exec; nil
// where there is none.
type ids struct{ session, exec []int }

func idsOf(params reflect.Type) ids {
	index := func(name string) []int {
		if f, ok := params.FieldByName(name); ok {
			return f.Index
		}
		return nil
	}
	return ids{session: index("SessionID"), exec: index("ExecID")}
}

// check refuses params that name what an actor with a tag may not see, as if
// it did not exist.
func (i ids) check(ctx context.Context, sessions Backend, params reflect.Value) error {
	if i.session == nil && i.exec == nil {
		return nil
	}
	tag := tagOf(ctx)
	if tag == "" {
		return nil
	}
	text := func(index []int) string {
		if index == nil {
			return ""
		}
		return params.FieldByIndex(index).String()
	}
	session, exec := text(i.session), text(i.exec)
	if session == "" && exec == "" {
		return nil
	}
	return sessions.Visible(tag, session, exec)
}

// tagOf is the tag that the caller is bound to, if any.
func tagOf(ctx context.Context) string {
	actor, _ := access.From(ctx)
	return actor.Tag
}

// tagAware are the methods that can be called without naming a session or an
// exec. They keep to the tag of their caller by themselves, or say nothing of
// sessions.
var tagAware = []string{
	api.MethodSystemPing, api.MethodSystemInfo, api.MethodSystemStats, api.MethodSystemUpgrade,
	api.MethodSessionCreate, api.MethodSessionList, api.MethodSessionWatch,
	api.MethodExecCancel, // one of its two names is required by its handler
	api.MethodStreamClose,
}

// mustBeGuarded keeps a new method from being open to tokens that are bound to
// a tag because nobody thought of them.
func mustBeGuarded(m *Method) {
	required := func(name string) bool {
		f, ok := m.Params.FieldByName(name)
		return ok && !strings.Contains(f.Tag.Get("json"), "omitempty")
	}
	if !required("SessionID") && !required("ExecID") && !slices.Contains(tagAware, m.Name) {
		panic("service: " + m.Name + " names no session, and nothing says what a token with a tag may do with it")
	}
}

// info shows a caller that is bound to a tag what it can use, and nothing of how
// the daemon is set up: paths and settings say who else is there.
func info(s System) func(context.Context, api.None) (*api.SystemInfo, error) {
	return func(ctx context.Context, _ api.None) (*api.SystemInfo, error) {
		all := s.SystemInfo(ctx)
		if tagOf(ctx) == "" {
			return all, nil
		}
		// Listed one by one, so that a new field is not shown by mistake.
		return &api.SystemInfo{
			Version: all.Version, Protocol: all.Protocol, OS: all.OS, Arch: all.Arch,
			Config: map[string]any{}, Runtimes: all.Runtimes, Shells: all.Shells,
			Process: api.ProcessSupport{Tracking: all.Process.Tracking, Subreaper: all.Process.Subreaper},
			Limits:  all.Limits, Isolates: all.Isolates,
		}, nil
	}
}

// stats counts only sessions with the caller's tag, those that are still listed,
// and their commands. What is the whole daemon's is 0.
func stats(b Backend, s System) func(context.Context, api.None) (*api.SystemStats, error) {
	visible := list(b)
	return func(ctx context.Context, _ api.None) (*api.SystemStats, error) {
		if tagOf(ctx) == "" {
			return s.Stats(ctx), nil
		}
		listed, err := visible(ctx, api.SessionListParams{})
		if err != nil {
			return nil, err
		}
		out := &api.SystemStats{
			UptimeMS:      s.Ping(ctx).UptimeMS,
			Sessions:      map[api.State]int{api.StateCreating: 0, api.StateIdle: 0, api.StateRunning: 0, api.StateTerminated: 0},
			SessionsTotal: int64(len(listed.Sessions)),
		}
		for i := range listed.Sessions {
			session := &listed.Sessions[i]
			out.Sessions[session.State]++
			out.ExecsTotal += session.ExecCount
		}
		out.ExecsRunning = out.Sessions[api.StateRunning]
		return out, nil
	}
}

// upgrade replaces the daemon only for callers on its Unix socket, who are its own
// user and root: those could replace it anyway. No token is to do that from afar.
func upgrade(s System) func(context.Context, api.None) (*api.UpgradeResult, error) {
	return func(ctx context.Context, _ api.None) (*api.UpgradeResult, error) {
		if actor, _ := access.From(ctx); actor.Transport != "unix" {
			return nil, api.Errorf(api.CodeForbidden, "%s is for callers on the daemon's Unix socket", api.MethodSystemUpgrade).
				WithHint("run `trl upgrade` on the daemon's machine, as its user")
		}
		return s.Upgrade(ctx)
	}
}

// create makes sessions only with the caller's tag. It is never added
// silently: a client must know what its sessions are. Whose they are, the daemon
// says.
func create(b Backend, who *accounts) func(context.Context, api.SessionCreateParams) (*api.Session, error) {
	return func(ctx context.Context, p api.SessionCreateParams) (*api.Session, error) {
		if tag := tagOf(ctx); tag != "" && !slices.Contains(p.Tags, tag) {
			return nil, api.Errorf(api.CodeForbidden, "this token makes sessions with its own tag only").
				With("tag", tag).WithHint("repeat session.create with tags: [%q]", tag)
		}
		if tag := tagOf(ctx); tag != "" && p.Parent != "" {
			if err := b.Visible(tag, p.Parent, ""); err != nil {
				return nil, err
			}
		}
		owner, err := who.owner(ctx, p.Client)
		if err != nil {
			return nil, err
		}
		p.Client = ""
		return b.Create(ctx, p, owner)
	}
}

// list shows only sessions with the caller's tag.
func list(b Backend) func(context.Context, api.SessionListParams) (*api.SessionListResult, error) {
	return func(ctx context.Context, p api.SessionListParams) (*api.SessionListResult, error) {
		tag := tagOf(ctx)
		if tag != "" && p.Tag == "" {
			p.Tag = tag
		}
		result, err := b.List(ctx, p)
		if err != nil || tag == "" {
			return result, err
		}
		result.Sessions = slices.DeleteFunc(result.Sessions, func(s api.Session) bool { return !slices.Contains(s.Tags, tag) })
		return result, nil
	}
}

// watch tells only of sessions with the caller's tag. A gap is told too: what
// was missed may have been of one of them.
func watch(b Backend) func(context.Context, api.SessionWatchParams) (*api.SessionWatchResult, api.Feed, error) {
	return func(ctx context.Context, p api.SessionWatchParams) (*api.SessionWatchResult, api.Feed, error) {
		result, feed, err := b.Watch(ctx, p)
		tag := tagOf(ctx)
		if err != nil || tag == "" {
			return result, feed, err
		}
		return result, func(ctx context.Context, send func(api.Notification) error) error {
			return feed(ctx, func(n api.Notification) error {
				e, ok := n.(*api.SessionEvent)
				if ok && (e.Type == api.EventGap || slices.Contains(e.Tags, tag)) {
					return send(n)
				}
				return nil
			})
		}, nil
	}
}
