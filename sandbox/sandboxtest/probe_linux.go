package sandboxtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// probePath is where the test binary is inside.
const probePath = "/opt/probe"

// probeArg, as the first argument, makes the test binary a probe.
const probeArg = "sandboxtest-probe"

// Main runs the tests of a package that calls Run, or acts as a probe.
func Main(m *testing.M) int {
	if len(os.Args) > 2 && os.Args[1] == probeArg {
		return probe(os.Args[2], os.Args[3:])
	}
	return m.Run()
}

// probe does what name says inside a sandbox. What it finds wrong is written
// to standard output, one line each.
func probe(name string, args []string) int {
	switch name {
	case "environment":
		dir, err := os.Getwd()
		fmt.Printf("%q\n%q\n%s %v\n", os.Environ(), args, dir, err)
		link, err := os.Readlink("/proc/self/fd/0")
		fmt.Println(link, err, openDescriptors())
	case "escape":
		for _, f := range escapes() {
			fmt.Println(f)
		}
	case "memory":
		hog(1 << 40)
	case "memory-child":
		_ = exec.Command("/proc/self/exe", probeArg, "memory").Run()
		return 7
	case "forks":
		forks()
	case "flood":
		block := bytes.Repeat([]byte{'x'}, 1<<16)
		for {
			if _, err := os.Stdout.Write(block); err != nil {
				return 1
			}
		}
	case "fill":
		return fill(args[0])
	case "inodes":
		return fillInodes(args[0])
	case "spin":
		_ = unix.Prctl(unix.PR_SET_NAME, 0, 0, 0, 0)
		for {
			_ = time.Now()
		}
	case "daemon":
		return daemon(args)
	case "network":
		return network()
	case "signals":
		return signalInit()
	default:
		fmt.Println("unknown probe", name)
		return 99
	}
	return 0
}

func openDescriptors() []string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, e := range entries {
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(link, "pipe:") && !strings.HasPrefix(link, "anon_inode:") && link != "/dev/null" {
			out = append(out, link)
		}
	}
	return out
}

// hog takes memory that is really used.
func hog(bytes int) {
	const block = 16 << 20
	var keep [][]byte
	for taken := 0; taken < bytes; taken += block {
		b := make([]byte, block)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		keep = append(keep, b)
	}
	fmt.Println(len(keep))
}

// forks starts copies of itself that do the same, as fast as it can.
func forks() {
	for {
		cmd := exec.Command("/proc/self/exe", probeArg, "forks")
		if cmd.Start() == nil {
			go func() { _ = cmd.Wait() }()
		}
	}
}

func fill(dir string) int {
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	block := make([]byte, 1<<20)
	for {
		if _, err := f.Write(block); err != nil {
			fmt.Println(errors.Is(err, unix.ENOSPC))
			return 3
		}
	}
}

func fillInodes(dir string) int {
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			fmt.Println(errors.Is(err, unix.ENOSPC))
			return 3
		}
		f.Close()
	}
}

// daemon leaves two processes behind that hold its streams: one that sleeps
// in a session of its own, and one that spins.
func daemon(args []string) int {
	for _, what := range args {
		cmd := exec.Command("/proc/self/exe", probeArg, what)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("left")
	return 0
}

// network uses every kind of socket that honest tests use, on the sandbox's
// own loopback, and finds nothing beyond it.
func network() int {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			fmt.Println(err)
			continue
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			fmt.Println(err)
			continue
		}
		c.Close()
		l.Close()
	}
	if l, err := net.Listen("unix", "/tmp/socket"); err != nil {
		fmt.Println(err)
	} else {
		l.Close()
	}
	ifs, err := net.Interfaces()
	if err != nil || len(ifs) != 1 || ifs[0].Name != "lo" {
		fmt.Println("interfaces", ifs, err)
	}
	for _, address := range []string{"192.0.2.1:80", "169.254.169.254:80", "8.8.8.8:53"} {
		if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			fmt.Println("reached", c.RemoteAddr())
		} else if !errors.Is(err, unix.ENETUNREACH) {
			fmt.Println(err)
		}
	}
	if addrs, err := net.LookupHost("localhost"); err != nil || !slices.Contains(addrs, "127.0.0.1") {
		fmt.Println("localhost", addrs, err)
	}
	return 0
}

// signalInit tries to disturb the launcher.
func signalInit() int {
	for s := unix.Signal(1); s <= 64; s++ {
		for tid := 1; tid < 40; tid++ {
			if tid == os.Getpid() || !isInit(tid) {
				continue
			}
			if err := unix.Kill(tid, s); !errors.Is(err, unix.EPERM) {
				fmt.Println("kill", tid, s, err)
			}
			if err := unix.Tgkill(1, tid, s); !errors.Is(err, unix.EPERM) {
				fmt.Println("tgkill", tid, s, err)
			}
		}
	}
	return 0
}

// isInit says whether a thread id is one of the first process's.
func isInit(tid int) bool {
	_, err := os.Stat("/proc/1/task/" + strconv.Itoa(tid))
	return err == nil
}
