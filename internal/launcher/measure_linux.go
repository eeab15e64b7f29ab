package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"striatum/internal/initproto"
)

// measure looks at what is in force for the calling thread, which the program
// will inherit. Nothing here is copied from what the lane asked for.
func (l *launcher) measure() []initproto.Facet {
	status, statusErr := readStatus()
	facets := make([]initproto.Facet, 0, 24)
	add := func(name, required, observed string, ok bool) {
		facets = append(facets, initproto.Facet{Name: name, Required: required, Observed: observed, OK: ok})
	}
	for _, ns := range l.setup.Host {
		link, err := os.Readlink("/proc/thread-self/ns/" + ns.Name)
		observed, ok := "own", link != ns.Link && strings.HasPrefix(link, ns.Name+":[")
		if err != nil {
			observed = err.Error()
		} else if !ok {
			observed = "the lane's"
		}
		add("namespace_"+ns.Name, "own", observed, ok)
	}
	idMap := fields("/proc/thread-self/uid_map")
	if gids := fields("/proc/thread-self/gid_map"); gids != idMap {
		idMap += ", groups " + gids
	}
	add("id_map", l.setup.IDMap, idMap, idMap == l.setup.IDMap)
	ids := status["Uid"] + " / " + status["Gid"] + " / " + status["Groups"]
	add("user", "uid and gid 1000 only", ids, ids == "1000 1000 1000 1000 / 1000 1000 1000 1000 / " && statusErr == nil)
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	add("no_new_privs", "1", fmt.Sprint(nnp), err == nil && nnp == 1 && status["NoNewPrivs"] == "1")
	caps := capabilities(status)
	add("capabilities", "none", caps, caps == "none" && statusErr == nil)
	denied := tryDenied()
	add("seccomp", "mode 2, every tried call denied", "mode "+status["Seccomp"]+", "+denied,
		status["Seccomp"] == "2" && denied == "every tried call denied")
	add(observe("read_only", "every write refused", l.tryWrites()))
	mounts, err := readMounts()
	if err != nil {
		add("kernel_paths", "masked and read-only", err.Error(), false)
		add("no_setuid", "nosuid everywhere", err.Error(), false)
	} else {
		add(observe("kernel_paths", "masked and read-only", kernelPaths(mounts)))
		add(observe("no_setuid", "nosuid everywhere", setuidMounts(mounts)))
	}
	add(observe("disk", fmt.Sprintf("at most %d bytes", l.setup.DiskBytes), l.diskSize()))
	network := interfaces()
	add("network", "lo only", network, network == "lo only")
	add(observe("descriptors", "none inherited", descriptors()))
	add(observe("devices", "pseudo devices only", devices()))
	return facets
}

// observe makes a facet of a list of faults: an empty one is as required.
func observe(name, required string, faults []string) (string, string, string, bool) {
	if len(faults) == 0 {
		return name, required, required, true
	}
	const shown = 5
	text := strings.Join(faults[:min(len(faults), shown)], "; ")
	return name, required, text, false
}

// readStatus reads the calling thread's status file into fields, with runs of
// white space in a value made single spaces.
func readStatus() (map[string]string, error) {
	data, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil, err
	}
	m := make(map[string]string, 64)
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			m[k] = strings.Join(strings.Fields(v), " ")
		}
	}
	return m, nil
}

func fields(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(data)), " ")
}

func capabilities(status map[string]string) string {
	var held []string
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if v := status[set]; v == "" || strings.Trim(v, "0") != "" {
			held = append(held, set+" "+v)
		}
	}
	if len(held) == 0 {
		return "none"
	}
	return strings.Join(held, ", ")
}

// call is a system call that the profile denies although the arguments given
// would not be refused for want of a capability, or not with EPERM.
type call struct {
	name string
	nr   uintptr
	args [5]uintptr
}

