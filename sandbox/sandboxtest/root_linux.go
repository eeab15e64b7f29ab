package sandboxtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"striatum/internal/testenv"
	"striatum/sandbox"
)

// root has a system of its own as Spec.Root, with things in it that are the
// sandbox's own affair.
func (s *suite) root(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	suid := testenv.File("usr/bin/suid", "#!/bin/sh\nexec cat /proc/self/status\n")
	suid.Mode = 0o6755 // as a tar has it
	system := testenv.System(t, "/bin/sh", "/bin/cat", "/bin/ls", "/bin/touch", "/bin/true")
	system = append(system, suid,
		testenv.File("usr/bin/only-here", "#!/bin/sh\necho only here\n"), testenv.File("tool", "#!/bin/sh\necho at the top\n"),
		testenv.File("opt/data", "data\n"), testenv.Link("usr/out", "/etc/passwd"), testenv.File("var/lib/x", "x\n"),
		testenv.File("etc/conf.d/own", "own\n"), testenv.File("etc/passwd", "evil:x:0:0\n"), testenv.File("etc/shells/evil", ""), testenv.Link("etc/hosts", "/opt/data"),
		testenv.Link("etc/resolv.conf", "/proc/1/environ"), testenv.Link("etc/own-link", "../opt/data"), testenv.Link("dangling", "/nowhere"),
	)
	for _, taken := range []string{"proc", "dev", "sys", "tmp", "run", ".striatum", "workspace", "home/check", "home/other"} {
		system = append(system, testenv.File(taken+"/evil", ""))
	}
	testenv.Put(t, dir, system...)
	before := state(t, dir)
	spec := s.spec(sandbox.Mount{Kind: sandbox.Layer, Source: t.TempDir(), Target: "/workspace"},
		sandbox.Mount{Kind: sandbox.Scratch, Target: "/home/check"})
	spec.Mounts, spec.Root = spec.Mounts[1:], dir // without the probe, which needs the host's libraries
	res, out := s.run(t, spec,
		sh("only-here; /tool; /usr/bin/only-here; cat /opt/data /usr/out /etc/conf.d/own /etc/own-link /var/lib/x"),
		sh("ls / /usr /usr/bin /dev /tmp /run /workspace /home /home/check; cat /etc/hosts /etc/resolv.conf /etc/shells"),
		sh("for d in / /usr /usr/bin /opt /var /etc /etc/conf.d /bin; do touch $d/x && echo wrote $d; done; echo x > /tool; echo x > /etc/passwd; touch /tmp/x /workspace/x /home/check/x && echo could"),
		sandbox.Program{Path: "/usr/bin/env", Args: []string{"env"}, Dir: "/tmp"},
		sh("suid"),
		sh("ls /sys /usr/share /usr/sbin /etc/ssl /etc/alternatives /opt/probe /.striatum/evil /proc/evil; true"))
	want := "only here\nat the top\nonly here\ndata\n" + passwd + "own\ndata\nx\n"
	if out[0] != want {
		t.Errorf("got\n%swant\n%s", out[0], want)
	}
	for _, fault := range []string{"evil", "other", "environ", "data\n"} {
		if strings.Contains(out[1], fault) {
			t.Errorf("%q is in\n%s", fault, out[1])
		}
	}
	for _, present := range []string{"127.0.0.1 localhost", "/bin/sh\n", "only-here\n", "tool\n", "dangling\n", "opt\n", "var\n"} {
		if !strings.Contains(out[1], present) {
			t.Errorf("%q is not in\n%s", present, out[1])
		}
	}
	if strings.Contains(out[2], "wrote") || !strings.HasSuffix(out[2], "could\n") {
		t.Errorf("writing: %s", out[2])
	}
	if p := res.Programs[3]; p.StartError == "" {
		t.Errorf("a program of the host was started: %+v", p)
	}
	if !strings.Contains(out[4], "Uid:\t1000\t1000\t1000\t1000\n") {
		t.Errorf("set-user-id:\n%s", out[4])
	}
	for line := range strings.Lines(out[5]) {
		if !strings.Contains(line, "No such file") {
			t.Errorf("it is there: %s", line)
		}
	}
	for _, f := range res.Posture.Facets {
		if !f.OK {
			t.Errorf("%s is %q, required is %q", f.Name, f.Observed, f.Required)
		}
	}
	if after := state(t, dir); after != before {
		t.Errorf("the root was\n%sis\n%s", before, after)
	}
}

// passwd is the generated one.
const passwd = "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\ncheck:x:1000:1000:check:/home/check:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"

// state lists a folder with modes and sizes.
func state(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			fmt.Fprintf(&b, "%s %v %d\n", p, info.Mode(), info.Size())
		} else if err == nil {
			fmt.Fprintf(&b, "%s %v\n", p, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
