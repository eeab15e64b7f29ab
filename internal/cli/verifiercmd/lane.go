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
	"slices"
	"strings"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/cli/versioncmd"
	"striatum/internal/durable"
	"striatum/internal/home"
	"striatum/internal/hostid"
	"striatum/internal/problem"
	"striatum/internal/shellquote"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
	"striatum/snapshot"
	"striatum/verifier"
	"striatum/verifier/images"
	"striatum/verifier/journal"
	"striatum/verifier/modules"
	"striatum/verifier/toolchain"
)

// outputsQuota bounds what the lane keeps of old runs' streams.
const outputsQuota = 1 << 30

// outputsDir is where the lane keeps the streams of runs.
func outputsDir(h *home.Home) string { return filepath.Join(h.LaneDir(), "outputs") }

// opened is a home with its lane, the service that the lane records with, and the
// worktree that it is to work on.
type opened struct {
	*service.Session
	home        *home.Home
	laneID      string // by which the service knows the lane's key
	worktree    daemon.Worktree
	repo        daemon.Repository
	created     bool   // the store met the worktree just now
	fingerprint string // of this host
	progress    *progress
	lane        *verifier.Lane
}

// open opens the service for whoever holds the token in tokenFile, and the home's
// lane for the worktree at top. The caller must close it.
func open(ctx context.Context, f *cli.Factory, top, tokenFile string) (*opened, error) {
	wt, err := home.Worktree(top)
	if err != nil {
		return nil, err
	}
	s, err := service.Open(ctx, f, tokenFile)
	if err != nil {
		return nil, err
	}
	return openFor(ctx, f, s, wt)
}

// openFor is open with the service open, which it takes over.
func openFor(ctx context.Context, f *cli.Factory, s *service.Session, wt daemon.Worktree) (_ *opened, err error) {
	o := &opened{Session: s, worktree: wt, progress: newProgress(f.Streams, f.Now)}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if err = o.openHome(ctx, f); err != nil {
		return nil, err
	}
	if o.repo, o.created, err = o.Repository(ctx, o.worktree); err != nil {
		return nil, err
	}
	if o.fingerprint, err = hostFingerprint(o.home.LaneDir(), f.Rand); err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(f.Streams.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.lane, err = o.openLane(f, log, o.progress.step, func(h journal.Holder) {
		f.Streams.Notef("waiting for the lane: process %d holds it since %s (%s)", h.PID, h.Since, cli.Escape(h.What))
	})
	return o, err
}

// openHome opens the lane's home, and finds the id by which the service knows its
// key. A daemon knows a key that an operator enrolled, and takes what it signed from
// whoever holds that lane's token.
func (o *opened) openHome(ctx context.Context, f *cli.Factory) (err error) {
	const what = "run the lane of this home"
	if k := o.Is.Principal.Kind; k == daemon.Session {
		return problem.New(problem.Refused, what, "a session names checks, and runs none", "`striatum verifier run` asks the lane for them; the rest is for whoever runs that")
	}
	if o.home = o.UserHome; o.home.LaneKey == nil {
		var created []string
		o.home, created, err = home.Open(ctx, o.UserHome.Dir, f.Rand)
		embedded.Say(f, created)
		if err != nil {
			return err
		}
	}
	lanes, err := o.Lanes(ctx)
	if err != nil {
		return err
	}
	key := o.home.LaneKey.Public().ID()
	i := slices.IndexFunc(lanes, func(l daemon.LaneInfo) bool { return l.KeyID == key })
	switch {
	case i < 0:
		hint := "an operator runs: striatum lane enrol --key " + shellquote.Word(o.home.PublicKeyPath("lane")) + " --class isolated|shared"
		if len(lanes) > 0 {
			hint += "; or name the home of a lane that is enrolled with STRIATUM_HOME (of `striatum init --system`: /var/lib/striatum-lane)"
		}
		return problem.New(problem.Refused, what, "its key is not enrolled", hint)
	case lanes[i].Revoked != "":
		return problem.New(problem.Refused, what, fmt.Sprintf("its key was revoked (%s), and what it signs does not count", lanes[i].Revoked), "give the lane another home, and enrol that one's key")
	}
	o.laneID = lanes[i].LaneID
	if p := o.Is.Principal; p.Kind == daemon.Lane && p.Name != o.laneID {
		return problem.New(problem.Refused, what, fmt.Sprintf("the token is that of the lane %q, and this one is %q", p.Name, o.laneID), "")
	}
	return nil
}

// pins reads this host's pins of the worktree.
func (o *opened) pins(ctx context.Context, intentPath string) (*allowlist.Pins, string, error) {
	ring, err := o.Keyring(ctx)
	if err != nil {
		return nil, "", err
	}
	return embedded.Pins(o.worktree.Path, intentPath, o.fingerprint, ring)
}

// openLane wires the home's lane, which tells of its steps and of whom it waits for.
func (o *opened) openLane(f *cli.Factory, log *slog.Logger, step func(check, step string), waiting func(journal.Holder)) (*verifier.Lane, error) {
	h := o.home
	settings, err := h.Settings()
	if err != nil {
		return nil, err
	}
	dir := h.LaneDir()
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Config{
		Now: f.Now, Rand: f.Rand, Key: h.LaneKey, LaneID: o.laneID, MachineID: o.fingerprint, PID: os.Getpid(),
	})
	if err != nil {
		return nil, err
	}
	store := snapshot.Store{Dir: filepath.Join(dir, "snapshots")}
	self, digest, err := selfDigest()
	if err != nil {
		return nil, err
	}
	lane := verifier.New(verifier.Config{
		Dir: dir, Journal: j, OpenOutputs: func() (*journal.Outputs, error) {
			return journal.OpenOutputs(outputsDir(h), outputsQuota, f.Now)
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
				return nil, problem.Wrap(problem.Invalid, err, "open the lane's module store", "correct \"proxies\" or \"sumdb\" in "+h.ConfigPath()+", or GOPROXY")
			}
			return mods, nil
		},
		OpenImages: func() (*images.Store, error) {
			store, err := images.Open(images.Config{
				Dir: filepath.Join(dir, "images"), Sources: settings.Images, OS: runtime.GOOS, Arch: runtime.GOARCH, Now: f.Now,
			})
			if err != nil {
				return nil, problem.Wrap(problem.Invalid, err, "open the lane's image store", "correct \"images\" in "+h.ConfigPath())
			}
			return store, nil
		},
		OpenEngine: func(ctx context.Context) (sandbox.Engine, error) {
			return containerdengine.Open(ctx, EngineConfig(f, h, settings, self, log))
		},
		Key: h.LaneKey,
		Lane: receipt.Lane{
			LaneID: o.laneID, HostFingerprint: o.fingerprint, OS: runtime.GOOS, Arch: runtime.GOARCH,
		},
		Version: versioncmd.Read().Version, SelfSHA256: digest,
		Recorder: recorder{o.Session}, Keyring: o.Keyring,
		Now: f.Now, Rand: f.Rand, Log: log,
		Progress: step, Waiting: waiting,
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