// tryDenied makes calls that must be denied, and names those that are not.
// Most would succeed or fail otherwise without the profile.
func tryDenied() string {
	var word [16]uint64
	buf := uintptr(unsafe.Pointer(&word[0]))
	calls := []call{
		{"ptrace", unix.SYS_PTRACE, [5]uintptr{unix.PTRACE_PEEKTEXT, 1}},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, [5]uintptr{1}},
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, [5]uintptr{1}},
		{"unshare(NEWUSER)", unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWUSER}},
		{"unshare(0)", unix.SYS_UNSHARE, [5]uintptr{0}},
		{"setns", unix.SYS_SETNS, [5]uintptr{^uintptr(0)}},
		{"mount", unix.SYS_MOUNT, [5]uintptr{}},
		{"fsopen", unix.SYS_FSOPEN, [5]uintptr{}},
		{"open_tree", unix.SYS_OPEN_TREE, [5]uintptr{^uintptr(0)}},
		{"bpf", unix.SYS_BPF, [5]uintptr{0, buf, 0}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [5]uintptr{0, 0, 0, ^uintptr(0)}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [5]uintptr{0, 0}},
		{"userfaultfd", unix.SYS_USERFAULTFD, [5]uintptr{^uintptr(0)}},
		{"keyctl", unix.SYS_KEYCTL, [5]uintptr{unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2)}},
		{"add_key", unix.SYS_ADD_KEY, [5]uintptr{}},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [5]uintptr{^uintptr(0)}},
		{"personality(ADDR_NO_RANDOMIZE)", unix.SYS_PERSONALITY, [5]uintptr{0x40000}},
		{"socket(PACKET)", unix.SYS_SOCKET, [5]uintptr{unix.AF_PACKET, unix.SOCK_DGRAM}},
		{"socket(ALG)", unix.SYS_SOCKET, [5]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}},
		{"socket(VSOCK)", unix.SYS_SOCKET, [5]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}},
		{"socket(NETLINK_AUDIT)", unix.SYS_SOCKET, [5]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}},
		{"kcmp", unix.SYS_KCMP, [5]uintptr{1, 1}},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, [5]uintptr{^uintptr(0)}},
		{"kexec_load", unix.SYS_KEXEC_LOAD, [5]uintptr{}},
		{"init_module", unix.SYS_INIT_MODULE, [5]uintptr{}},
		{"reboot", unix.SYS_REBOOT, [5]uintptr{}},
	}
	var open []string
	for _, c := range calls {
		_, _, errno := unix.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], 0)
		if errno != unix.EPERM {
			open = append(open, c.name+": "+errno.Error())
		}
	}
	if len(open) == 0 {
		return "every tried call denied"
	}
	return strings.Join(open, ", ")
}

// tryWrites tries to write to each read-only place and returns those that did
// not refuse because they are read-only.
func (l *launcher) tryWrites() []string {
	var faults []string
	for _, target := range append([]string{"/", "/etc", "/dev", base}, l.setup.ReadOnly...) {
		var st unix.Stat_t
		if err := unix.Stat(target, &st); err != nil {
			faults = append(faults, target+": "+err.Error())
			continue
		}
		var err error
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			name := strings.TrimSuffix(target, "/") + "/.try"
			var fd int
			if fd, err = unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600); err == nil {
				unix.Close(fd)
				_ = unix.Unlink(name)
			}
		} else {
			var fs unix.Statfs_t
			if err = unix.Statfs(target, &fs); err == nil && fs.Flags&unix.ST_RDONLY != 0 {
				err = unix.EROFS
			}
		}
		if !errors.Is(err, unix.EROFS) {
			faults = append(faults, fmt.Sprintf("%s: %v", target, err))
		}
	}
	return faults
}

// diskSize returns the writable places that have no limit, or a larger one
// than the sandbox.
func (l *launcher) diskSize() []string {
	var faults []string
	for _, target := range l.setup.Writable {
		var st unix.Statfs_t
		if err := unix.Statfs(target, &st); err != nil {
			faults = append(faults, target+": "+err.Error())
			continue
		}
		if size := int64(st.Blocks) * st.Bsize; size <= 0 || size > l.setup.DiskBytes+int64(os.Getpagesize()) {
			faults = append(faults, fmt.Sprintf("%s: %d bytes", target, size))
		}
	}
	return faults
}

// interfaces lists the network interfaces but for the loopback.
func interfaces() string {
	data, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return err.Error()
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if slices.Equal(names, []string{"lo"}) {
		return "lo only"
	}
	return strings.Join(names, ", ")
}

// descriptors returns those that a program would inherit beyond its streams.
func descriptors() []string {
	var faults []string
	entries, err := os.ReadDir("/proc/thread-self/fd")
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil || fd < 3 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			link, _ := os.Readlink("/proc/thread-self/fd/" + e.Name())
			faults = append(faults, e.Name()+" is "+link)
		}
	}
	return faults
}
