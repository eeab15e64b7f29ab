package servecmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"striatum/internal/execban"
	"striatum/internal/problem"
	"striatum/internal/unixsocket"
)

// listen opens the socket and the port.
func (c Config) listen(ctx context.Context) ([]net.Listener, error) {
	socket, err := unixsocket.Listen(ctx, c.Socket, c.SocketGroup)
	if err != nil {
		return nil, err
	}
	listeners := []net.Listener{socket}
	if c.TCP != "" {
		var config net.ListenConfig
		port, err := config.Listen(ctx, "tcp", c.TCP)
		if err != nil {
			return nil, errors.Join(problem.Wrap(problem.Missing, err, fmt.Sprintf("listen on %q", c.TCP), "name a port that is free"), socket.Close())
		}
		listeners = append(listeners, port)
	}
	return listeners, nil
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
	for _, path := range append(c.files(file), filepath.Dir(c.Socket)) {
		if why := writable(path); why != "" {
			return why
		}
	}
	return ""
}

// files are what of the daemon's no agent may read or change.
func (c Config) files(file string) []string {
	return slices.DeleteFunc([]string{c.Home, c.SQLitePath, c.PostgresDSNFile, file}, func(path string) bool { return path == "" })
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
