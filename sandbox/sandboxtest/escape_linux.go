package sandboxtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// escapes tries what hostile code tries and returns what was not denied.
func escapes() []string {
	var out []string
	try := func(what string, err error) {
		if err == nil {
			out = append(out, what+" is possible")
		}
	}
	for _, p := range []string{
		"/x", "/etc/x", "/etc/passwd", "/usr/x", "/usr/bin/x", "/opt/x", "/dev/x", "/proc/sysrq-trigger",
		"/proc/pressure/memory", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches", "/proc/self/exe", probePath,
		"/.striatum/x", "/.striatum/init", "/run/x", "/proc/1/mem", "/proc/1/oom_score_adj", "/proc/irq/default_smp_affinity",
	} {
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			f.Close()
		}
		try("writing "+p, err)
	}
	for _, p := range []string{
		"/proc/1/root", "/proc/1/environ", "/proc/1/mem", "/proc/1/fd", "/proc/1/cwd", "/proc/1/exe", "/proc/1/maps", "/proc/kcore", "/proc/kmsg",
		"/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/vda", "/root", "/home/user", "/sys/kernel", "/sys/fs/cgroup",
		"/run/containerd/containerd.sock", "/var/run/docker.sock", "/.striatum/fresh", "/.striatum/shared", "/.striatum/l0", "/.striatum/l1",
	} {
		if entries, err := os.ReadDir(p); err == nil && len(entries) == 0 {
			continue // a mount point without a mount
		}
		if data, err := readSome(p); err == nil && len(data) == 0 {
			continue
		}
		_, err := os.Open(p)
		try("opening "+p, err)
	}
	try("mount", unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	try("bind mount", unix.Mount("/usr", "/tmp", "", unix.MS_BIND, ""))
	try("remount", unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	try("umount", unix.Unmount("/usr", unix.MNT_DETACH))
	try("chroot", unix.Chroot("/tmp"))
	for name, flag := range map[string]int{
		"user": unix.CLONE_NEWUSER, "mnt": unix.CLONE_NEWNS, "net": unix.CLONE_NEWNET, "pid": unix.CLONE_NEWPID,
	} {
		try("unshare "+name, unix.Unshare(flag))
	}
	try("clone with a user namespace", (&exec.Cmd{
		Path: "/bin/true", SysProcAttr: &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER},
	}).Run())
	try("setuid 0", setuid0())
	try("chown", chownOwn())
	try("mknod", unix.Mknod("/tmp/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	try("sethostname", unix.Sethostname([]byte("x")))
	try("ptrace attach", unix.PtraceAttach(1))
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	try("keyctl", err)
	for name, s := range map[string][3]int{
		"packet": {unix.AF_PACKET, unix.SOCK_RAW, 0}, "raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "alg": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		"uevent": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, "bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 0},
		"xdp": {unix.AF_XDP, unix.SOCK_RAW, 0}, "tipc": {unix.AF_TIPC, unix.SOCK_RAW, 0},
	} {
		_, err := unix.Socket(s[0], s[1], s[2])
		try("socket "+name, err)
	}
	for name, nr := range map[string]uintptr{
		"bpf": unix.SYS_BPF, "perf": unix.SYS_PERF_EVENT_OPEN, "io_uring": unix.SYS_IO_URING_SETUP,
		"userfaultfd": unix.SYS_USERFAULTFD, "memfd_secret": unix.SYS_MEMFD_SECRET, "quotactl": unix.SYS_QUOTACTL,
		"fanotify": unix.SYS_FANOTIFY_INIT, "handle": unix.SYS_NAME_TO_HANDLE_AT, "acct": unix.SYS_ACCT,
	} {
		var zero [128]byte
		_, _, errno := unix.Syscall6(nr, uintptr(unsafe.Pointer(&zero)), uintptr(unsafe.Pointer(&zero)), 0, 0, 0, 0)
		if errno != unix.EPERM {
			out = append(out, fmt.Sprintf("%s says %v", name, errno))
		}
	}
	return append(out, setuidFiles()...)
}

func readSome(p string) ([]byte, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 1)
	n, err := f.Read(b)
	if n == 0 && err != nil && !errors.Is(err, unix.EISDIR) {
		return nil, nil
	}
	return b, nil
}

// setuid0 tries to become root by a set-user-id copy of a program.
func setuid0() error {
	if err := unix.Setuid(0); err == nil {
		return nil
	}
	return unix.Setgid(0)
}

func chownOwn() error {
	p := filepath.Join("/tmp", "chown")
	if err := os.WriteFile(p, nil, 0o600); err != nil {
		return err
	}
	return os.Chown(p, 0, 0)
}

// setuidFiles runs a set-user-id program of the host, which must not be root.
func setuidFiles() []string {
	var found string
	_ = filepath.WalkDir("/usr/bin", func(p string, d fs.DirEntry, err error) error {
		if err != nil || found != "" {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode()&fs.ModeSetuid != 0 && d.Name() == "su" {
			found = p
		}
		return nil
	})
	if found == "" {
		return nil
	}
	out, err := exec.Command(found, "-c", "id -u").CombinedOutput()
	if err == nil || strings.TrimSpace(string(out)) == "0" {
		return []string{fmt.Sprintf("%s gives %q", found, out)}
	}
	return nil
}
