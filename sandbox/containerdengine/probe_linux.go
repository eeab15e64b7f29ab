package containerdengine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"striatum/internal/cgroup"
	"striatum/internal/idrange"
	"striatum/internal/mountns"
	"striatum/sandbox"
)

const kernelFix = "use Linux 6.6 or newer"

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
		err = trusted(path)
	}
	add("striatum-init", path, "install striatum with root's ownership", err)
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
		add("mapped overlays", "on tmpfs", kernelFix, probeMounts(cfg.InitPath))
	}
	return checks
}

func readNumber(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}

// probeMounts mounts a translated overlay as a sandbox has it, in a mount
// namespace that ends with its thread.
func probeMounts(initPath string) (err error) {
	dir, err := os.MkdirTemp("", "striatum-probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pool, err := idrange.Open(filepath.Join(dir, "ids"), []string{initPath, "idle"}, sandbox.CheckUID)
	if err != nil {
		return err
	}
	ids, err := pool.Take()
	if err != nil {
		return err
	}
	defer func() {
		pool.Give(ids)
		err = errors.Join(err, pool.Close())
	}()
	top := filepath.Join(dir, "top")
	if err := os.Mkdir(top, 0o700); err != nil {
		return err
	}
	return mountns.Try(func() error {
		if err := mountns.Tmpfs(top, 1<<20); err != nil {
			return err
		}
		for _, name := range []string{"lower", "upper", "work", "over"} {
			if err := os.Mkdir(filepath.Join(top, name), 0o755); err != nil {
				return err
			}
		}
		low := filepath.Join(top, "mapped")
		if err := (mountns.Bind{Source: filepath.Join(top, "lower"), Target: low, ReadOnly: true, IDMap: int(ids.Check.Fd())}).Mount(); err != nil {
			return err
		}
		if err := unix.Setxattr(filepath.Join(top, "upper"), "user.striatum", []byte("y"), 0); err != nil {
			return fmt.Errorf("user attributes on tmpfs: %w", err)
		}
		data := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,userxattr", low, top, top)
		if err := unix.Mount("overlay", filepath.Join(top, "over"), "overlay", 0, data); err != nil {
			return fmt.Errorf("mount overlay: %w", err)
		}
		return nil
	})
}
