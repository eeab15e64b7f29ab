package containerdengine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"

	"striatum/internal/cgroup"
	"striatum/internal/idrange"
	"striatum/internal/initproto"
	"striatum/internal/mountns"
	"striatum/internal/rootfs"
	"striatum/sandbox"
	"striatum/sandbox/ocispec"
)

// base is where, inside, the launcher finds what it needs.
const base = "/.striatum"

// stderrBytes is how much of the launcher's own complaints is kept.
const stderrBytes = 4 << 10

// initCapabilities are those of the launcher in the sandbox's user namespace.
var initCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID",
	"CAP_SYS_ADMIN", "CAP_SYS_CHROOT",
}

// box is a sandbox.Sandbox.
type box struct {
	e      *Engine
	id     string
	limits sandbox.Limits
	ids    *idrange.Range
	group  cgroup.Group
	conn   *initproto.Conn

	container containerd.Container
	task      containerd.Task
	exit      <-chan containerd.ExitStatus
	streams   *cio.DirectIO
	stderr    *bounded
	mounts    []string // to be unmounted, in order

	used    sync.Once
	discard sync.Once
	kill    sync.Once
}

// Prepare makes a container whose launcher waits for programs.
func (e *Engine) Prepare(ctx context.Context, spec sandbox.Spec) (_ sandbox.Sandbox, err error) {
	if err := validate(spec); err != nil {
		return nil, err
	}
	release, err := e.bin.enter()
	if err != nil {
		return nil, err
	}
	defer release()
	id, err := e.name()
	if err != nil {
		return nil, err
	}
	b := &box{e: e, id: id, limits: spec.Limits, group: e.group(id), stderr: &bounded{max: stderrBytes}}
	if b.ids, err = e.ids.Take(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.abandon())
		}
	}()
	setup, options, points, err := b.mount(spec)
	if err != nil {
		return nil, err
	}
	root, err := e.root(spec.Root, points)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("prepare sandbox: %w", context.Cause(ctx))
	}
	if err := b.create(ctx, ocispec.New([]string{sandbox.InitPath}, append(options,
		ocispec.WithRoot(root),
		ocispec.WithUserNamespace(b.ids.Base),
		ocispec.WithCapabilities(initCapabilities...),
		ocispec.WithLimits(b.group.Path, spec.Limits),
		ocispec.WithOpenFiles(e.files, e.files),
		ocispec.WithGroup(e.shimGroup()),
	)...)); err != nil {
		return nil, e.explain(err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("prepare sandbox: %w", context.Cause(ctx))
	}
	return b, b.greet(setup)
}

