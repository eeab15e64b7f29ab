package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// target is what an attempt is aimed at on the host.
type target struct {
	Secret   string // a file
	Home     string // a lane's folder
	Abstract string // an abstract unix socket that somebody listens on
	Socket   string // one in the file system
	TCP      []string
	Seen     []string // words that an environment or a command line of the host has
}

// escape is one attempt. It returns nil when it worked.
type escape func(t target) error

// escapeAll tries each escape in a process of its own and prints what came of it:
// its name, a tab, and the error, or nothing.
func escapeAll(facts string) int {
	for _, name := range names() {
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
		out, err := exec.CommandContext(ctx, "/proc/self/exe", "try", name, facts).CombinedOutput()
		stop()
		said := strings.TrimSpace(string(out))
		if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.Sys().(syscall.WaitStatus).Signaled() {
			said = unix.SignalName(ended.Sys().(syscall.WaitStatus).Signal())
		} else if err != nil && said == "" {
			said = err.Error()
		}
		fmt.Printf("%s\t%s\n", name, strings.ReplaceAll(said, "\n", " "))
	}
	return 0
}

func names() []string {
	var all []string
	for name := range escapes {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// try makes one attempt and prints its error: the name of the error number, if
// it has one.
func try(name, facts string) int {
	var t target
	data, err := os.ReadFile(facts)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	do, ok := escapes[name]
	if err != nil || !ok {
		fmt.Println("cannot try", name, err)
		return 1
	}
	runtime.LockOSThread()
	err = do(t)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		fmt.Println(unix.ErrnoName(errno))
	} else if err != nil {
		fmt.Println(err)
	}
	return 0
}

var errNone = errors.New("nothing")

// call makes a system call with words or pointers to zeroed memory.
func call(nr uintptr, args ...uintptr) escape {
	return func(target) error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

// zeros is memory that outlives every call.
var zeros [4096]byte

func ptr() uintptr { return uintptr(unsafe.Pointer(&zeros[0])) }

func text(s string) uintptr {
	b, _ := unix.BytePtrFromString(s)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(b))
}

var kept []*byte

const minusOne = ^uintptr(0)

// writing opens a file that is there.
func writing(path string) escape {
	return func(target) error {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

// reading reads a byte of a file, or the names in a folder.
func reading(path string) escape {
	return func(target) error { return readOne(path) }
}

// opening opens a file whose content goes away when it is read.
func opening(path string) escape {
	return func(target) error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

func readOne(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		entries, err := f.ReadDir(-1)
		if err == nil && len(entries) == 0 {
			return errNone
		}
		return err
	}
	n, err := f.Read(make([]byte, 1))
	if n == 0 && err == nil || n == 0 && err.Error() == "EOF" {
		return errNone
	}
	return err
}

func sock(family, kind, proto int) escape {
	return func(target) error {
		fd, err := unix.Socket(family, kind, proto)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

// scratch makes an empty folder of the attempt's own.
func scratch() string {
	dir, err := os.MkdirTemp("", "attack-")
	if err != nil {
		panic(err)
	}
	return dir
}

// child starts a process that waits, and says its number.
func child(do func(pid int) error) error {
	cmd := exec.Command("/bin/sleep", "30")
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	return do(cmd.Process.Pid)
}

// escapes are the attempts. What each must end in is in the test.
var escapes = map[string]escape{
	// Writing to what is not the run's own.
	"write: anything visible outside the run's own places": func(target) error { return writeAnywhere("/", "/proc") },
	"write: anything in /proc but itself":                  func(target) error { return writeProc() },
	"write: core_pattern":                                  writing("/proc/sys/kernel/core_pattern"),
	"write: modprobe":                                      writing("/proc/sys/kernel/modprobe"),
	"write: sysrq-trigger":                                 writing("/proc/sysrq-trigger"),
	"write: drop_caches":                                   writing("/proc/sys/vm/drop_caches"),
	"write: overcommit_memory":                             writing("/proc/sys/vm/overcommit_memory"),
	"write: ip_forward":                                    writing("/proc/sys/net/ipv4/ip_forward"),
	"write: default_smp_affinity":                          writing("/proc/irq/default_smp_affinity"),
	"write: the memory of process 1":                       writing("/proc/1/mem"),
	"write: the program of process 1":                      writing("/proc/1/exe"),
	"write: oom_score_adj of process 1":                    writing("/proc/1/oom_score_adj"),
	"write: own uid_map":                                   func(target) error { return os.WriteFile("/proc/self/uid_map", []byte("0 0 4294967295"), 0) },
	"write: oom_score_adj below the launcher's":            func(target) error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) },
	"write: the running program": func(target) error {
		// Its file is the run's own; the text that runs is not to be changed.
		return writing("/proc/self/exe")(target{})
	},

	// Reading what is not the run's own.
	"read: the root of process 1":        reading("/proc/1/root/"),
	"read: the folder of process 1":      reading("/proc/1/cwd/"),
	"read: the environment of process 1": reading("/proc/1/environ"),
	"read: the descriptors of process 1": reading("/proc/1/fd"),
	"read: the memory map of process 1":  reading("/proc/1/maps"),
	"read: kcore":                        reading("/proc/kcore"),
	"read: kmsg":                         opening("/proc/kmsg"),
	"read: /dev/kmsg":                    opening("/dev/kmsg"),
	"read: keys":                         reading("/proc/keys"),
	"read: timer_list":                   reading("/proc/timer_list"),
	"read: /sys/kernel":                  reading("/sys/kernel"),
	"read: /sys/fs/cgroup":               reading("/sys/fs/cgroup"),
	"read: shadow":                       reading("/etc/shadow"),
	"read: /root":                        reading("/root"),
	"read: /var/lib":                     reading("/var/lib"),
	"read: /run":                         reading("/run"),
	"read: a secret of the host":         func(t target) error { return readOne(t.Secret) },
	"read: the lane's folder":            func(t target) error { return readOne(t.Home) },
	"read: environments and commands of the host": func(t target) error {
		return searchProc(t.Seen)
	},
	"read: kernel addresses": func(target) error {
		data, err := os.ReadFile("/proc/kallsyms")
		if err == nil && !strings.Contains(strings.Trim(string(data[:min(len(data), 16)]), "0"), " ") || err == nil && strings.HasPrefix(string(data), "0000000000000000") {
			return errNone
		}
		return err
	},
	"read: a launcher's mount point": func(target) error {
		for _, p := range []string{"/.striatum/fresh", "/.striatum/shared", "/.striatum/l0", "/.striatum/l1", "/.striatum/l2"} {
			if err := readOne(p); err == nil {
				return nil
			}
		}
		return errNone
	},

	// Mounts and namespaces.
	"mount: tmpfs": func(target) error { return unix.Mount("tmpfs", scratch(), "tmpfs", 0, "") },
	"mount: proc":  func(target) error { return unix.Mount("proc", scratch(), "proc", 0, "") },
	"mount: bind":  func(target) error { return unix.Mount("/usr", scratch(), "", unix.MS_BIND, "") },
	"mount: cgroup v1, for its release_agent": func(target) error {
		return unix.Mount("cgroup", scratch(), "cgroup", 0, "memory")
	},
	"mount: cgroup v2": func(target) error { return unix.Mount("cgroup2", scratch(), "cgroup2", 0, "") },
	"mount: overlay": func(target) error {
		d := scratch()
		for _, n := range []string{"l", "u", "w", "m"} {
			_ = os.Mkdir(filepath.Join(d, n), 0o755)
		}
		return unix.Mount("overlay", d+"/m", "overlay", 0, "lowerdir="+d+"/l:/usr")
	},
	"mount: remount writable": func(target) error {
		return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "")
	},
	"mount: unmount /proc": func(target) error { return unix.Unmount("/proc", unix.MNT_DETACH) },
	"mount: new mount API": func(target) error {
		fd, err := unix.Fsopen("tmpfs", 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
	"mount: open_tree": func(target) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/usr", unix.OPEN_TREE_CLONE)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
	"mount: mount_setattr": func(target) error {
		return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Propagation: unix.MS_PRIVATE})
	},
	"mount: pivot_root": call(unix.SYS_PIVOT_ROOT, text("/nowhere"), text("/nowhere")),
	"mount: chroot":     func(target) error { return unix.Chroot(scratch()) },
	"namespace: user":   func(target) error { return unshare(unix.CLONE_NEWUSER) },
	"namespace: user, with the others in it": func(target) error {
		return unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET)
	},
	"namespace: mount":  func(target) error { return unshare(unix.CLONE_NEWNS) },
	"namespace: net":    func(target) error { return unshare(unix.CLONE_NEWNET) },
	"namespace: pid":    func(target) error { return unshare(unix.CLONE_NEWPID) },
	"namespace: ipc":    func(target) error { return unshare(unix.CLONE_NEWIPC) },
	"namespace: uts":    func(target) error { return unshare(unix.CLONE_NEWUTS) },
	"namespace: cgroup": func(target) error { return unshare(unix.CLONE_NEWCGROUP) },
	"namespace: clone with a user namespace": func(target) error {
		return (&exec.Cmd{Path: "/bin/true", SysProcAttr: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}}).Run()
	},
	"namespace: enter that of process 1": func(target) error {
		fd, err := unix.Open("/proc/1/ns/net", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.Setns(fd, 0)
	},
	"namespace: setns": func(target) error {
		fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.Setns(fd, 0)
	},

	// Other processes.
	"process: ptrace a child": func(target) error {
		return child(func(pid int) error { return unix.PtraceAttach(pid) })
	},
	"process: read a child's memory": func(target) error {
		return child(func(pid int) error {
			local := unix.Iovec{Base: &zeros[0], Len: 8}
			_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: codeOf(pid), Len: 8}}, 0)
			return err
		})
	},
	"process: take a child's descriptor": func(target) error {
		return child(func(pid int) error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return err
			}
			_, err = unix.PidfdGetfd(fd, 0, 0)
			return err
		})
	},
	"process: kcmp": func(target) error {
		return child(func(pid int) error { return call(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 1)(target{}) })
	},
	"process: kill process 1":                  func(target) error { return killFirst() },
	"process: see one that is not of this run": func(target) error { return foreignProcess() },

	// Privileges.
	"privilege: setuid 0": func(target) error { return unix.Setresuid(0, 0, 0) },
	"privilege: setgid 0": func(target) error { return unix.Setresgid(0, 0, 0) },
	"privilege: groups":   func(target) error { return unix.Setgroups([]int{0}) },
	"privilege: capset": func(target) error {
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		d := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
		return unix.Capset(&h, &d[0])
	},
	"privilege: ambient capability": func(target) error {
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_KILL, 0, 0)
	},
	"privilege: chown to root": func(target) error { return os.Chown(scratch(), 0, 0) },
	"privilege: set-user-id program": func(target) error {
		out, err := exec.Command("/bin/su", "-c", "id -u").CombinedOutput()
		if err == nil && strings.TrimSpace(string(out)) == "0" {
			return nil
		}
		return errNone
	},
	"privilege: mknod of memory": func(target) error {
		return unix.Mknod(filepath.Join(scratch(), "mem"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1)))
	},
	"privilege: mknod of a disk": func(target) error {
		return unix.Mknod(filepath.Join(scratch(), "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0)))
	},
	"privilege: more open files": func(target) error {
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			return err
		}
		l.Max++
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	},
	"privilege: core files": func(target) error {
		return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	},
	"privilege: real-time scheduling": func(target) error {
		return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	},
	"privilege: priority":       func(target) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -5) },
	"privilege: real-time disk": call(unix.SYS_IOPRIO_SET, 1, 0, 1<<13),
	"privilege: personality":    call(unix.SYS_PERSONALITY, 0x0040000),
	"privilege: an immutable file": func(target) error {
		f, err := os.Create(filepath.Join(scratch(), "f"))
		if err != nil {
			return err
		}
		defer f.Close()
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0x10)
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0) // so that it can be removed
		return err
	},

	// Parts of the kernel that are no check's affair.
	"kernel: add_key": func(target) error {
		_, err := unix.AddKey("user", "attack", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	},
	"kernel: keyring":                      func(target) error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err },
	"kernel: request_key":                  func(target) error { _, err := unix.RequestKey("user", "attack", "", 0); return err },
	"kernel: bpf":                          call(unix.SYS_BPF, 0, ptr(), 128),
	"kernel: perf":                         call(unix.SYS_PERF_EVENT_OPEN, ptr(), 0, minusOne, minusOne, 0),
	"kernel: io_uring":                     call(unix.SYS_IO_URING_SETUP, 1, ptr()),
	"kernel: userfaultfd":                  call(unix.SYS_USERFAULTFD, 0),
	"kernel: fanotify":                     call(unix.SYS_FANOTIFY_INIT, 0, 0),
	"kernel: open_by_handle_at":            call(unix.SYS_OPEN_BY_HANDLE_AT, minusOne, ptr(), 0),
	"kernel: name_to_handle_at":            call(unix.SYS_NAME_TO_HANDLE_AT, minusOne, ptr(), ptr(), ptr(), 0),
	"kernel: module":                       call(unix.SYS_INIT_MODULE, 0, 0, text("")),
	"kernel: remove a module":              call(unix.SYS_DELETE_MODULE, text("no-such-module"), 0),
	"kernel: kexec":                        call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0xffff),
	"kernel: reboot":                       call(unix.SYS_REBOOT, 0, 0, 0, 0),
	"kernel: swapon":                       call(unix.SYS_SWAPON, text("/nowhere"), 0),
	"kernel: acct":                         call(unix.SYS_ACCT, text("/nowhere")),
	"kernel: quotactl":                     call(unix.SYS_QUOTACTL, minusOne, 0, 0, 0),
	"kernel: syslog":                       call(unix.SYS_SYSLOG, 10, 0, 0),
	"kernel: set the clock":                call(unix.SYS_CLOCK_SETTIME, 99, ptr()),
	"kernel: host name":                    func(target) error { return unix.Sethostname([]byte("attack")) },
	"kernel: domain name":                  func(target) error { return unix.Setdomainname([]byte("attack")) },
	"kernel: move_pages":                   call(unix.SYS_MOVE_PAGES, 0, 0, 0, 0, 0, 0),
	"kernel: another filter":               call(unix.SYS_SECCOMP, 2, 0, text("KILL")),
	"kernel: the other calling convention": func(target) error { return otherABI() },

	// The network, by any family.
	"network: a family that no test needs":    func(target) error { return anyFamily() },
	"network: raw IP":                         sock(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
	"network: packet":                         sock(unix.AF_PACKET, unix.SOCK_RAW, 0),
	"network: netlink of the kernel's events": sock(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT),
	"network: a listener of the host": func(t target) error {
		err := errNone
		for _, address := range t.TCP {
			c, dialed := net.DialTimeout("tcp", address, 2*time.Second)
			if dialed == nil {
				c.Close()
				return nil
			}
			err = dialed
		}
		return err
	},
	"network: an address beyond the host": func(target) error {
		c, err := net.DialTimeout("udp", "192.0.2.1:53", time.Second)
		if err == nil {
			c.Close()
		}
		return err
	},
	"network: another interface": func(target) error {
		ifs, err := net.Interfaces()
		if err == nil && len(ifs) < 2 {
			return errNone
		}
		return err
	},
	"network: an abstract socket of the host": func(t target) error { return dialUnix("@" + t.Abstract) },
	"network: a socket file of the host":      func(t target) error { return dialUnix(t.Socket) },
	"network: containerd's socket": func(target) error {
		err := errNone
		for _, p := range []string{"/run/containerd/containerd.sock", "/var/run/docker.sock", "/run/striatum"} {
			if _, e := os.Lstat(p); e == nil {
				return nil
			} else {
				err = e
			}
		}
		return err
	},

	// Descriptors, terminals, links.
	"descriptor: one that was inherited": func(target) error { return inherited() },
	"terminal: the controlling one":      reading("/dev/tty"),
	"terminal: the console":              writing("/dev/console"),
	"terminal: a new one":                writing("/dev/ptmx"),
	"link: a hard link to a tool":        func(target) error { return os.Link("/usr/bin/env", filepath.Join(scratch(), "x")) },
	"link: a tool through a symbolic link": func(target) error {
		p := filepath.Join(scratch(), "x")
		if err := os.Symlink("/usr/bin/env", p); err != nil {
			return err
		}
		return writing(p)(target{})
	},

	// What another run of the same check left.
	"other runs: a file":             func(target) error { return markFiles() },
	"other runs: shared memory":      func(target) error { return markShared() },
	"other runs: an abstract socket": func(target) error { return markSocket() },
}

