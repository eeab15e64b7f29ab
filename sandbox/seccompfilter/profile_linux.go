package seccompfilter

import (
	"strings"

	"golang.org/x/sys/unix"
)

// namespaceFlags are the clone flags that make a namespace.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER |
	unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// perLinux is the normal personality; queryPersonality asks for the one in force.
const (
	perLinux         = 0
	queryPersonality = 0xffffffff
)

func conditional() []condition {
	family := func(f uint32) []test { return []test{{arg: 0, value: f}} }
	return []condition{
		{name: "clone", alternatives: [][]test{{{arg: 0, mask: namespaceFlags}}}, deny: retEPERM},
		{name: "clone3", deny: retENOSYS},
		{name: "personality", alternatives: [][]test{
			{{arg: 0, value: perLinux}}, {{arg: 0, value: queryPersonality}},
		}, deny: retEPERM},
		{name: "socket", alternatives: [][]test{
			family(unix.AF_UNIX), family(unix.AF_INET), family(unix.AF_INET6),
			{{arg: 0, value: unix.AF_NETLINK}, {arg: 2, value: unix.NETLINK_ROUTE}},
		}, deny: retEPERM},
		{name: "socketpair", alternatives: [][]test{family(unix.AF_UNIX)}, deny: retEPERM},
	}
}

// Names returns every call that the profile lets through, some of them only
// with certain arguments.
func Names() []string {
	names := allowed()
	for _, c := range conditional() {
		if len(c.alternatives) > 0 {
			names = append(names, c.name)
		}
	}
	return names
}

// allowed names the calls that pass whatever their arguments. A name that an
// architecture lacks is left out there.
func allowed() []string { return strings.Fields(allowedNames) }

const allowedNames = `
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown clock_getres
clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod
fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr
fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat
get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid
getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid
getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr
getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy
io_getevents io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen
listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack mbind
membarrier memfd_create mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect
mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget
msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat open openat openat2 pause
pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64
preadv preadv2 prlimit64 pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2
restart_syscall riscv_flush_icache riscv_hwprobe rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_mempolicy set_robust_list
set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority
setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shmat
shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 splice stat statfs statx symlink symlinkat
sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun
timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask
uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev
`
