package peer

import (
	"context"
	"net"

	"github.com/terminal-runtime/trl/internal/trust"
)

// DialUnix connects to a daemon's socket. It refuses a socket that another user
// could have made.
func DialUnix(ctx context.Context, path string) (*net.UnixConn, error) {
	// The listener receives commands, environments and secrets.
	user, err := trust.ServerUser(path)
	if err != nil {
		return nil, NoDaemon(path, err)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, NoDaemon(path, err)
	}
	conn := c.(*net.UnixConn)
	if err := trust.CheckPeer(conn, path, user); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
