package launcher

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lastCapability is beyond every capability that a kernel knows.
const lastCapability = 63

// secureBits, locked, leave uid 0 nothing special.
const secureBits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// confine takes every privilege from the calling thread alone: raw system
// calls, because the wrappers of package syscall change all threads.
func confine(filter []byte) error {
	for c := uintptr(0); c <= lastCapability; c++ {
		if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno == unix.EINVAL {
			break
		} else if errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
	if err := prctl(unix.PR_SET_SECUREBITS, secureBits); err != nil {
		return fmt.Errorf("lock secure bits: %w", err)
	}
	if err := prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("drop groups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, checkID, checkID, checkID); errno != 0 {
		return fmt.Errorf("change group: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, checkID, checkID, checkID); errno != 0 {
		return fmt.Errorf("change user: %w", errno)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return installFilter(filter)
}

func prctl(option int, arg uintptr) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func installFilter(filter []byte) error {
	const size = 8
	if len(filter) == 0 || len(filter)%size != 0 {
		return errors.New("install seccomp profile: it is empty or cut short")
	}
	code := make([]unix.SockFilter, len(filter)/size)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&code[0])), len(filter)), filter)
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("install seccomp profile: %w", errno)
	}
	return nil
}
