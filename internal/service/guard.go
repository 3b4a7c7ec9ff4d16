package service

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/access"
	"github.com/terminal-runtime/trl/internal/notify"
)

// This file decides who may call which method. Call checks allowed before it
// decodes parameters; the sessions that a tagged actor names are checked after
// decoding.

// allowed returns an error if the actor may not call the method.
func allowed(actor access.Actor, known bool, m *Method) *api.Error {
	if !known {
		return api.Errorf(api.CodeUnauthorized, "the request has no authenticated caller").
			WithHint("this is a bug in the daemon's transport: connect to its Unix socket instead")
	}
	if actor.Scope.Covers(m.Scope) {
		return nil
	}
	return api.Errorf(api.CodeForbidden, "%s needs the scope %s", m.Name, m.Scope).
		With("scope", m.Scope).
		WithHint("ask for a token made with `trl token create --scope %s`", m.Scope)
}

// ids holds the indexes of the fields of a params struct that name a session or
// an exec; nil means that there is no such field.
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

// check rejects params that name a session or an exec outside the actor's tag,
// as if it did not exist.
func (i ids) check(ctx context.Context, sessions Sessions, params reflect.Value) error {
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

// tagOf returns the tag that restricts the caller, or "".
func tagOf(ctx context.Context) string {
	actor, _ := access.From(ctx)
	return actor.Tag
}

// tagAware lists the methods that can be called without naming a session or an
// exec. They restrict themselves to the caller's tag, or reveal nothing about
// sessions.
var tagAware = []string{
	api.MethodSystemPing, api.MethodSystemInfo, api.MethodSystemStats, api.MethodSystemUpgrade,
	api.MethodSystemDelegate, api.MethodSystemDisconnect, // about the connection they come over
	api.MethodSessionCreate, api.MethodSessionList, api.MethodSessionWatch,
	api.MethodExecCancel, // its handler requires one of its two ids
	api.MethodPlaceList, api.MethodPlaceAdd, api.MethodPlaceCheck, api.MethodPlaceRemove, api.MethodPlaceUpgrade,
	api.MethodStreamClose,
}

// mustBeGuarded panics on a method that would be open to tagged tokens by
// oversight: every new method must name a session or an exec, or be in
// tagAware.
func mustBeGuarded(m *Method) {
	required := func(name string) bool {
		f, ok := m.Params.FieldByName(name)
		return ok && !strings.Contains(f.Tag.Get("json"), "omitempty")
	}
	if !required("SessionID") && !required("ExecID") && !slices.Contains(tagAware, m.Name) {
		panic("service: " + m.Name + " names no session or exec and is not in tagAware")
	}
}

// info shows a tagged caller what it can use, but not how the daemon is
// configured: paths and settings would reveal other users.
func info(s System, p Places) func(context.Context, api.None) (*api.SystemInfo, error) {
	return func(ctx context.Context, _ api.None) (*api.SystemInfo, error) {
		all := *s.SystemInfo(ctx)
		all.Places = visiblePlaces(ctx, p)
		all.Runtimes = slices.Clone(all.Runtimes)
		for i := range all.Places {
			all.Runtimes = append(all.Runtimes, all.Places[i].Runtime)
		}
		if tagOf(ctx) == "" {
			return &all, nil
		}
		// Listed one by one, so that a new field is not shown by mistake.
		return &api.SystemInfo{
			Version: all.Version, Protocol: all.Protocol, OS: all.OS, Arch: all.Arch,
			Config: visibleConfig(all.Config), Runtimes: all.Runtimes, Shells: all.Shells,
			Process: api.ProcessSupport{Tracking: all.Process.Tracking, Subreaper: all.Process.Subreaper},
			Limits:  all.Limits, Isolates: all.Isolates, Places: all.Places,
		}, nil
	}
}

// stats counts, for a tagged caller, only the listed sessions with its tag and
// their commands. Values that describe the whole daemon are 0.
func stats(b Sessions, s System) func(context.Context, api.None) (*api.SystemStats, error) {
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

// upgrade is allowed only on the Unix socket. Its callers are the daemon's user
// and root, who could replace the daemon anyway; no token can do that remotely.
func upgrade(s System) func(context.Context, api.None) (*api.UpgradeResult, error) {
	return func(ctx context.Context, _ api.None) (*api.UpgradeResult, error) {
		if actor, _ := access.From(ctx); actor.Transport != "unix" {
			return nil, api.Errorf(api.CodeForbidden, "%s is only available on the daemon's Unix socket", api.MethodSystemUpgrade).
				WithHint("run `trl upgrade` on the daemon's machine, as its user")
		}
		return s.Upgrade(ctx)
	}
}

// create requires that a tagged caller puts its tag on the session. The tag is
// never added silently: a client must know what it creates. The daemon sets the
// owner.
func create(b Sessions, who *accounts, byDefault api.Profile) func(context.Context, api.SessionCreateParams) (*api.Session, error) {
	return func(ctx context.Context, p api.SessionCreateParams) (*api.Session, error) {
		if tag := tagOf(ctx); tag != "" && !slices.Contains(p.Tags, tag) {
			return nil, api.Errorf(api.CodeForbidden, "this token can only create sessions with its own tag").
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
		if p.Isolation, err = Confine(ctx, p.Isolation, byDefault); err != nil {
			return nil, err
		}
		made, err := b.Create(ctx, p, owner)
		return made, AsForbidden(ctx, err)
	}
}

// list returns only sessions with the caller's tag.
func list(b Sessions) func(context.Context, api.SessionListParams) (*api.SessionListResult, error) {
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

// watch sends only events of sessions with the caller's tag. It also sends
// gaps, since the missed events may have been about one of those sessions, and
// the end of a snapshot.
func watch(b Sessions) func(context.Context, api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error) {
	return func(ctx context.Context, p api.SessionWatchParams) (*api.SessionWatchResult, notify.Feed, error) {
		result, feed, err := b.Watch(ctx, p)
		tag := tagOf(ctx)
		if err != nil || tag == "" {
			return result, feed, err
		}
		return result, func(ctx context.Context, send func(notify.Notification) error) error {
			return feed(ctx, func(n notify.Notification) error {
				e, ok := n.(*api.SessionEvent)
				if ok && (e.Type == api.EventGap || e.Type == api.EventSnapshotEnd || slices.Contains(e.Tags, tag)) {
					return send(n)
				}
				return nil
			})
		}, nil
	}
}
