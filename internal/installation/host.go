package installation

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"striatum/internal/durable"
	"striatum/internal/problem"
)

// The bounds of what is started.
const (
	runLimit  = 2 * time.Minute // a tool of the host
	stopLimit = 15 * time.Second
	// StartLimit is how long the daemon may take until it answers.
	StartLimit = 30 * time.Second
)

// tools is where tools of the host are looked for, and nowhere else.
var tools = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// run runs a tool of the host, with nothing of this process's environment.
func run(name string, args ...string) error {
	line := strings.Join(append([]string{name}, args...), " ")
	for _, dir := range tools {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), runLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env, cmd.Dir = []string{"PATH=" + strings.Join(tools, ":")}, "/"
		out, err := cmd.CombinedOutput()
		if err != nil {
			return problem.New(problem.Indeterminate, "run "+line, fmt.Sprintf("%v: %s", err, strings.TrimSpace(string(out[:min(len(out), 1000)]))), "mend that, and run the command again")
		}
		return nil
	}
	return problem.New(problem.Missing, "run "+line, "there is no "+name, "install it")
}

// write writes a file of root and the group, whole or not at all; only then others
// may read it.
func write(path, content, group string, mode fs.FileMode) error {
	if err := durable.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err != nil {
		if err := durable.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	_, gid, err := ids(group)
	if err != nil {
		return err
	}
	if err := os.Lchown(path, 0, gid); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// own gives a folder to a user.
func own(path, owner string, mode fs.FileMode) error {
	uid, gid, err := ids(owner)
	if err != nil {
		return err
	}
	if err := os.Lchown(path, uid, gid); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

func ownerOf(st fs.FileInfo) uint32 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Uid
	}
	return ^uint32(0)
}

func groupOf(st fs.FileInfo) uint32 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Gid
	}
	return ^uint32(0)
}
