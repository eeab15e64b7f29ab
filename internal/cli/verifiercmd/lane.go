package verifiercmd

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/versioncmd"
	"striatum/internal/durable"
	"striatum/internal/home"
	"striatum/internal/hostid"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
	"striatum/snapshot"
	"striatum/verifier"
	"striatum/verifier/journal"
	"striatum/verifier/modules"
	"striatum/verifier/toolchain"
)

// outputsQuota bounds what the lane keeps of old runs' streams.
const outputsQuota = 1 << 30

// outputsDir is where the lane keeps the streams of runs.
func outputsDir(h *home.Home) string { return filepath.Join(h.LaneDir(), "outputs") }

// opened is a home with its lane, and the worktree that it is to work on.
type opened struct {
	*embedded.Session
	worktree    daemon.Worktree
	repo        daemon.Repository
	created     bool // the store met the worktree just now
	principal   daemon.Principal
	fingerprint string // of this host
	progress    *progress
	lane        *verifier.Lane
}

// open opens the home for whoever holds the token in tokenFile, and its lane for
// the worktree at top. The caller must close it.
func open(ctx context.Context, f *cli.Factory, top, tokenFile string) (_ *opened, err error) {
	o := &opened{progress: newProgress(f.Streams, f.Now)}
	if o.worktree, err = home.Worktree(top); err != nil {
		return nil, err
	}
	if o.Session, err = embedded.Open(ctx, f); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if o.principal, err = o.Principal(ctx, f, tokenFile); err != nil {
		return nil, err
	}
	if o.repo, o.created, err = o.Service.As(o.principal).Repository(ctx, o.worktree); err != nil {
		return nil, err
	}
	if o.fingerprint, err = hostFingerprint(o.Home.LaneDir(), f.Rand); err != nil {
		return nil, err
	}
	o.lane, err = openLane(f, o.Session, o.principal, o.fingerprint, o.progress)
	return o, err
}

// pins reads this host's pins of the worktree.
func (o *opened) pins(ctx context.Context, intentPath string) (*allowlist.Pins, string, error) {
	ring, err := o.Service.Keyring(ctx)
	if err != nil {
		return nil, "", err
	}
	return embedded.Pins(o.worktree.Path, intentPath, o.fingerprint, ring)
}

// openLane wires the home's lane.
func openLane(f *cli.Factory, s *embedded.Session, principal daemon.Principal, fingerprint string, p *progress) (*verifier.Lane, error) {
	settings, err := s.Home.Settings()
	if err != nil {
		return nil, err
	}
	dir := s.Home.LaneDir()
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Config{
		Now: f.Now, Rand: f.Rand, Key: s.Home.LaneKey, LaneID: s.Home.LaneID(), MachineID: fingerprint, PID: os.Getpid(),
	})
	if err != nil {
		return nil, err
	}
	store := snapshot.Store{Dir: filepath.Join(dir, "snapshots")}
	self, digest, err := selfDigest()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(f.Streams.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	lane := verifier.New(verifier.Config{
		Dir: dir, Journal: j, OpenOutputs: func() (*journal.Outputs, error) {
			return journal.OpenOutputs(outputsDir(s.Home), outputsQuota, f.Now)
		},
		Snapshots: store,
		Snapshot: snapshot.Options{
			Limits: snapshot.Limits{Files: settings.SnapshotFiles, Bytes: settings.SnapshotBytes},
			Now:    f.Now,
		},
		Toolchain: toolchain.Config{Go: settings.Go, Path: f.Getenv("PATH"), TempDir: dir},
		OpenModules: func(chain toolchain.Toolchain) (*modules.Store, error) {
			mods, err := modules.Open(modules.Config{
				Dir: filepath.Join(dir, "modules"), DownloadCache: downloadCache(f.Getenv), Proxies: proxies(settings, f.Getenv, chain), Now: f.Now,
				SumDB: settings.SumDB, NoSumDB: cmp.Or(f.Getenv("GONOSUMDB"), f.Getenv("GOPRIVATE")),
			})
			if err != nil {
				return nil, problem.Wrap(problem.Invalid, err, "open the lane's module store", "correct \"proxies\" or \"sumdb\" in "+s.Home.ConfigPath()+", or GOPROXY")
			}
			return mods, nil
		},
		OpenEngine: func(ctx context.Context) (sandbox.Engine, error) {
			return containerdengine.Open(ctx, EngineConfig(f, s.Home, settings, self, log))
		},
		Key: s.Home.LaneKey,
		Lane: receipt.Lane{
			LaneID: s.Home.LaneID(), HostFingerprint: fingerprint, OS: runtime.GOOS, Arch: runtime.GOARCH,
		},
		Version: versioncmd.Read().Version, SelfSHA256: digest,
		Recorder: recorder{s.Service, principal}, Keyring: s.Service.Keyring,
		Now: f.Now, Rand: f.Rand, Log: log,
		Progress: p.step,
		Waiting: func(h journal.Holder) {
			f.Streams.Notef("waiting for the lane: process %d holds it since %s (%s)", h.PID, h.Since, cli.Escape(h.What))
		},
	})
	return lane, nil
}

// EngineConfig is the sandbox engine of a home. striatum-init lies beside
// striatum.
func EngineConfig(f *cli.Factory, h *home.Home, s home.Settings, self string, log *slog.Logger) containerdengine.Config {
	return containerdengine.Config{
		Home: h.Dir, Socket: s.Containerd, ContainerdPath: s.ContainerdPath, ShimPath: s.ShimPath, RuncPath: s.RuncPath,
		InitPath: filepath.Join(filepath.Dir(self), "striatum-init"), Rand: f.Rand, Now: f.Now, Log: log,
	}
}

// hostFingerprint names the host by its machine id. A host without one gets an
// id of its own in the lane's folder.
func hostFingerprint(dir string, random io.Reader) (string, error) {
	fp, err := hostid.Fingerprint(hostid.MachineIDFile)
	if !errors.Is(err, hostid.ErrNoMachineID) {
		return fp, err
	}
	path := filepath.Join(dir, "machine-id")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		var id [16]byte
		if _, err := io.ReadFull(random, id[:]); err != nil {
			return "", fmt.Errorf("draw a machine id: %w", err)
		}
		if err := durable.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		if err := durable.WriteFile(path, []byte(hex.EncodeToString(id[:])+"\n"), 0o600); err != nil {
			return "", err
		}
	}
	return hostid.Fingerprint(path)
}

// downloadCache is the user's module download cache, by the environment alone.
func downloadCache(getenv func(string) string) string {
	dir := getenv("GOMODCACHE")
	if dir == "" {
		gopath, _, _ := strings.Cut(getenv("GOPATH"), string(os.PathListSeparator))
		if gopath == "" {
			if getenv("HOME") == "" {
				return ""
			}
			gopath = filepath.Join(getenv("HOME"), "go")
		}
		dir = filepath.Join(gopath, "pkg", "mod")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "cache", "download")
}

// proxies are the module proxies of the settings, else those of GOPROXY, else
// those that the lane's go asks where nobody says otherwise.
func proxies(s home.Settings, getenv func(string) string, chain toolchain.Toolchain) []string {
	if s.Proxies != nil {
		return *s.Proxies
	}
	return modules.ParseProxies(cmp.Or(getenv("GOPROXY"), chain.Proxies))
}
