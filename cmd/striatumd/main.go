// Striatumd keeps the store and answers for it on a socket. See docs/striatumd.md.
package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"striatum/internal/cli"
	"striatum/internal/cli/servecmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f := &cli.Factory{
		Streams: cli.Streams{
			In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
			ErrIsTerminal: term.IsTerminal(int(os.Stderr.Fd())), InIsTerminal: term.IsTerminal(int(os.Stdin.Fd())),
		},
		Getenv: os.Getenv,
		Getwd:  os.Getwd,
		Now:    time.Now,
		Rand:   rand.Reader,
	}
	code := cli.Run(ctx, servecmd.New(f), f.Streams)
	stop()
	os.Exit(code)
}
