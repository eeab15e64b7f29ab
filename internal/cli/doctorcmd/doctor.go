// Package doctorcmd is `striatum doctor`: whether this machine can run checks,
// and what to do where it cannot.
package doctorcmd

import (
	"context"
	"fmt"
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
	"striatum/verifier/toolchain"
)

// minFreeBytes is what a first run needs: compiled standard library, copies of
// the worktree, streams.
const minFreeBytes = 4 << 30

// check is one line of the report.
type check struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Observed string `json:"observed"`
	Fix      string `json:"fix"`
}

// New returns the command.
func New(f *cli.Factory) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say whether this machine can run checks, and what it lacks",
		Long: `Doctor looks at everything that a check needs: root, containerd and runc, kernel
features, cgroups, Go, the home and free space. It changes nothing and makes no
home. It exits 7 when something is missing.`,
		Example: "  striatum doctor\n  striatum doctor --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks, err := examine(cmd.Context(), f)
			if err != nil {
				return err
			}
			return report(f, out, checks)
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
	settings, err := h.Settings()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the running program: %w", err)
	}
	var checks []check
	for _, c := range containerdengine.Probe(verifiercmd.EngineConfig(f, h, settings, self, slog.New(slog.DiscardHandler))) {
		checks = append(checks, check(c))
	}
	return append(checks, goCheck(ctx, f, settings), homeCheck(dir), spaceCheck(dir)), nil
}

func goCheck(ctx context.Context, f *cli.Factory, s home.Settings) check {
	c := check{Name: "go"}
	t, err := toolchain.Find(ctx, toolchain.Config{Go: s.Go, Path: f.Getenv("PATH")})
	if err != nil {
		p := problem.Of(err)
		c.Observed, c.Fix = p.Error(), p.Hint
		return c
	}
	c.OK, c.Observed = true, fmt.Sprintf("%s at %s", t.Version, t.GOROOT)
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

func homeCheck(dir string) check {
	c := check{Name: "home", Observed: dir}
	at := existing(dir)
	if err := syscall.Access(at, 2); err != nil { // W_OK
		c.Observed, c.Fix = fmt.Sprintf("%s cannot be written: %v", at, err), "set STRIATUM_HOME to a folder that can be written"
		return c
	}
	c.OK = true
	if at != dir {
		c.Observed += " (made on first use)"
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

func report(f *cli.Factory, out cli.Output, checks []check) error {
	missing := false
	for _, c := range checks {
		missing = missing || !c.OK
	}
	if out == cli.JSON {
		if err := f.Streams.WriteJSON(checks); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(f.Streams.Out, 0, 0, 2, ' ', 0)
		for _, c := range checks {
			mark := "ok"
			if !c.OK {
				mark = "MISSING"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", mark, c.Name, cli.Escape(c.Observed))
			if !c.OK && c.Fix != "" {
				fmt.Fprintf(w, "\t\tfix: %s\n", cli.Escape(c.Fix))
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if missing {
		return cli.SilentError{Kind: problem.Missing}
	}
	return nil
}
