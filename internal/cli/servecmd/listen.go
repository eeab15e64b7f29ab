package servecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"striatum/internal/execban"
	"striatum/internal/problem"
)

// probeTimeout is how long whoever holds the socket has to answer.
const probeTimeout = time.Second

// listen opens the socket and the port. A socket that nobody answers on, left by
// a kill, is replaced; anything else in its place is left alone.
func (c Config) listen(ctx context.Context) (_ []net.Listener, err error) {
	what := fmt.Sprintf("listen on %q", c.Socket)
	gid := -1
	if c.SocketGroup != "" {
		g, err := user.LookupGroup(c.SocketGroup)
		if err == nil {
			gid, err = strconv.Atoi(g.Gid)
		}
		if err != nil {
			return nil, problem.Wrap(problem.Missing, err, what, "socket_group names a group of this machine")
		}
	}
	if err := clearSocket(ctx, c.Socket, what); err != nil {
		return nil, err
	}
	old := syscall.Umask(0o177) // until the group is set, nobody else connects
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "unix", c.Socket)
	syscall.Umask(old)
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, what, "name a socket in a folder that exists and that the daemon may write")
	}
	listeners := []net.Listener{socket}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(listeners))
		}
	}()
	if gid >= 0 {
		if err := os.Lchown(c.Socket, -1, gid); err != nil {
			return nil, problem.Wrap(problem.Missing, err, what, "make the daemon's user a member of that group")
		}
	}
	if err := os.Chmod(c.Socket, 0o660); err != nil { //nolint:gosec // its group connects, which is what the group is for
		return nil, problem.Wrap(problem.Missing, err, what, "")
	}
	if c.TCP != "" {
		port, err := config.Listen(ctx, "tcp", c.TCP)
		if err != nil {
			return nil, problem.Wrap(problem.Missing, err, fmt.Sprintf("listen on %q", c.TCP), "name a port that is free")
		}
		listeners = append(listeners, port)
	}
	return listeners, nil
}

// clearSocket removes a socket that is there and that nobody answers on.
func clearSocket(ctx context.Context, path, what string) error {
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

// reachable says how an agent could reach the store, the socket or what
// configures them, which then are not isolated; empty if no way is seen. It can
// only lower what the operator said: who may become root, or the daemon's user, it
// cannot see.
func (c Config) reachable(file string) string {
	state, err := execban.Read()
	if err != nil || !state.Holds() {
		return "this process could start a program"
	}
	for _, path := range []string{c.Home, c.SQLitePath, c.PostgresDSNFile, file, filepath.Dir(c.Socket)} {
		if path == "" {
			continue
		}
		if why := writable(path); why != "" {
			return why
		}
	}
	return ""
}

// writable says which part of a path somebody else than root and this process's
// user could write, or owns.
func writable(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Sprintf("%q cannot be looked at", path)
	}
	if real, err := filepath.EvalSymlinks(path); err != nil || real != path {
		return fmt.Sprintf("%q is not there, or reached through a link", path)
	}
	for at := path; ; at = filepath.Dir(at) {
		st, err := os.Lstat(at)
		if err != nil {
			return fmt.Sprintf("%q cannot be looked at", at)
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok || sys.Uid != 0 && int(sys.Uid) != os.Geteuid() {
			return fmt.Sprintf("%q belongs to another user", at)
		}
		if st.Mode().Perm()&0o022 != 0 {
			return fmt.Sprintf("%q is writable by others", at)
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}
