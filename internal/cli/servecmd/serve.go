// Package servecmd is `striatumd serve`: the service of Striatum as a daemon.
//
// It takes the ban on starting programs first (package execban), then opens the
// store, then listens; package httpapi answers. It runs in the foreground, logs
// JSON lines to its error stream, and stops on SIGTERM when the calls that run
// have ended, after ten seconds at most.
package servecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"striatum/daemon"
	"striatum/daemon/httpapi"
	"striatum/internal/cli"
	"striatum/internal/cli/versioncmd"
	"striatum/internal/execban"
	"striatum/internal/filelock"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/seal"
	"striatum/store"
	"striatum/store/postgres"
)

// New returns the root command of striatumd.
func New(f *cli.Factory) *cobra.Command {
	root := cli.Parent("striatumd", "Keep the store, and answer for it on a socket",
		"  striatumd serve --config /etc/striatumd/config.json", newServe(f), newMigrate(f))
	root.Version = versioncmd.Read().Version
	root.SetVersionTemplate("striatumd {{.Version}}\n")
	return root
}

// Options are the flags of `striatumd serve`. What Flags says counts before the
// file Path.
type Options struct {
	Path  string
	Check bool
	Flags Config
}

func newServe(f *cli.Factory) *cobra.Command {
	var o Options
	var uids []uint
	var class string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer for the store on a unix socket",
		Long: `Serve opens the store and answers calls on a unix socket of mode 0660 and, with
--tcp, on a loopback port. It starts no program: on Linux it first takes no_new_privs
and a filter that refuses execve on every thread, and /healthz says what is in
force. Every call needs a token, but for one from root or an operator's uid on the
socket, which may mint the first: striatum token mint --kind operator.

What the file --config says is overridden by flags. docs/striatumd.md has both.`,
		Example: "  striatumd serve --config /etc/striatumd/config.json\n  striatumd serve --config /etc/striatumd/config.json --check-config",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Flags.StoreClass = seal.Class(class)
			for _, uid := range uids {
				if uid >= 1<<32-1 {
					return problem.New(problem.Usage, fmt.Sprintf("--operator-uid is %d", uid), "that is not a uid", "")
				}
				o.Flags.OperatorUIDs = append(o.Flags.OperatorUIDs, uint32(uid))
			}
			return run(cmd.Context(), f, o)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Path, "config", "", "the configuration `file` (default: none)")
	fl.BoolVar(&o.Check, "check-config", false, "print what would count, which has no secrets, and stop")
	fl.StringVar(&o.Flags.Home, "home", "", "the `folder` of the daemon's state (default: /var/lib/striatumd)")
	fl.StringVar(&o.Flags.SQLitePath, "sqlite-path", "", "the SQLite store `file` (default: store.db in the home)")
	fl.StringVar(&o.Flags.PostgresDSNFile, "postgres-dsn-file", "", "a `file` that names the PostgreSQL database to use instead")
	fl.StringVar(&o.Flags.Socket, "socket", "", "the unix `socket` (default: /run/striatumd/striatumd.sock)")
	fl.StringVar(&o.Flags.SocketGroup, "socket-group", "", "the `group` whose members may connect (default: the daemon's own)")
	fl.StringVar(&o.Flags.TCP, "tcp", "", "a loopback `address` with a port to answer on as well")
	fl.UintSliceVar(&uids, "operator-uid", nil, "a `uid`, beside root, that may call as an operator; may be repeated")
	fl.StringVar(&class, "store-class", "", `"isolated" if no agent can reach the store, or "shared" (default)`)
	return cmd
}

// effective returns the configuration that counts.
func (o Options) effective() (Config, error) {
	c, err := readConfig(o.Path)
	if err != nil {
		return Config{}, err
	}
	for _, f := range []struct{ to, from *string }{
		{&c.Home, &o.Flags.Home},
		{&c.Socket, &o.Flags.Socket},
		{&c.SocketGroup, &o.Flags.SocketGroup},
		{&c.TCP, &o.Flags.TCP},
		{(*string)(&c.StoreClass), (*string)(&o.Flags.StoreClass)},
	} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	if o.Flags.SQLitePath != "" || o.Flags.PostgresDSNFile != "" {
		c.SQLitePath, c.PostgresDSNFile = o.Flags.SQLitePath, o.Flags.PostgresDSNFile
	}
	if len(o.Flags.OperatorUIDs) > 0 {
		c.OperatorUIDs = o.Flags.OperatorUIDs
	}
	return c, c.complete()
}

