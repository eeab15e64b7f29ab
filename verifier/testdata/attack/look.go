package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// look prints, a line for each fact, all that a program can see of where it runs.
func look() int {
	for _, name := range []string{
		"cgroup", "limits", "mountinfo", "mounts", "status", "uid_map", "gid_map", "setgroups", "oom_score_adj", "loginuid", "sessionid",
		"personality", "comm", "cmdline", "attr/current", "net/dev", "net/unix", "net/route", "net/tcp",
	} {
		file("/proc/self/" + name)
	}
	for _, name := range []string{
		"/proc/1/status", "/proc/1/cgroup", "/proc/1/mountinfo", "/proc/1/comm", "/proc/1/cmdline", "/proc/sysvipc/shm", "/proc/cmdline",
		"/proc/version", "/proc/filesystems", "/proc/swaps", "/proc/sys/kernel/hostname", "/proc/sys/kernel/ns_last_pid", "/etc/hostname",
		"/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group", "/etc/mtab",
	} {
		file(name)
	}
	fmt.Println("arguments", fmt.Sprintf("%q", os.Args))
	fmt.Println("environment", fmt.Sprintf("%q", os.Environ()))
	dir, err := os.Getwd()
	fmt.Println("folder", dir, err)
	host, err := os.Hostname()
	fmt.Println("host", host, err)
	fmt.Println("ids", os.Getpid(), os.Getppid(), os.Getuid(), os.Geteuid(), os.Getgid())
	session, err := unix.Getsid(0)
	fmt.Println("session", session, unix.Getpgrp(), err)
	var set unix.CPUSet
	fmt.Println("processors", unix.SchedGetaffinity(0, &set), set.Count())
	for _, name := range []string{"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "user", "uts"} {
		link, err := os.Readlink("/proc/self/ns/" + name)
		fmt.Println("namespace", name, link, err)
	}
	for fd := range 8 {
		link, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
		flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if fd < 3 {
			fmt.Println("descriptor", fd, strings.TrimRight(link, "0123456789[]"), flags, err)
		}
	}
	for resource := range 16 {
		var l unix.Rlimit
		err := unix.Getrlimit(resource, &l)
		fmt.Println("limit", resource, l.Cur, l.Max, err)
	}
	for _, p := range []string{"/", "/usr", "/etc", "/dev", "/dev/shm", "/proc", "/tmp", "/home/check", "/workspace", "/.striatum"} {
		var st unix.Statfs_t
		err := unix.Statfs(p, &st)
		fmt.Printf("statfs %s type %x blocks %d/%d/%d files %d/%d flags %x size %d %v\n", p, st.Type, st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree, st.Flags, st.Bsize, err)
	}
	for _, root := range []string{"/workspace", "/home/check", "/tmp", "/dev/shm", "/dev", "/etc", "/.striatum", "/check"} {
		tree(root)
	}
	entries, err := os.ReadDir("/")
	for _, e := range entries {
		about("/" + e.Name())
	}
	fmt.Println("root", len(entries), err)
	return 0
}

// file prints a file, each line with its name.
func file(name string) {
	data, err := os.ReadFile(name)
	if err != nil {
		fmt.Println(name, err)
		return
	}
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\x00", " ")) {
		fmt.Println(name, strings.TrimSpace(line))
	}
}

// tree prints what is known of all files below root, in the order in which the
// kernel has them.
func tree(root string) {
	var order []string
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			fmt.Println("tree", p, err)
			return nil
		}
		about(p)
		if st, err := os.Lstat(p); err == nil && st.Mode().IsRegular() { // a device may cover one
			data, err := os.ReadFile(p)
			fmt.Printf("content %s %x %v\n", p, sha256.Sum256(data), err)
		}
		if d.IsDir() {
			f, err := os.Open(p)
			if err == nil {
				names, _ := f.Readdirnames(-1)
				f.Close()
				order = append(order, fmt.Sprintf("%s: %q", p, names))
			}
		}
		return nil
	})
	slices.Sort(order)
	for _, o := range order {
		fmt.Println("order", o)
	}
}

// about prints what stat and the extended attributes say.
func about(p string) {
	info, err := os.Lstat(p)
	if err != nil {
		fmt.Println("stat", p, err)
		return
	}
	s := info.Sys().(*syscall.Stat_t)
	var x unix.Statx_t
	_ = unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_ALL, &x)
	names := make([]byte, 4096)
	n, _ := unix.Llistxattr(p, names)
	fmt.Printf("stat %s mode %o size %d links %d owner %d:%d blocks %d/%d attributes %x xattrs %q\n",
		p, s.Mode, s.Size, s.Nlink, s.Uid, s.Gid, s.Blocks, s.Blksize, x.Attributes, names[:max(n, 0)])
	fmt.Printf("identity %s device %d inode %d mount %d\n", p, s.Dev, s.Ino, x.Mnt_id)
	fmt.Printf("mtime %s %d.%09d\n", p, s.Mtim.Sec, s.Mtim.Nsec)
	fmt.Printf("ctime %s %d.%09d\n", p, s.Ctim.Sec, s.Ctim.Nsec)
	fmt.Printf("birth %s %d.%09d\n", p, x.Btime.Sec, x.Btime.Nsec)
	fmt.Printf("atime %s %d.%09d\n", p, s.Atim.Sec, s.Atim.Nsec)
}