func unshare(flags int) error { return unix.Unshare(flags) }

// own are the places that a run may write to.
var own = []string{"/workspace", "/home/check", "/tmp", "/dev/shm", "/cache/go-build"}

// writeAnywhere tries to open every regular file for writing, and to make a file
// in every folder, below root.
func writeAnywhere(root string, except ...string) error {
	seen, last := 0, errNone
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && (slices.Contains(own, p) || slices.Contains(except, p)) {
			return fs.SkipDir
		}
		name, flags := p, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK
		switch {
		case d.IsDir():
			name, flags = filepath.Join(p, ".attack"), flags|unix.O_CREAT|unix.O_EXCL
		case !d.Type().IsRegular():
			return nil
		}
		seen++
		if err := openFile(name, flags); err != nil {
			last = err
			return nil
		}
		fmt.Println("wrote to", name)
		return fs.SkipAll
	})
	if err != nil {
		return err
	}
	if seen < 1000 {
		return fmt.Errorf("only %d places were tried", seen)
	}
	return last
}

var errDevice = errors.New("a device")

// openFile opens a regular file; a device that covers one is none.
func openFile(name string, flags int) error {
	fd, err := unix.Open(name, flags, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errDevice
	}
	return nil
}

// writeProc opens all that is in /proc, but for this process's own, for writing.
func writeProc() error {
	seen, last := 0, errNone
	err := filepath.WalkDir("/proc", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() {
			if pid, err := strconv.Atoi(d.Name()); err == nil && filepath.Dir(p) == "/proc" && pid != 1 {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		seen++
		if err := openFile(p, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			last = err
			return nil
		}
		// The kernel opens some that it lets nobody else write to.
		if err := os.WriteFile(p, []byte("1"), 0); err != nil && !strings.HasPrefix(p, "/proc/pressure") {
			last = err
			return nil
		}
		fmt.Println("opened", p)
		return nil
	})
	if err != nil {
		return err
	}
	if seen < 100 {
		return fmt.Errorf("only %d places were tried", seen)
	}
	return last
}

// searchProc looks for words in the environments and command lines of all
// processes but its own.
func searchProc(words []string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		for _, name := range []string{"environ", "cmdline"} {
			data, err := os.ReadFile(filepath.Join("/proc", e.Name(), name))
			if err == nil && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(string(data), w) }) {
				return nil
			}
		}
	}
	return errNone
}