func run(ctx context.Context, f *cli.Factory, o Options) error {
	c, err := o.effective()
	if err != nil {
		return err
	}
	if o.Check {
		return f.Streams.WriteJSON(c)
	}
	if err := execban.Install(); err != nil {
		return problem.Wrap(problem.Missing, err, "refuse every thread to start a program", "run on a kernel with seccomp")
	}
	return c.serve(ctx, f, slog.New(slog.NewJSONHandler(f.Streams.Err, nil)), o.Path)
}

func newMigrate(f *cli.Factory) *cobra.Command {
	var c Config
	cmd := &cobra.Command{
		Use:   "migrate --postgres-dsn-file FILE",
		Short: "Bring the schema of a PostgreSQL store up to date",
		Long: `Migrate makes the tables of a store in PostgreSQL, or brings those of an earlier
version up to date. The file names the database as the role that owns the schema,
which is not the one that serve works as: docs/store.md has both. It does nothing
where there is nothing to do.`,
		Example: "  striatumd migrate --postgres-dsn-file owner.dsn",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := c.dsn()
			if err != nil {
				return err
			}
			if err := postgres.Migrate(cmd.Context(), dsn); err != nil {
				return daemon.StoreProblem(err, "migrate the store in PostgreSQL")
			}
			f.Streams.Notef("the schema is up to date")
			return nil
		},
	}
	cmd.Flags().StringVar(&c.PostgresDSNFile, "postgres-dsn-file", "", "a `file` that names the database, as the role that owns the schema")
	if err := cmd.MarkFlagRequired("postgres-dsn-file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// lockWait is how long a daemon waits for one that is stopping.
const lockWait = 2 * time.Second

func (c Config) serve(ctx context.Context, f *cli.Factory, log *slog.Logger, file string) (err error) {
	h, created, err := home.OpenDaemon(ctx, c.Home, f.Rand)
	if err != nil {
		return err
	}
	for _, made := range created {
		log.InfoContext(ctx, "created", slog.String("what", made))
	}
	wait, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	release, err := filelock.Lock(wait, filepath.Join(c.Home, ".serve"))
	if err != nil {
		return problem.Wrap(problem.Refused, err, fmt.Sprintf("serve the home %q", c.Home), "another striatumd serves it; stop that one first")
	}
	defer func() { err = errors.Join(err, release()) }()
	st, name, err := c.open(ctx, f.Now)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	class, why := seal.ClassShared, ""
	if c.StoreClass == seal.ClassIsolated {
		if why = c.reachable(file); why == "" {
			class = seal.ClassIsolated
		} else {
			log.WarnContext(ctx, "the store is not isolated", slog.String("why", why))
		}
	}
	listeners, err := c.listen(ctx)
	if err != nil {
		return err
	}
	server := httpapi.New(httpapi.Config{
		Service: daemon.New(daemon.Config{
			Store: st, Now: f.Now, Rand: f.Rand, StoreClass: class, StoreName: name, Home: h.Dir, ReportKey: h.ReportKey,
		}),
		Log: log, Now: f.Now, Rand: f.Rand, OperatorUIDs: c.OperatorUIDs, UID: uint32(os.Geteuid()),
		Files:    c.files(file),
		Confined: execban.Read, ClassWhy: why,
	})
	state, err := execban.Read()
	if err != nil {
		return errors.Join(err, closeAll(listeners))
	}
	log.InfoContext(ctx, "serving", slog.String("socket", c.Socket), slog.String("tcp", c.TCP), slog.String("store", name),
		slog.String("store_class", string(class)), slog.Bool("can_start_programs", !state.Holds()))
	err = server.Serve(ctx, listeners...)
	log.InfoContext(ctx, "stopped")
	return err
}

// open opens the store and names it.
func (c Config) open(ctx context.Context, now func() time.Time) (store.Store, string, error) {
	if c.PostgresDSNFile == "" {
		st, err := home.OpenStore(ctx, c.SQLitePath, now)
		return st, "sqlite", err
	}
	dsn, err := c.dsn()
	if err != nil {
		return nil, "", err
	}
	st, err := postgres.Open(ctx, dsn, now)
	if err != nil {
		return nil, "", daemon.StoreProblem(err, "open the store in PostgreSQL")
	}
	return st, "postgresql", nil
}

func closeAll(listeners []net.Listener) error {
	var err error
	for _, l := range listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}
