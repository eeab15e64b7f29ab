package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bomb does one thing without end, or as much of it as it can, and then says
// that all is well.
func bomb(name string) int {
	do, ok := bombs[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "unknown bomb", name)
		return 99
	}
	do()
	return 0
}

// again starts this program with another bomb.
func again(name string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "bomb", name)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

var bombs = map[string]func(){
	"none":  func() {},
	"forks": forks,
	"zombies": func() {
		for range 100_000 {
			if pid, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); errno == 0 && pid == 0 {
				unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			} else if errno != 0 {
				return // what ended is never waited for
			}
		}
	},
	"threads": func() {
		for range 20_000 {
			go func() {
				runtime.LockOSThread()
				_ = unix.Pause()
			}()
		}
		time.Sleep(time.Minute)
	},
	"memory": func() { hog(1 << 40) },
	"memory of a child": func() {
		_ = again("memory").Run() // whose death is not passed on
	},
	"memory of many, none of them large": func() {
		// Each is as likely to be killed as the launcher. The first death ends it well.
		_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
		died := make(chan error, 200)
		for range cap(died) {
			if cmd := again("small"); cmd.Start() == nil {
				go func() { died <- cmd.Wait() }()
			}
		}
		<-died
	},
	"small": func() {
		hog(4 << 20)
		time.Sleep(time.Minute)
	},
	"memory in tmpfs": func() { fill("/dev/shm") },
	"memory in pipes": func() {
		for block := make([]byte, 1<<16); ; {
			var p [2]int
			if unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC) != nil {
				return
			}
			_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20)
			for {
				if _, err := unix.Write(p[1], block); err != nil {
					break
				}
			}
		}
	},
	"environment": func() {
		// Each process has as much of it as the kernel takes.
		var env []string
		for i := range 15 {
			env = append(env, fmt.Sprint("E", i, "=", strings.Repeat("x", 120_000)))
		}
		for range 400 {
			cmd := exec.Command("/bin/sleep", "60")
			cmd.Env = env
			if cmd.Start() != nil {
				return
			}
		}
		time.Sleep(time.Minute)
	},
	"disk: worktree":   func() { fill("/workspace") },
	"disk: /tmp":       func() { fill("/tmp") },
	"disk: /dev/shm":   func() { fill("/dev/shm") },
	"disk: home":       func() { fill("/home/check") },
	"inodes: worktree": func() { inodes("/workspace", 1<<30) },
	"inodes: /dev/shm": func() { inodes("/dev/shm", 1<<30) },
	"a million files":  func() { inodes("/tmp", 1_000_000) },
	"folders, one in another": func() {
		if os.Chdir("/tmp") != nil {
			return
		}
		for unix.Mkdir("d", 0o755) == nil && unix.Chdir("d") == nil {
		}
	},
	"output":           func() { endless(os.Stdout, "line\n") },
	"output: stderr":   func() { endless(os.Stderr, "line\n") },
	"output: one line": func() { endless(os.Stdout, "x") },
	"output: both, from many": func() {
		for i := range 8 {
			_ = again([]string{"output", "output: stderr"}[i%2]).Start()
		}
		time.Sleep(time.Minute)
	},
	"deaf": func() {
		signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGALRM, unix.SIGUSR1)
		time.Sleep(time.Hour)
	},
	"stopped": func() {
		for range 5 {
			_ = again("stop").Start()
		}
		_ = unix.Kill(0, unix.SIGSTOP)
		time.Sleep(time.Hour)
	},
	"stop": func() {
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		time.Sleep(time.Hour)
	},
	"spin": func() {
		for range 4 * runtime.NumCPU() {
			_ = again("spin once").Start()
		}
		spin()
	},
	"spin once": spin,
	"daemons": func() {
		// Each in a session of its own, with the streams, and its parent gone.
		for range 4 {
			cmd := again("daemon")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if cmd.Run() != nil {
				os.Exit(9)
			}
		}
	},
	"daemon": func() {
		cmd := again("deaf")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if cmd.Start() != nil {
			os.Exit(9)
		}
	},
}

func spin() {
	for n := 0; ; n++ {
		runtime.KeepAlive(n)
	}
}

func forks() {
	for {
		cmd := again("forks")
		if cmd.Start() == nil {
			go func() { _ = cmd.Wait() }()
		}
	}
}

// hog takes memory that is really used.
func hog(most int) {
	const block = 1 << 20
	var keep [][]byte
	for taken := 0; taken < most; taken += block {
		b := make([]byte, block)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		keep = append(keep, b)
	}
	runtime.KeepAlive(keep)
}

// fill writes until nothing more can be written.
func fill(dir string) {
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		return
	}
	for block := bytes.Repeat([]byte("full"), 1<<18); ; {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// inodes makes empty files, at most so many.
func inodes(dir string, most int) {
	for i := range most {
		if fd, err := unix.Open(filepath.Join(dir, strconv.Itoa(i)), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); err != nil {
			return
		} else if unix.Close(fd) != nil {
			return
		}
	}
}

func endless(f *os.File, unit string) {
	for block := []byte(strings.Repeat(unit, 1<<16/len(unit))); ; {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}
