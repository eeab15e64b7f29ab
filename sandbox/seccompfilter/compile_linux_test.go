package seccompfilter

import (
	"encoding/binary"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict runs the profile on a call in the BPF machine of x/net. That machine
// loads big endian, as packets are; the data are laid out for it.
func verdict(t *testing.T, vm *bpf.VM, archID uint32, number uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offNumber:], number)
	binary.BigEndian.PutUint32(data[offArch:], archID)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offArgs+8*i+lowWord:], uint32(a))
		binary.BigEndian.PutUint32(data[offArgs+8*i+4-lowWord:], uint32(a>>32))
	}
	out, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(out)
}

func open(t *testing.T) (*bpf.VM, *arch.Info) {
	t.Helper()
	prog, err := assemble()
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	info, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	return vm, info
}

func TestEveryNumberIsAllowedOnlyIfNamed(t *testing.T) {
	vm, info := open(t)
	want := map[string]bool{}
	for _, n := range allowed() {
		want[n] = true
	}
	for _, c := range conditional() {
		delete(want, c.name)
	}
	skip := map[string]bool{}
	for _, c := range conditional() {
		skip[c.name] = true
	}
	for name, nr := range info.SyscallNames {
		if skip[name] {
			continue
		}
		// Whatever the arguments are, also numbers of allowed calls.
		for _, arg := range []uint64{0, 17, 56, 1 << 40} {
			got := verdict(t, vm, uint32(info.ID), uint32(nr), arg, arg, arg)
			if (got == retAllow) != want[name] {
				t.Errorf("%s(%d): verdict %#x, named: %v", name, arg, got, want[name])
			}
			if got != retAllow && got != retEPERM {
				t.Errorf("%s: denied with %#x, want EPERM", name, got)
			}
		}
	}
}

func TestDangerousCallsAreNotNamed(t *testing.T) {
	named := map[string]bool{}
	for _, n := range allowed() {
		if named[n] {
			t.Errorf("%s is named twice", n)
		}
		named[n] = true
	}
	for _, n := range []string{
		"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "mount", "umount2",
		"move_mount", "open_tree", "fsopen", "fsmount", "fsconfig", "fspick", "mount_setattr", "pivot_root",
		"chroot", "unshare", "setns", "keyctl", "add_key", "request_key", "bpf", "perf_event_open",
		"io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "kexec_load",
		"kexec_file_load", "init_module", "finit_module", "delete_module", "open_by_handle_at",
		"name_to_handle_at", "quotactl", "quotactl_fd", "reboot", "swapon", "swapoff", "acct", "iopl",
		"ioperm", "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "syslog", "sethostname",
		"setdomainname", "vhangup", "modify_ldt", "fanotify_init", "memfd_secret", "seccomp",
		"move_pages", "migrate_pages", "statmount", "listmount", "clone3", "clone", "socket",
	} {
		if named[n] {
			t.Errorf("%s passes whatever its arguments", n)
		}
	}
}

func TestArgumentsDecideForConditionalCalls(t *testing.T) {
	vm, info := open(t)
	for _, tc := range []struct {
		name string
		args []uint64
		want uint32
	}{
		{"socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, retAllow},
		{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, retAllow},
		{"socket", []uint64{unix.AF_INET6, unix.SOCK_DGRAM, 0}, retAllow},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, retAllow},
		{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, retEPERM},
		{"socket", []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, retEPERM},
		{"socket", []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, retEPERM},
		{"socket", []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, retEPERM},
		{"socket", []uint64{1<<32 | unix.AF_PACKET, unix.SOCK_RAW, 0}, retEPERM},
		{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, retAllow},
		{"socketpair", []uint64{unix.AF_TIPC, unix.SOCK_STREAM, 0}, retEPERM},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, retAllow},
		{"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, retEPERM},
		{"clone", []uint64{unix.CLONE_NEWNS}, retEPERM},
		{"clone3", []uint64{0, 88}, retENOSYS},
		{"personality", []uint64{0}, retAllow},
		{"personality", []uint64{0xffffffff}, retAllow},
		{"personality", []uint64{0x40000}, retEPERM},
	} {
		if got := verdict(t, vm, uint32(info.ID), uint32(info.SyscallNames[tc.name]), tc.args...); got != tc.want {
			t.Errorf("%s%v: verdict %#x, want %#x", tc.name, tc.args, got, tc.want)
		}
	}
}

func TestForeignABIsAndUnknownNumbersAreDenied(t *testing.T) {
	vm, info := open(t)
	if got := verdict(t, vm, uint32(arch.I386.ID), 1); got != retEPERM && info.ID != arch.I386.ID {
		t.Errorf("i386 call: verdict %#x", got)
	}
	if got := verdict(t, vm, uint32(info.ID), x32Bit|1); got != retENOSYS {
		t.Errorf("x32 call: verdict %#x", got)
	}
	if got := verdict(t, vm, uint32(info.ID), 5000); got != retENOSYS {
		t.Errorf("unknown call: verdict %#x", got)
	}
}

func TestCompileIsDeterministic(t *testing.T) {
	a, err := Compile()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Compile()
	if err != nil {
		t.Fatal(err)
	}
	if a.SHA256 != b.SHA256 || len(a.Program)%8 != 0 || len(a.Program)/8 > 4096 {
		t.Errorf("got %s and %s, %d bytes", a.SHA256, b.SHA256, len(a.Program))
	}
}
