// Package embedded gives a command the service of the user's own home: it
// opens home and store, says what it had to make, and finds out who asks. It is
// the way in for everything that runs without a daemon.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/home"
	"striatum/internal/problem"
)

// Session is an open home with its service. The caller must Close it.
type Session struct {
	Home    *home.Home
	Service *daemon.Service
	// Created names what this use had to make, as it was told to the user.
	Created []string

	close func() error
}

// Open opens the home that the environment names, makes what is missing and
// says so on the error stream. Where a daemon was named instead it is refused.
// Errors are problems.
func Open(ctx context.Context, f *cli.Factory) (*Session, error) {
	if socket := f.DaemonSocket(); socket != "" {
		return nil, problem.New(problem.Usage, "open the home", fmt.Sprintf("this command works with the store in the home, and the daemon on %q was named", socket), "run it without --socket and STRIATUM_SOCKET")
	}
	dir, err := home.Locate(f.Getenv)
	if err != nil {
		return nil, err
	}
	h, created, err := home.Open(ctx, dir, f.Rand)
	Say(f, created)
	if err != nil {
		return nil, err
	}
	svc, more, closeStore, err := h.Service(ctx, f.Now, f.Rand)
	Say(f, more)
	if err != nil {
		return nil, err
	}
	return &Session{Home: h, Service: svc, Created: append(created, more...), close: closeStore}, nil
}

// Say says what was made, also where the rest could not be.
func Say(f *cli.Factory, created []string) {
	for _, c := range created {
		f.Streams.Notef("created %s", cli.Escape(c))
	}
}

// Close closes the store.
func (s *Session) Close() error { return s.close() }

// Principal says who asks: whose token lies in tokenFile or in the
// file that STRIATUM_TOKEN_FILE names, else the local user.
func (s *Session) Principal(ctx context.Context, f *cli.Factory, tokenFile string) (daemon.Principal, error) {
	token, err := Token(f, tokenFile)
	if err != nil {
		return daemon.Principal{}, err
	}
	return s.Service.Authenticate(ctx, token)
}

// Token reads the token in tokenFile or in the file that STRIATUM_TOKEN_FILE
// names; "" where neither is set. An empty file is refused.
func Token(f *cli.Factory, tokenFile string) (string, error) {
	token, err := f.Token(tokenFile, ReadFile)
	if err == nil && token == "" && (tokenFile != "" || f.Getenv("STRIATUM_TOKEN_FILE") != "") {
		err = problem.New(problem.Refused, "check the token", "the token file is empty", "it holds one token, as it was shown once, and nothing else")
	}
	return token, err
}

// ErrNotRegular is within the error of reading what is a folder, FIFO, socket or
// device.
var ErrNotRegular = errors.New("it is not a regular file")

// ReadFile reads a file that the user named, of at most limit bytes. It does
// not wait for a FIFO or a device.
func ReadFile(path string, limit int64) (data []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("read %q: %w", path, perr.Err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("read %q: %w", path, ErrNotRegular)
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("read %q: it has more than %d bytes", path, limit)
	}
	return data, err
}
