package containerdengine

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"striatum/internal/cgroup"
	"striatum/internal/idrange"
	"striatum/internal/initproto"
	"striatum/internal/problem"
	"striatum/internal/reach"
	"striatum/internal/rootfs"
	"striatum/sandbox"
	"striatum/sandbox/seccompfilter"
)

// maxOpenFiles is the limit of descriptors in a sandbox, or less where the lane
// itself has less.
const maxOpenFiles = 65536

// Engine is a sandbox.Engine.
type Engine struct {
	cfg     Config
	id      string
	dir     string // of this engine, on the host
	initBin string // a copy in dir
	runc    string
	lock    *idrange.Lock
	d       *daemon
	ids     *idrange.Pool
	cgroups cgroup.Hierarchies
	filter  seccompfilter.Filter
	host    []initproto.Namespace
	files   uint64
	trust   error // why a binary could be replaced, or nil
	copies  error // why layers are copies and not overlays, or nil

	describe func() sandbox.Description

	mu    sync.Mutex
	roots map[string]string // by the list of mount points
	shims int               // how many shims were given up
	bin   *bin
}

var _ sandbox.Engine = (*Engine)(nil)

// Open starts or joins a containerd and removes what a killed engine of the
// same home left. Where the machine lacks something the error is a
// problem.Missing with what to install, where a binary could be replaced by
// others than root problem.Refused.
func Open(ctx context.Context, cfg Config) (_ *Engine, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, problem.New(problem.Missing, "open sandbox engine", "it needs root", "run the command as root")
	}
	e := &Engine{cfg: cfg, id: ID(cfg.Home), roots: map[string]string{}}
	e.dir = filepath.Join(cfg.RunDir, e.id)
	if e.filter, err = seccompfilter.Compile(); err != nil {
		return nil, err
	}
	if err := e.look(); err != nil {
		return nil, err
	}
	var undo []func() error
	defer func() {
		if err != nil {
			for _, f := range slices.Backward(undo) {
				err = errors.Join(err, f())
			}
		}
	}()
	if err := e.takeLock(); err != nil {
		return nil, err
	}
	undo = append(undo, e.lock.Close)
	if err := e.sweep(); err != nil {
		return nil, err
	}
	undo = append(undo, func() error { return os.RemoveAll(e.dir) })
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	undo = append(undo, e.d.stop)
	if cfg.Socket != "" {
		if err := e.sweepHost(ctx); err != nil {
			return nil, err
		}
	}
	e.ids, err = idrange.Open(filepath.Join(cfg.RunDir, "ids"), []string{e.initBin, "idle"}, sandbox.CheckUID)
	if err != nil {
		return nil, err
	}
	undo = append(undo, e.ids.Close)
	if err := tryMapped(cfg.Home, e.ids); err != nil {
		return nil, problem.Wrap(problem.Missing, err, "open sandbox engine", mappedFix)
	}
	e.copies = tryOverlay(e.dir)
	e.bin = newBin(e)
	return e, nil
}

// look finds out what the machine has.
func (e *Engine) look() error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	if e.cgroups, err = cgroup.Find(string(info)); err != nil {
		return problem.Wrap(problem.Missing, err, "find cgroup controllers", "mount cgroups with the controllers memory, pids and cpu")
	}
	for _, name := range []string{"pid", "net", "mnt", "ipc", "uts", "cgroup", "user"} {
		link, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return problem.Wrap(problem.Missing, err, "look at namespaces", "use a kernel with all namespaces")
		}
		e.host = append(e.host, initproto.Namespace{Name: name, Link: link})
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	e.files = min(limit.Max, maxOpenFiles)
	return nil
}

func (e *Engine) takeLock() error {
	if err := os.MkdirAll(e.cfg.RunDir, 0o711); err != nil {
		return fmt.Errorf("make run folder: %w", err)
	}
	lock, err := idrange.TryLock(e.dir + ".lock")
	if err != nil {
		return err
	}
	if lock == nil {
		return problem.New(problem.Indeterminate, "open sandbox engine", "another process runs sandboxes for this home", "wait until it has ended")
	}
	e.lock = lock
	return nil
}

