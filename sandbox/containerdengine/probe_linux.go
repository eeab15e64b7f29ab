package containerdengine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"striatum/internal/cgroup"
	"striatum/internal/idrange"
	"striatum/internal/mountns"
	"striatum/internal/reach"
	"striatum/sandbox"
)

// What to do about a kernel, or a file system, that lacks something.
const (
	kernelFix = "use Linux 6.1 or newer"
	mappedFix = kernelFix + ", and a STRIATUM_HOME on a file system whose owners it can translate (ext4, XFS, Btrfs)"
)

// Probe looks at what Open needs and changes nothing. Where a check is not OK
// those that build on it are left out.
func Probe(cfg Config) []Check {
	var checks []Check
	add := func(name, observed, fix string, err error) bool {
		c := Check{Name: name, OK: err == nil, Observed: observed}
		if err != nil {
			c.Observed, c.Fix = err.Error(), fix
		}
		checks = append(checks, c)
		return c.OK
	}
	var err error
	if os.Geteuid() != 0 {
		err = fmt.Errorf("this is user %d", os.Geteuid())
	}
	root := add("root", "yes", "run the command as root", err)
	binaries := []struct{ name, path string }{
		{"containerd", cfg.ContainerdPath}, {"containerd-shim-runc-v2", cfg.ShimPath}, {"runc", cfg.RuncPath},
	}
	if cfg.Socket != "" {
		_, err := os.Stat(cfg.Socket)
		add("containerd", cfg.Socket, "start containerd, or leave its socket out of the configuration", err)
		binaries = binaries[2:]
	}
	for _, b := range binaries {
		path, err := findTrusted(b.path, b.name)
		add(b.name, path, installHint, err)
	}
	path, err := filepath.EvalSymlinks(cfg.InitPath)
	if err == nil {
		err = reach.RootOnly(path)
	}
	add("striatum-init", path, "put it beside striatum, owned by root: make build", err)
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil {
		_, err = cgroup.Find(string(info))
	}
	add("cgroups", "memory, pids, cpu", "mount cgroups with these controllers", err)
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err == nil && !slices.Contains(strings.Fields(string(actions)), "errno") {
		err = errors.New("no filter action errno")
	}
	add("seccomp", strings.TrimSpace(string(actions)), kernelFix, err)
	spaces, err := readNumber("/proc/sys/user/max_user_namespaces")
	if err == nil && spaces == "0" {
		err = errors.New("none are allowed")
	}
	add("user namespaces", spaces+" allowed", "sysctl user.max_user_namespaces=15000", err)
	if root {
		copies, err := probeMounts(cfg)
		layers := "overlays"
		if copies != nil {
			layers = "copies, which take time and disk limit: " + copies.Error()
		}
		add("layers", layers, mappedFix, err)
	}
	return checks
}

func readNumber(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}

// probeMounts tries, in a folder of its own, what Open tries of the kernel's
// mounts. The first error says why layers are copies, the second why there can
// be none.
func probeMounts(cfg Config) (copies, err error) {
	dir, err := os.MkdirTemp("", "striatum-probe-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pool, err := idrange.Open(filepath.Join(dir, "ids"), []string{cfg.InitPath, "idle"}, sandbox.CheckUID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	return tryOverlay(dir), tryMapped(cfg.Home, pool)
}

// tryOverlay mounts an overlay whose upper folder is on a tmpfs at dir, as the
// launcher does, in a mount namespace that ends with the call. Before Linux
// 6.6 a tmpfs has no user attributes: an overlay is then mounted all the same,
// but fails when a folder that is below the layer is removed and made again.
func tryOverlay(dir string) error {
	return mountns.Try(func() error {
		if err := mountns.Tmpfs(dir, 1<<20); err != nil {
			return err
		}
		for _, name := range []string{"lower", "upper", "work", "over"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				return err
			}
		}
		if err := unix.Setxattr(filepath.Join(dir, "upper"), "user.striatum", []byte("y"), 0); err != nil {
			return fmt.Errorf("set user attribute on tmpfs: %w", err)
		}
		data := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work,userxattr", dir)
		if err := unix.Mount("overlay", filepath.Join(dir, "over"), "overlay", 0, data); err != nil {
			return fmt.Errorf("mount overlay: %w", err)
		}
		return nil
	})
}

// tryMapped translates the owners of what is in home, or in the nearest folder
// above it that exists, as for the source of a layer.
func tryMapped(home string, pool *idrange.Pool) error {
	dir, err := filepath.EvalSymlinks(home)
	for errors.Is(err, fs.ErrNotExist) && home != "/" {
		home = filepath.Dir(home)
		dir, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		return fmt.Errorf("find home: %w", err)
	}
	ids, err := pool.Take()
	if err != nil {
		return err
	}
	defer pool.Give(ids)
	bind := mountns.Bind{Source: dir, Target: dir, ReadOnly: true, IDMap: int(ids.Check.Fd())}
	return mountns.Try(bind.Mount)
}
