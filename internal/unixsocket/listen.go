// Package unixsocket listens on unix sockets for a group of users, says who is at
// the other end of a connection, and hands open folders over.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"striatum/internal/problem"
)

// probeTimeout is how long whoever holds the socket has to answer.
const probeTimeout = time.Second

// Listen opens the socket at path, of mode 0660, for the members of the group with
// that name; "" is the process's own. A socket that nobody answers on, left by a
// kill, is replaced; anything else in its place is left alone. Errors are problems.
func Listen(ctx context.Context, path, group string) (_ net.Listener, err error) {
	what := fmt.Sprintf("listen on %q", path)
	gid := -1
	if group != "" {
		g, err := user.LookupGroup(group)
		if err == nil {
			gid, err = strconv.Atoi(g.Gid)
		}
		if err != nil {
			return nil, problem.Wrap(problem.Missing, err, what, "name a group of this machine")
		}
	}
	if err := clear(ctx, path, what); err != nil {
		return nil, err
	}
	old := syscall.Umask(0o177) // until the group is set, nobody else connects
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, what, "name a socket in a folder that exists and that this user may write")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if gid >= 0 {
		if err := os.Lchown(path, -1, gid); err != nil {
			return nil, problem.Wrap(problem.Missing, err, what, "make this process's user a member of that group")
		}
	}
	if err := os.Chmod(path, 0o660); err != nil { //nolint:gosec // its group connects, which is what the group is for
		return nil, problem.Wrap(problem.Missing, err, what, "")
	}
	return l, nil
}

// clear removes a socket that is there and that nobody answers on.
func clear(ctx context.Context, path, what string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return problem.Wrap(problem.Missing, err, what, "name a socket in a folder that exists")
	case st.Mode().Type() != fs.ModeSocket:
		return problem.New(problem.Refused, what, "something that is no socket is there, and was left alone", "move it away, or name another socket")
	}
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(problem.New(problem.Refused, what, "another process answers there", "stop it, or name another socket"), conn.Close())
	case !errors.Is(err, syscall.ECONNREFUSED):
		return problem.Wrap(problem.Refused, err, what, "another process may hold it; stop that, or name another socket")
	}
	if err := os.Remove(path); err != nil {
		return problem.Wrap(problem.Missing, err, what, "remove what is there")
	}
	return nil
}
