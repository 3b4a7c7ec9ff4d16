package place

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/terminal-runtime/trl/api"
	"github.com/terminal-runtime/trl/internal/peer"
)

// ssh reaches a place on another machine: ssh:[USER@]HOST. All its connections are
// channels of one master. Caller must call one method at a time.
type ssh struct {
	target   target
	delivery *delivery
	master   *sshMaster // nil: none
}

// openSSH returns the transport of ssh:[USER@]HOST.
func openSSH(r *Registry, t target) transport { return &ssh{target: t, delivery: r.delivery} }

// connect opens a channel to the daemon on the host.
func (s *ssh) connect(ctx context.Context) (wire peer.Wire, hello *api.Hello, err error) {
	err = s.use(ctx, func(box *sshBox) error {
		wire, hello, err = s.delivery.open(ctx, s.target, box)
		return err
	})
	return wire, hello, err
}

// remove ends the daemon on the host and removes what was delivered.
func (s *ssh) remove(ctx context.Context) error {
	defer s.close()
	return s.use(ctx, func(box *sshBox) error { return s.delivery.remove(ctx, s.target, box) })
}

// upgrade replaces the program on the host.
func (s *ssh) upgrade(ctx context.Context) error {
	return s.use(ctx, func(box *sshBox) error { return s.delivery.upgrade(ctx, s.target, box) })
}

// use calls do with a way to run commands on the host. A master that was there before
// may have lost its host without knowing: if do fails for such a reason, it is called
// once more, with another master.
func (s *ssh) use(ctx context.Context, do func(*sshBox) error) error {
	for {
		box, reused, err := s.logIn(ctx)
		if err != nil {
			return err
		}
		if err = do(box); err == nil {
			return nil
		}
		suspect := box.suspects(err)
		if suspect || !reused { // without a connection nothing else would close it
			s.close()
		}
		if !suspect || !reused || ctx.Err() != nil {
			return err
		}
	}
}

// logIn returns a way to run commands on the host, and whether its master was there
// before.
func (s *ssh) logIn(ctx context.Context) (box *sshBox, reused bool, err error) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return nil, false, &refusal{reason: noEngine, message: "there is no ssh on this machine: " + err.Error(), hint: "install the OpenSSH client"}
	}
	client := &sshClient{program: program, host: s.target.address, env: s.target.env, dir: s.target.dir, name: s.target.name + ".ssh"}
	if s.master != nil && !s.master.alive() {
		s.close()
	}
	if reused = s.master != nil; !reused {
		if s.master, err = client.startMaster(ctx); err != nil {
			return nil, false, err
		}
	}
	return &sshBox{client: client, master: s.master}, reused, nil
}

// close ends the master, and so all channels.
func (s *ssh) close() {
	if s.master != nil {
		s.master.end()
		s.master = nil
	}
}

// sshBox runs commands on a host by channels of its master.
type sshBox struct {
	client *sshClient
	master *sshMaster
	lost   bool // a command did not find the master
}

func (b *sshBox) command(script string, args ...string) []string {
	argv := append([]string{b.client.program, "-S", b.master.socket}, channelOptions...)
	return append(append(argv, commonOptions...), "--", b.client.host, remoteCommand(script, args))
}

func (b *sshBox) explain(err error, stderr string) *refusal {
	host, status := b.client.host, 0
	if e, ok := errors.AsType[*peer.CommandError](err); ok {
		status = e.Status
	}
	r := &refusal{reason: unknown, message: fmt.Sprintf("%s: %v", host, err), hint: fmt.Sprintf("run `ssh %s true` in a terminal to see why", host)}
	switch {
	case isChannelRefused(stderr):
		r.reason, r.message = refused, host+" allows no more sessions over one connection"
		r.hint = "end some streams, or raise MaxSessions in the sshd_config of the host"
	case isMasterLost(stderr) || !b.master.alive():
		b.lost = true
		return explainLogin(host, b.master.stderr.Text()+stderr)
	case status < 0: // ssh runs, or a signal has ended it
		r.reason = silent
	case status == 127 || strings.Contains(err.Error(), "account is currently not available"): // no sh, or nologin
		r.reason, r.hint = noShell, "the user of the host needs a login shell and sh"
	}
	return r
}

// suspects reports whether a failure may be the master's.
func (b *sshBox) suspects(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return b.lost || !b.master.alive() || ok && r.reason == silent
}