// codeOf is an address that a process can read of itself.
func codeOf(pid int) uintptr {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	start, _, _ := strings.Cut(string(data), "-")
	n, _ := strconv.ParseUint(start, 16, 64)
	return uintptr(n)
}

// killFirst signals the first process, where that is not the host's.
func killFirst() error {
	if err := unix.Kill(1, 0); err != nil {
		return err
	}
	return nil
}

// foreignProcess looks for a process of another user than its own and the first.
func foreignProcess() error {
	mine := map[int]bool{1: true} // and those that started this one
	for pid := os.Getppid(); pid > 1 && !mine[pid]; {
		mine[pid] = true
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // state, then the parent
		if fields := strings.Fields(rest); len(fields) > 1 {
			pid, _ = strconv.Atoi(fields[1])
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || mine[pid] {
			continue
		}
		st, err := os.Stat(filepath.Join("/proc", e.Name()))
		if err != nil {
			continue
		}
		data, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if int(st.Sys().(*syscall.Stat_t).Uid) != os.Getuid() || !strings.Contains(string(data), "attack") && !strings.Contains(string(data), "/proc/self/exe") {
			return nil
		}
	}
	return errNone
}

// anyFamily tries every family of sockets, but those of a machine's own.
func anyFamily() error {
	last := errNone
	for family := range 64 {
		switch family {
		case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
			continue
		}
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET} {
			fd, err := unix.Socket(family, kind, 0)
			if err == nil {
				unix.Close(fd)
				return nil
			}
			last = err
		}
	}
	return last
}

