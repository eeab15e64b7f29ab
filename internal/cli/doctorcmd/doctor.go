// Package doctorcmd is `striatum doctor`: whether this machine can run checks and
// whether the home and the chain of its log are whole, and what to do where not.
package doctorcmd

import (
	"context"
	"fmt"
	"go/version"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/verifiercmd"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/sandbox/containerdengine"
	"striatum/verifier/gocheck"
	"striatum/verifier/toolchain"
)

// minFreeBytes is what a first run needs: compiled standard library, copies of
// the worktree, streams.
const minFreeBytes = 4 << 30

// report is what `striatum doctor --output json` prints.
type report struct {
	SchemaVersion string  `json:"schema_version"` // striatum.doctor.v1
	OK            bool    `json:"ok"`             // every check is
	Checks        []check `json:"checks"`
}

// check is one line of the report.
type check struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Observed string `json:"observed"`
	Fix      string `json:"fix"`
	// kind says what a check that is not OK amounts to; zero is Missing.
	kind problem.Kind
}

// New returns the command.
func New(f *cli.Factory) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say whether this machine can run checks, and what it lacks",
		Long: `Doctor looks at everything that a check needs: root, containerd and runc, kernel
features, cgroups, Go, free space, and the home with its store, of whose log it
verifies every entry. It changes nothing and makes no home. It exits 3 when the
home, its store or its config.json is not to be used, else 7 when something is
missing.`,
		Example: "  striatum doctor\n  striatum doctor --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks, err := examine(cmd.Context(), f)
			if err != nil {
				return err
			}
			return show(f, out, checks)
		},
	}
	cli.AddOutput(cmd, &out)
	return cmd
}

func examine(ctx context.Context, f *cli.Factory) ([]check, error) {
	dir, err := home.Locate(f.Getenv)
	if err != nil {
		return nil, err
	}
	h := &home.Home{Dir: dir}
	var checks []check
	settings, err := h.Settings()
	if err != nil { // the rest is told as if there was no file
		p := problem.Of(err)
		checks, settings = append(checks, check{Name: "config", Observed: p.Error(), Fix: p.Hint, kind: problem.Refused}), home.Settings{}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the running program: %w", err)
	}
	for _, c := range containerdengine.Probe(verifiercmd.EngineConfig(f, h, settings, self, slog.New(slog.DiscardHandler))) {
		checks = append(checks, check{Name: c.Name, OK: c.OK, Observed: c.Observed, Fix: c.Fix})
	}
	checks = append(checks, goCheck(ctx, f, settings, h.ConfigPath()), homeCheck(ctx, f, dir), spaceCheck(dir))
	return checks, context.Cause(ctx)
}

func goCheck(ctx context.Context, f *cli.Factory, s home.Settings, configPath string) check {
	t, err := toolchain.Find(ctx, toolchain.Config{Go: s.Go, Path: f.Getenv("PATH")})
	if err != nil {
		p := problem.Of(err)
		return check{Name: "go", Observed: p.Error(), Fix: p.Hint}
	}
	return goUsable(t, configPath)
}

// goUsable says whether the checks understand a toolchain.
func goUsable(t toolchain.Toolchain, configPath string) check {
	c := check{Name: "go", OK: true, Observed: fmt.Sprintf("%s at %s", t.Version, t.GOROOT)}
	if version.Compare(t.Version, gocheck.MinGoVersion) < 0 {
		c.OK, c.Observed = false, fmt.Sprintf("%s is older than %s", c.Observed, gocheck.MinGoVersion)
		c.Fix = "install a newer Go from https://go.dev/dl/ to /usr/local/go and put /usr/local/go/bin first in PATH, or name it by \"go\" in " + configPath
	}
	return c
}

// existing is dir, or the nearest folder above it that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// homeCheck looks at the home, its store and its log.
func homeCheck(ctx context.Context, f *cli.Factory, dir string) check {
	c := check{Name: "home"}
	at := existing(dir)
	if err := syscall.Access(at, 2); err != nil { // W_OK
		c.Observed, c.Fix = fmt.Sprintf("%s cannot be written: %v", at, err), "set STRIATUM_HOME to a folder that can be written"
		return c
	}
	found, entries, err := home.Inspect(ctx, dir, f.Now)
	switch {
	case err != nil:
		p := problem.Of(err)
		c.Observed, c.Fix, c.kind = p.Error(), p.Hint, p.Kind
		if entries > 0 {
			c.Observed += fmt.Sprintf("; the %d entries before it hold", entries)
		}
	case !found:
		c.OK, c.Observed = true, dir+" (made on first use)"
	default:
		c.OK, c.Observed = true, fmt.Sprintf("%s, log of %d entries verified", dir, entries)
	}
	return c
}

func spaceCheck(dir string) check {
	c := check{Name: "disk"}
	var st syscall.Statfs_t
	if err := syscall.Statfs(existing(dir), &st); err != nil {
		c.Observed, c.Fix = err.Error(), "set STRIATUM_HOME to a folder on a disk"
		return c
	}
	free := int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // 32 bits on darwin
	c.OK = free >= minFreeBytes
	c.Observed = fmt.Sprintf("%d MiB free", free>>20)
	if !c.OK {
		c.Fix = fmt.Sprintf("free %d MiB, or set STRIATUM_HOME to a folder on another disk", minFreeBytes>>20)
	}
	return c
}

func show(f *cli.Factory, out cli.Output, checks []check) error {
	r := report{SchemaVersion: "striatum.doctor.v1", OK: true, Checks: checks}
	worst := problem.Missing
	for _, c := range checks {
		r.OK = r.OK && c.OK
		if !c.OK && c.kind == problem.Refused {
			worst = problem.Refused
		}
	}
	if out == cli.JSON {
		if err := f.Streams.WriteJSON(r); err != nil {
			return err
		}
	} else if err := table(f, checks); err != nil {
		return err
	}
	if !r.OK {
		return cli.SilentError{Kind: worst}
	}
	return nil
}

func table(f *cli.Factory, checks []check) error {
	w := tabwriter.NewWriter(f.Streams.Out, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		mark := "ok"
		switch {
		case !c.OK && c.kind == problem.Refused:
			mark = "REFUSED"
		case !c.OK:
			mark = "MISSING"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", mark, c.Name, cli.Escape(c.Observed))
		if !c.OK && c.Fix != "" {
			fmt.Fprintf(w, "\t\tfix: %s\n", cli.Escape(c.Fix))
		}
	}
	return w.Flush()
}