// mount makes the sandbox's own mounts in containerd's namespace, and says
// what the launcher, the specification and the root folder need to know.
func (b *box) mount(spec sandbox.Spec) (initproto.Setup, []ocispec.Option, []rootfs.Point, error) {
	setup := initproto.Setup{
		Seccomp: b.e.filter.Program, DiskBytes: spec.Limits.DiskBytes, Host: b.e.host,
		IDMap:      fmt.Sprintf("0 %d %d", b.ids.Base, ocispec.IDRange),
		CopyLayers: b.e.copies != nil,
	}
	points := []rootfs.Point{{Path: sandbox.InitPath, File: true}, {Path: base + "/fresh"}, {Path: base + "/shared"}}
	options := []ocispec.Option{ocispec.WithReadOnly(b.e.initBin, sandbox.InitPath)}
	mounts := slices.Clone(spec.Mounts)
	slices.SortStableFunc(mounts, func(x, y sandbox.Mount) int { return len(x.Target) - len(y.Target) })
	own := append([]sandbox.Mount{{Kind: sandbox.Scratch, Target: "/dev/shm"}}, mounts...)
	shared, fresh := false, false
	for i, m := range own {
		source, err := b.source(i, m)
		if err != nil {
			return initproto.Setup{}, nil, nil, err
		}
		point := rootfs.Point{Path: m.Target}
		switch m.Kind {
		case sandbox.ReadOnly:
			if st, err := os.Stat(m.Source); m.Source != "" && err == nil {
				point.File = !st.IsDir()
			}
			options = append(options, ocispec.WithReadOnly(source, m.Target))
			setup.ReadOnly = append(setup.ReadOnly, m.Target)
		case sandbox.Output:
			options = append(options, ocispec.WithWritable(source, m.Target))
		case sandbox.Layer, sandbox.Scratch:
			place := initproto.Mount{Kind: initproto.Scratch, Target: m.Target, Shared: m.Shared}
			if m.Kind == sandbox.Layer {
				place.Kind, place.Source = initproto.Layer, base+"/l"+strconv.Itoa(i)
				options = append(options, ocispec.WithReadOnly(source, place.Source))
				points = append(points, rootfs.Point{Path: place.Source})
				setup.Hide = append(setup.Hide, place.Source)
			}
			setup.Mounts = append(setup.Mounts, place)
			setup.Writable = append(setup.Writable, m.Target)
			shared, fresh = shared || m.Shared, fresh || !m.Shared && m.Target != "/dev/shm"
		}
		if m.Target != "/dev/shm" {
			points = append(points, point)
		}
	}
	shown, err := tools(spec.Root, points)
	if err != nil {
		return initproto.Setup{}, nil, nil, err
	}
	for _, p := range slices.Backward(shown) { // before the mounts, which may lie in them
		options = slices.Insert(options, 0, ocispec.WithReadOnly(filepath.Join("/", spec.Root, p.Path), p.Path))
		setup.ReadOnly = slices.Insert(setup.ReadOnly, 0, p.Path)
	}
	setup.FreshBytes = spec.Limits.DiskBytes
	if shared {
		setup.SharedBytes = spec.Limits.DiskBytes / 2
		setup.FreshBytes -= setup.SharedBytes
		setup.Hide = append(setup.Hide, base+"/shared")
	}
	return setup, options, points, nil
}

// tools says where tools are, inside and below root, which is empty for the
// host's.
func tools(root string, points []rootfs.Point) ([]rootfs.Point, error) {
	if root == "" {
		return []rootfs.Point{{Path: "/usr"}}, nil
	}
	shown, err := rootfs.Shown(root, points)
	if err != nil {
		return nil, fmt.Errorf("prepare sandbox: %w", err)
	}
	return shown, nil
}

// source returns the host path of a mount's content: for a Layer mounted with
// translated owners.
func (b *box) source(i int, m sandbox.Mount) (string, error) {
	source := m.Source
	if m.Volume != nil {
		v, ok := m.Volume.(*volume)
		if !ok || v.e != b.e {
			return "", fmt.Errorf("prepare sandbox: volume at %q is another engine's", m.Target)
		}
		if m.Kind == sandbox.Output {
			return v.dir, v.fill(b.ids.Base)
		}
		return v.dir, v.seal()
	}
	if m.Kind == sandbox.Scratch {
		return "", nil
	}
	if m.Kind == sandbox.ReadOnly {
		if _, err := os.Stat(source); err != nil {
			return "", fmt.Errorf("prepare sandbox: mount at %q: %w", m.Target, err)
		}
		return source, nil
	}
	target := filepath.Join(b.e.d.dir, "mounts", b.id, strconv.Itoa(i))
	bind := mountns.Bind{Source: source, Target: target, ReadOnly: true, IDMap: int(b.ids.Check.Fd())}
	if err := b.e.d.mounts.Do(bind.Mount); err != nil {
		return "", fmt.Errorf("prepare sandbox: %w", err)
	}
	b.mounts = append(b.mounts, target)
	return target, nil
}

// createLimit is how long making a container may take. A shim that has not
// answered by then is given up for a new one.
const createLimit = 30 * time.Second