func dialUnix(address string) error {
	c, err := net.DialTimeout("unix", address, 2*time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

// inherited looks for a descriptor that is neither a stream nor the runtime's.
func inherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(link, "anon_inode:") || strings.HasPrefix(link, "pipe:") || link == "/dev/null" {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			return nil
		}
	}
	return errNone
}

// markFiles leaves a file in each place that it can, also over its own program,
// and looks for one that was there before.
func markFiles() error {
	found := errNone
	for _, dir := range []string{"/workspace", "/home/check", "/tmp", "/dev/shm", "/workspace/bin", "/var/tmp", "/run"} {
		p := filepath.Join(dir, "mark")
		if _, err := os.Lstat(p); err == nil {
			found = nil
		}
		_ = os.WriteFile(p, []byte("here"), 0o666)
	}
	// Over the program itself: what runs stays, what comes next is another file.
	if exe, err := os.Readlink("/proc/self/exe"); err == nil && strings.HasPrefix(exe, "/workspace/") {
		if data, err := os.ReadFile(exe); err == nil {
			_ = os.Remove(exe)
			_ = os.WriteFile(exe, append(data, "mark"...), 0o755)
			if strings.HasSuffix(string(data), "mark") {
				found = nil
			}
		}
	}
	return found
}

// markShared leaves a System V segment and a queue, and looks for those of others.
func markShared() error {
	found := errNone
	key := 0x57a71
	if _, err := unix.SysvShmGet(key, 4096, 0); err == nil {
		found = nil
	}
	_, _ = unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
	for _, p := range []string{"/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem"} {
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) > 0 && f[0] != "key" && f[0] != strconv.Itoa(key) {
				found = nil
			}
		}
	}
	return found
}

// markSocket listens, and looks for others that do.
func markSocket() error {
	l, err := net.Listen("unix", "@attack-mark")
	if err != nil {
		return nil // somebody has the name
	}
	defer l.Close()
	time.Sleep(time.Second) // the other run is beside this one
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 7 && f[0] != "Num" && f[7] != "@attack-mark" {
			return nil
		}
	}
	return errNone
}