// start makes the engine's folder and gets a containerd.
func (e *Engine) start(ctx context.Context) (err error) {
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{e.dir, 0o711}, {filepath.Join(e.dir, "fifo"), 0o700}} {
		if err := os.Mkdir(dir.path, dir.mode); err != nil {
			return fmt.Errorf("make engine folder: %w", err)
		}
		if err := os.Chmod(dir.path, dir.mode); err != nil {
			return fmt.Errorf("make engine folder: %w", err)
		}
	}
	e.initBin = filepath.Join(e.dir, "striatum-init")
	if err := e.copyInit(); err != nil {
		return err
	}
	if e.runc, err = findTrusted(e.cfg.RuncPath, "runc"); err != nil {
		return err
	}
	if e.cfg.Socket != "" {
		if e.d, err = joinDaemon(ctx, e.dir, e.cfg.Socket); err != nil {
			return err
		}
		e.trust = errors.Join(e.trust, reach.RootOnly(e.d.exe))
		e.describe = sync.OnceValue(func() sandbox.Description { return e.describeWith(e.d.exe, e.runc, e.initBin) })
		return nil
	}
	containerd, err := findTrusted(e.cfg.ContainerdPath, "containerd")
	if err != nil {
		return err
	}
	shim, err := findTrusted(e.cfg.ShimPath, "containerd-shim-runc-v2")
	if err != nil {
		return err
	}
	e.describe = sync.OnceValue(func() sandbox.Description { return e.describeWith(containerd, shim, e.runc, e.initBin) })
	e.d, err = startDaemon(ctx, e.dir, e.initBin, containerd, shim)
	return err
}

// copyInit copies striatum-init to where nobody else can touch it.
func (e *Engine) copyInit() error {
	path, err := filepath.EvalSymlinks(e.cfg.InitPath)
	if err != nil {
		return problem.Wrap(problem.Missing, err, "find striatum-init", "install it beside striatum: make build")
	}
	e.trust = reach.RootOnly(path)
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open striatum-init: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(e.initBin, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return fmt.Errorf("copy striatum-init: %w", err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return fmt.Errorf("copy striatum-init: %w", err)
	}
	return nil
}

// Describe returns the versions and digests of what the engine runs. The first
// call hashes the binaries, which takes a moment.
func (e *Engine) Describe() sandbox.Description { return e.describe() }

func (e *Engine) describeWith(binaries ...string) sandbox.Description {
	d := sandbox.Description{Engine: "containerd", Runtime: "runc"}
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	if v, err := e.d.client.Version(ctx); err == nil {
		d.EngineVersion = v.Version
	}
	if out, err := exec.CommandContext(ctx, e.runc, "--version").Output(); err == nil {
		d.RuntimeVersion = version(string(out))
	}
	var err error
	if d.Binaries, err = digests(binaries...); err != nil {
		e.cfg.Log.Warn("cannot hash the engine's binaries", slog.String("error", err.Error()))
	}
	return d
}

// Close removes everything that the engine made.
func (e *Engine) Close() error {
	err := e.bin.close()
	err = errors.Join(err, e.removeNamespace(), e.d.stop(), e.ids.Close())
	return errors.Join(err, e.removeGroups(), removeTree(e.dir), e.lock.Close())
}

// context returns ctx for calls in the engine's containerd namespace.
func (e *Engine) context(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, e.namespace())
}

func (e *Engine) namespace() string { return "striatum-" + e.id }

// shimGroup names the containers that share a shim.
func (e *Engine) shimGroup() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprintf("%s-%d", e.id, e.shims)
}

// leaveShim makes later containers have another shim.
func (e *Engine) leaveShim() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shims++
}

// name makes a random name.
func (e *Engine) name() (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(e.cfg.Rand, b[:]); err != nil {
		return "", fmt.Errorf("make name: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

func (e *Engine) runtimeOptions() *options.Options {
	return &options.Options{BinaryName: e.runc, Root: filepath.Join(e.d.dir, "runc")}
}

// root returns a root folder with the given mount points, for tools from tree or,
// if that is empty, from the host; made once for each list of them.
func (e *Engine) root(tree string, points []rootfs.Point) (string, error) {
	var key strings.Builder
	key.WriteString(tree)
	for _, p := range points {
		fmt.Fprintf(&key, "\x00%s\x00%v", p.Path, p.File)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if dir, ok := e.roots[key.String()]; ok {
		return dir, nil
	}
	name, err := e.name()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(e.d.dir, "rootfs", name)
	if err := e.d.mounts.Do(func() error {
		if tree != "" {
			return rootfs.MakeTree(dir, tree, points)
		}
		return rootfs.Make(dir, "/usr", "/etc", points)
	}); err != nil {
		return "", err
	}
	e.roots[key.String()] = dir
	return dir, nil
}