// create makes the container and starts its launcher. It goes on when ctx ends:
// a shim whose creation of a task is broken off waits for the other end of its
// pipes for ever, and so does everything that it is asked later.
func (b *box) create(ctx context.Context, spec *specs.Spec) (err error) {
	ctx, cancel := context.WithTimeoutCause(b.e.context(context.WithoutCancel(ctx)), createLimit, errors.New("the shim does not answer"))
	defer cancel()
	defer func() {
		if ctx.Err() != nil {
			b.e.leaveShim()
		}
	}()
	b.container, err = b.e.d.client.NewContainer(ctx, b.id,
		containerd.WithSpec(spec),
		containerd.WithRuntime("io.containerd.runc.v2", b.e.runtimeOptions()),
	)
	if err != nil {
		return fmt.Errorf("create container: %w", err)
	}
	b.task, err = b.container.NewTask(ctx, func(id string) (cio.IO, error) {
		fifos, err := cio.NewFIFOSetInDir(filepath.Join(b.e.dir, "fifo"), id, false)
		if err != nil {
			return nil, err
		}
		b.streams, err = cio.NewDirectIO(context.WithoutCancel(ctx), fifos)
		return b.streams, err
	})
	if err != nil {
		return fmt.Errorf("create task: %w", err)
	}
	if b.exit, err = b.task.Wait(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("wait for task: %w", err)
	}
	if err := b.task.Start(ctx); err != nil {
		return fmt.Errorf("start task: %w", err)
	}
	return nil
}

// greet sends the setup, so that the launcher is done with it when Run is
// called.
func (b *box) greet(setup initproto.Setup) error {
	b.conn = &initproto.Conn{R: b.streams.Stdout, W: b.streams.Stdin, Max: initproto.MaxReply}
	if _, err := io.ReadFull(b.e.cfg.Rand, b.conn.Nonce[:]); err != nil {
		return fmt.Errorf("make nonce: %w", err)
	}
	go func() { _, _ = io.Copy(b.stderr, b.streams.Stderr) }()
	return b.conn.Write(initproto.TypeSetup, setup.Encode())
}

// validate refuses what no engine could do, or what would hide another mount.
func validate(spec sandbox.Spec) error {
	l := spec.Limits
	if l.WallClock <= 0 || l.MemoryBytes <= 0 || l.Pids <= 0 || l.MilliCPUs <= 0 || l.OutputBytes <= 0 || l.DiskBytes <= 0 {
		return errors.New("prepare sandbox: every limit must be positive")
	}
	if spec.Root != "" && (!path.IsAbs(spec.Root) || path.Clean(spec.Root) != spec.Root || spec.Root == "/") {
		return fmt.Errorf("prepare sandbox: %q is no possible root", spec.Root)
	}
	for i, m := range spec.Mounts {
		if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || reserved(m.Target) {
			return fmt.Errorf("prepare sandbox: %q is no possible mount target", m.Target)
		}
		hasSource, hasVolume := m.Source != "", m.Volume != nil
		ok := false
		switch m.Kind {
		case sandbox.ReadOnly:
			ok = hasSource != hasVolume && (hasVolume || path.IsAbs(m.Source))
		case sandbox.Layer:
			ok = !hasVolume && path.IsAbs(m.Source)
		case sandbox.Scratch:
			ok = !hasSource && !hasVolume
		case sandbox.Output:
			ok = hasVolume && !hasSource
		}
		if !ok {
			return fmt.Errorf("prepare sandbox: mount at %q has no proper kind and source", m.Target)
		}
		for j, other := range spec.Mounts {
			if i != j && (m.Target == other.Target || other.Kind != sandbox.ReadOnly && strings.HasPrefix(m.Target, other.Target+"/")) {
				return fmt.Errorf("prepare sandbox: mount at %q is in the way of the one at %q", other.Target, m.Target)
			}
		}
	}
	return nil
}

// reserved says whether a target is the engine's own affair.
func reserved(target string) bool {
	for _, p := range []string{"/etc", "/proc", "/dev", "/sys", base} {
		if target == "/" || target == "/usr" || target == p || strings.HasPrefix(target, p+"/") {
			return true
		}
	}
	return false
}

// bounded keeps the first max bytes written to it.
type bounded struct {
	mu  sync.Mutex
	buf bytes.Buffer
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), b.max-b.buf.Len())])
	return len(p), nil
}

func (b *bounded) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.TrimSpace(b.buf.String())
}
