package execban

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
)

// x32Bit marks the numbers of the x32 ABI, which has the architecture of amd64.
const x32Bit = 0x40000000

const (
	retAllow = unix.SECCOMP_RET_ALLOW
	retEPERM = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// Install bans execve and execveat on all threads of this process. The error
// says what the kernel refused; then nothing can be relied on.
func Install() error {
	program, err := program()
	if err != nil {
		return err
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return fmt.Errorf("assemble the ban on programs: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, ins := range raw {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	runtime.LockOSThread() // both calls are about one thread, which then tells the others
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))) //nolint:gosec // x/sys has no function for it
	switch {
	case errno != 0:
		return fmt.Errorf("set the seccomp filter: %w", errno)
	case thread != 0: // its number is the result, and no thread has the filter
		return fmt.Errorf("set the seccomp filter: thread %d could not take it", thread)
	}
	return nil
}

func program() ([]bpf.Instruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("assemble the ban on programs: %w", err)
	}
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(info.ID), SkipTrue: 5},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32Bit, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_EXECVE, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_EXECVEAT, SkipTrue: 1},
		bpf.RetConstant{Val: retAllow},
		bpf.RetConstant{Val: retEPERM},
	}, nil
}

// Read asks the kernel what is in force on each thread.
func Read() (State, error) {
	var s State
	paths, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return State{}, err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread is gone
		}
		if err != nil {
			return State{}, fmt.Errorf("read the state of a thread: %w", err)
		}
		s.Threads++
		for line := range strings.Lines(string(data)) {
			switch strings.TrimSpace(line) {
			case "NoNewPrivs:\t1":
				s.NoNewPrivs++
			case "Seccomp:\t2":
				s.Filtered++
			}
		}
	}
	s.Refused = tryExec() == unix.EPERM
	return s, nil
}

// tryExec executes no path, which starts nothing: without the ban it is EFAULT.
func tryExec() unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, 0, 0, 0)
	return errno
}
