package verifier_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"striatum/allowlist"
	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/verifier/journal"
)

// program is testdata/attack, built once.
var program struct {
	sync.Once
	data []byte
	err  error
}

// attackProgram returns the bytes of the static program that attacks.
func attackProgram(t *testing.T) []byte {
	t.Helper()
	program.Do(func() {
		file := filepath.Join(t.TempDir(), "attack")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, "./testdata/attack")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			program.err = fmt.Errorf("build the attack: %w\n%s", err, out)
			return
		}
		program.data, program.err = os.ReadFile(file)
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.data
}

// attackTree is a worktree whose check is the attack, which leaves the honest part
// of the check honest.
func attackTree(t *testing.T, more string) string {
	t.Helper()
	root := testenv.Tree(t, "-- bin/README --\n-- in.txt --\ngood\n"+more)
	if err := os.WriteFile(filepath.Join(root, "bin", "attack"), attackProgram(t), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// attackEntry is the entry of such a check. Limits are a JSON object.
func attackEntry(t *testing.T, limits string, args ...string) allowlist.Entry {
	t.Helper()
	argv, err := json.Marshal(append([]string{"bin/attack", "check", "{target}"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return entry(t, `{"id": "attack", "argv": `+string(argv)+`, "backs_claim": "c", "agreement": "exit_code", "pass_when": "exit_zero", "limits": `+limits+`,
		"negative_control": {"mutation_of": ".", "mutation": {"file": "in.txt", "find": "good", "replace": "bad"}, "fails_with": "it is bad"}}`)
}

// ownLab is a lane that belongs to one test, which looks for what it left.
func ownLab(t *testing.T, kind string) *lab {
	t.Helper()
	dir := t.TempDir()
	l, err := newLab(dir, testenv.Containerd(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.engine.Close(); err != nil {
			t.Error(err)
		}
		for _, left := range leftovers(dir) {
			tell(t, kind, "leftover")
			t.Errorf("left behind: %s", left)
		}
	})
	return l
}

// attack runs the entry's check, pinned as it is.
func (l *lab) attack(t *testing.T, root string, e allowlist.Entry, pins *allowlist.Pins) (receipt.Receipt, error) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	outcomes, err := l.lane(t, nil).Run(t.Context(), ask(root, e, pins))
	if err != nil {
		return receipt.Receipt{}, err
	}
	return outcomes[0].Receipt.Receipt(), nil
}

// output is what an execution printed to standard output.
func (l *lab) output(t *testing.T, x receipt.Execution) string {
	t.Helper()
	f, err := journal.OpenOutput(filepath.Join(l.dir, "outputs"), x.StdoutSHA256)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// host is what escapes are aimed at: things of this machine that are reached
// without a sandbox.
type host struct {
	Secret, Home, Abstract, Socket string
	TCP, Seen                      []string
}

// newHost puts those things on the machine for the time of a test.
func newHost(t *testing.T, home string) host {
	t.Helper()
	dir := t.TempDir()
	h := host{
		Secret: filepath.Join(dir, "secret"), Home: home, Abstract: "striatum-attack-" + rand.Text(),
		Socket: filepath.Join(dir, "s"), Seen: []string{rand.Text()},
	}
	if err := errors.Join(os.WriteFile(h.Secret, []byte("secret"), 0o644), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	addresses := [][2]string{{"tcp", "127.0.0.1:0"}, {"unix", "@" + h.Abstract}, {"unix", h.Socket}}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			addresses = append(addresses, [2]string{"tcp", net.JoinHostPort(ip.IP.String(), "0")})
		}
	}
	for _, a := range addresses {
		l, err := net.Listen(a[0], a[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if a[0] == "tcp" {
			h.TCP = append(h.TCP, l.Addr().String())
		}
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.Env = []string{"PASSWORD=" + h.Seen[0]}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return h
}

func (h host) facts(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// How it is shown that an escape is one: without a sandbox, as root in namespaces
// of its own, it works, or it comes to another error than inside. Of what is left,
// either the kernel of the machine decides, or the attempt itself says what it did.
const (
	works   = "works"
	reaches = "reaches"
	itself  = "itself"
)

// escapes is what each attempt of testdata/attack must end in inside: an error, or
// that there is nothing; and how it is shown to be one.
var escapes = map[string]struct{ denied, shown string }{
	"write: anything visible outside the run's own places": {"EACCES EROFS EPERM", itself},
	"write: anything in /proc but itself":                  {"EACCES EROFS EPERM EINVAL", itself},
	"write: core_pattern":                                  {"EACCES EROFS", works},
	"write: modprobe":                                      {"EACCES EROFS ENOENT", itself},
	"write: sysrq-trigger":                                 {"EACCES EROFS ENOENT", itself},
	"write: drop_caches":                                   {"EACCES EROFS", works},
	"write: overcommit_memory":                             {"EACCES EROFS", works},
	"write: ip_forward":                                    {"EACCES EROFS", works},
	"write: default_smp_affinity":                          {"EACCES EROFS", works},
	"write: the memory of process 1":                       {"EACCES", itself},
	"write: the program of process 1":                      {"EACCES", itself},
	"write: oom_score_adj of process 1":                    {"EACCES", works},
	"write: oom_score_adj below the launcher's":            {"EACCES", itself},
	"write: own uid_map":                                   {"EPERM", itself},
	"write: the running program":                           {"ETXTBSY", itself},
	"read: the root of process 1":                          {"EACCES", itself},
	"read: the folder of process 1":                        {"EACCES", itself},
	"read: the environment of process 1":                   {"EACCES", itself},
	"read: the descriptors of process 1":                   {"EACCES", works},
	"read: the memory map of process 1":                    {"EACCES", itself},
	"read: kcore":                                          {"ENOENT EACCES EPERM nothing", itself},
	"read: kmsg":                                           {"EACCES EPERM", works},
	"read: /dev/kmsg":                                      {"ENOENT", works},
	"read: keys":                                           {"nothing", works},
	"read: timer_list":                                     {"nothing", works},
	"read: /sys/kernel":                                    {"ENOENT", works},
	"read: /sys/fs/cgroup":                                 {"ENOENT", works},
	"read: shadow":                                         {"ENOENT", works},
	"read: /root":                                          {"ENOENT", works},
	"read: /var/lib":                                       {"ENOENT", works},
	"read: /run":                                           {"nothing", works},
	"read: a secret of the host":                           {"ENOENT", works},
	"read: the lane's folder":                              {"ENOENT", works},
	"read: environments and commands of the host":          {"nothing", works},
	"read: kernel addresses":                               {"nothing EPERM", itself},
	"read: a launcher's mount point":                       {"nothing", itself},
	"mount: tmpfs":                                         {"EPERM", works},
	"mount: proc":                                          {"EPERM", works},
	"mount: bind":                                          {"EPERM", works},
	"mount: cgroup v1, for its release_agent":              {"EPERM", reaches},
	"mount: cgroup v2":                                     {"EPERM", reaches},
	"mount: overlay":                                       {"EPERM", works},
	"mount: remount writable":                              {"EPERM", works},
	"mount: unmount /proc":                                 {"EPERM", works},
	"mount: new mount API":                                 {"EPERM", works},
	"mount: open_tree":                                     {"EPERM", works},
	"mount: mount_setattr":                                 {"EPERM", works},
	"mount: pivot_root":                                    {"EPERM", reaches},
	"mount: chroot":                                        {"EPERM", works},
	"namespace: user":                                      {"EPERM", reaches},
	"namespace: user, with the others in it":               {"EPERM", reaches},
	"namespace: mount":                                     {"EPERM", works},
	"namespace: net":                                       {"EPERM", works},
	"namespace: pid":                                       {"EPERM", works},
	"namespace: ipc":                                       {"EPERM", works},
	"namespace: uts":                                       {"EPERM", works},
	"namespace: cgroup":                                    {"EPERM", works},
	"namespace: clone with a user namespace":               {"EPERM", works},
	"namespace: enter that of process 1":                   {"EACCES", itself},
	"namespace: setns":                                     {"EPERM", works},
	"process: ptrace a child":                              {"EPERM", works},
	"process: read a child's memory":                       {"EPERM", works},
	"process: take a child's descriptor":                   {"EPERM", works},
	"process: kcmp":                                        {"EPERM", reaches},
	"process: kill process 1":                              {"EPERM", works},
	"process: see one that is not of this run":             {"nothing", works},
	"privilege: setuid 0":                                  {"EPERM", works},
	"privilege: setgid 0":                                  {"EPERM", works},
	"privilege: groups":                                    {"EPERM", works},
	"privilege: capset":                                    {"EPERM", works},
	"privilege: ambient capability":                        {"EPERM", itself},
	"privilege: chown to root":                             {"EPERM", works},
	"privilege: set-user-id program":                       {"nothing", works},
	"privilege: mknod of memory":                           {"EPERM", works},
	"privilege: mknod of a disk":                           {"EPERM", works},
	"privilege: more open files":                           {"EPERM", itself},
	"privilege: core files":                                {"EPERM", works},
	"privilege: real-time scheduling":                      {"EPERM", works},
	"privilege: priority":                                  {"EACCES EPERM", works},
	"privilege: real-time disk":                            {"EPERM", works},
	"privilege: personality":                               {"EPERM", works},
	"privilege: an immutable file":                         {"EPERM", reaches},
	"kernel: add_key":                                      {"EPERM", works},
	"kernel: keyring":                                      {"EPERM", works},
	"kernel: request_key":                                  {"EPERM", reaches},
	"kernel: bpf":                                          {"EPERM", reaches},
	"kernel: perf":                                         {"EPERM", reaches},
	"kernel: io_uring":                                     {"EPERM", reaches},
	"kernel: userfaultfd":                                  {"EPERM", reaches},
	"kernel: fanotify":                                     {"EPERM", reaches},
	"kernel: open_by_handle_at":                            {"EPERM", reaches},
	"kernel: name_to_handle_at":                            {"EPERM", reaches},
	"kernel: module":                                       {"EPERM", reaches},
	"kernel: remove a module":                              {"EPERM", reaches},
	"kernel: kexec":                                        {"EPERM", reaches},
	"kernel: reboot":                                       {"EPERM", reaches},
	"kernel: swapon":                                       {"EPERM", reaches},
	"kernel: acct":                                         {"EPERM", reaches},
	"kernel: quotactl":                                     {"EPERM", reaches},
	"kernel: syslog":                                       {"EPERM", works},
	"kernel: set the clock":                                {"EPERM", reaches},
	"kernel: host name":                                    {"EPERM", works},
	"kernel: domain name":                                  {"EPERM", works},
	"kernel: move_pages":                                   {"EPERM", reaches},
	"kernel: another filter":                               {"EPERM", reaches},
	"kernel: the other calling convention":                 {"EPERM ENOSYS SIGSYS", itself},
	"network: a family that no test needs":                 {"EPERM", works},
	"network: raw IP":                                      {"EPERM", works},
	"network: packet":                                      {"EPERM", works},
	"network: netlink of the kernel's events":              {"EPERM", works},
	"network: a listener of the host":                      {"ENETUNREACH ECONNREFUSED", works},
	"network: an address beyond the host":                  {"ENETUNREACH", itself},
	"network: another interface":                           {"nothing", itself},
	"network: an abstract socket of the host":              {"ECONNREFUSED", works},
	"network: a socket file of the host":                   {"ENOENT", works},
	"network: containerd's socket":                         {"ENOENT", itself},
	"descriptor: one that was inherited":                   {"nothing", itself},
	"terminal: the controlling one":                        {"ENXIO ENOENT", itself},
	"terminal: the console":                                {"ENOENT", itself},
	"terminal: a new one":                                  {"ENOENT", works},
	"link: a hard link to a tool":                          {"EXDEV EPERM", itself},
	"link: a tool through a symbolic link":                 {"EACCES EROFS", works},
	"other runs: a file":                                   {"nothing", itself},
	"other runs: shared memory":                            {"nothing", itself},
	"other runs: an abstract socket":                       {"nothing", itself},
}

// denied holds what a run printed against the table, and tells each attempt.
func denied(t *testing.T, kind, out string) {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		name, said, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		want, known := escapes[name]
		if !ok || !known || seen[name] {
			continue // the test framework's own
		}
		seen[name] = true
		tell(t, kind, "attempt")
		if !slices.Contains(strings.Fields(want.denied), said) {
			t.Errorf("%s came to %q, want one of %s", name, said, want.denied)
			continue
		}
		tell(t, kind, "stopped")
	}
	if len(seen) != len(escapes) {
		t.Errorf("%d escapes were tried, want %d", len(seen), len(escapes))
	}
}

// TestNothingEscapesFromAnExternalCheck makes every attempt in both runs of a
// check, and another sandbox later has nothing of them.
func TestNothingEscapesFromAnExternalCheck(t *testing.T) {
	l := ownLab(t, "escapes")
	root := attackTree(t, "-- facts.json --\n"+newHost(t, l.dir).facts(t)+"\n")
	e := attackEntry(t, `{"memory": "1GiB"}`, "escape", "facts.json")
	pins := l.pin(t, root, e)
	r, err := l.attack(t, root, e, pins)
	if err != nil {
		t.Fatal(err)
	}
	if r.Classification != receipt.VerifiedEligible || !r.Posture.Strict || len(r.Executions) != 2 {
		t.Fatalf("%s, codes %s, control %s %s; want the attempts in both of two runs", r.Classification, codes(r), r.Control.Outcome, r.Control.Why)
	}
	for _, x := range r.Executions {
		denied(t, "escapes", l.output(t, x))
	}
}

// TestNothingEscapesFromATest makes every attempt in a test of Go code.
func TestNothingEscapesFromATest(t *testing.T) {
	l := open(t)
	root := attackTree(t, good+"-- facts.json --\n"+newHost(t, l.dir).facts(t)+`
-- escape_test.go --
package m

import (
	"fmt"
	"os/exec"
	"testing"
)

func TestEscape(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Fatal("a mutant")
	}
	out, err := exec.Command("bin/attack", "escape", "facts.json").Output()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s", out)
}
`)
	r := l.receiptOf(t, root, goTest)
	if r.Classification != receipt.Asserted || len(r.Executions) != 2 {
		t.Fatalf("%s, codes %s, control %s %s; want the attempts in both of two runs", r.Classification, codes(r), r.Control.Outcome, r.Control.Why)
	}
	for _, x := range r.Executions {
		denied(t, "escapes", l.output(t, x))
	}
}

// TestEscapesAreEscapes: without a sandbox, each attempt works, or reaches what a
// sandbox keeps it from.
func TestEscapesAreEscapes(t *testing.T) {
	_ = testenv.Containerd(t) // root, on Linux
	dir := t.TempDir()
	program, facts := filepath.Join(dir, "attack"), filepath.Join(dir, "facts.json")
	if err := errors.Join(os.WriteFile(program, attackProgram(t), 0o755), os.WriteFile(facts, []byte(newHost(t, "/").facts(t)), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(escapes)) {
		e := escapes[name]
		if e.shown == itself {
			continue
		}
		cmd := exec.CommandContext(t.Context(), program, "try", name, facts)
		cmd.Dir, cmd.Env = dir, []string{"TMPDIR=" + dir, "PATH=/usr/bin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP}
		out, err := cmd.CombinedOutput()
		said := strings.TrimSpace(string(out))
		if err != nil || e.shown == works && said != "" || slices.Contains(strings.Fields(e.denied), said) {
			t.Errorf("%s came to %q, %v without a sandbox; want that it %s", name, said, err, e.shown)
		}
	}
}

// bombs are what testdata/attack does without end, in small limits, and which limits
// may be named; none where the check is to pass all the same. Two may
// live until their time is over.
var bombs = map[string]struct{ limits, hit string }{
	"forks":                              {`"pids": 64, "wall_clock": "8s"`, "pids wall_clock"},
	"zombies":                            {`"pids": 64`, "pids"},
	"threads":                            {`"pids": 128, "output": "16MiB"`, "pids"},
	"memory":                             {`"memory": "96MiB"`, "memory"},
	"memory of a child":                  {`"memory": "96MiB"`, "memory"},
	"memory of many, none of them large": {`"memory": "160MiB", "pids": 2000, "wall_clock": "15s"`, "memory wall_clock"},
	"memory in tmpfs":                    {`"memory": "96MiB", "disk": "1GiB"`, "memory"},
	"memory in pipes":                    {`"memory": "96MiB"`, "memory"},
	"environment":                        {`"memory": "160MiB"`, "memory"},
	"disk: worktree":                     {``, "disk"},
	"disk: /tmp":                         {``, "disk"},
	"disk: /dev/shm":                     {``, "disk"},
	"disk: home":                         {``, "disk"},
	"inodes: worktree":                   {``, "disk"},
	"inodes: /dev/shm":                   {``, "disk"},
	"a million files":                    {`"memory": "128MiB", "disk": "2GiB"`, "memory"},
	"folders, one in another":            {``, "disk"},
	"output":                             {``, "output"},
	"output: stderr":                     {``, "output"},
	"output: one line":                   {``, "output"},
	"output: both, from many":            {``, "output"},
	"deaf":                               {`"wall_clock": "4s"`, "wall_clock"},
	"stopped":                            {`"wall_clock": "4s"`, "wall_clock"},
	"spin":                               {`"wall_clock": "4s"`, "wall_clock"},
	"daemons":                            {``, ""},
}

// TestBombsEndAtTheirLimit sets off each bomb in both runs of a check, while a lane
// of another home runs an honest check again and again. The limit is named, the
// honest check passes, and nothing is left of either.
func TestBombsEndAtTheirLimit(t *testing.T) {
	hit, honest := ownLab(t, "bombs"), ownLab(t, "bombs")
	quiet := attackTree(t, "")
	e := attackEntry(t, `{"memory": "256MiB"}`, "bomb", "none")
	pins := honest.pin(t, quiet, e)
	for _, name := range slices.Sorted(maps.Keys(bombs)) {
		t.Run(name, func(t *testing.T) {
			b := bombs[name]
			stop := make(chan struct{})
			var beside sync.WaitGroup
			beside.Go(func() {
				for over := false; !over; {
					tell(t, "honest checks beside bombs", "attempt")
					r, err := honest.attack(t, quiet, e, pins)
					if err != nil || r.Classification != receipt.VerifiedEligible {
						tell(t, "honest checks beside bombs", "wrong-red")
						t.Errorf("an honest check beside it: %s, codes %s, control %s %s, %v", r.Classification, codes(r), r.Control.Outcome, r.Control.Why, err)
					} else {
						tell(t, "honest checks beside bombs", "stopped")
					}
					select {
					case <-stop:
						over = true
					default:
					}
				}
			})
			hit.bomb(t, name, b.limits, b.hit)
			close(stop)
			beside.Wait()
		})
	}
}

// bomb sets one off and holds the receipt against the limit.
func (l *lab) bomb(t *testing.T, name, limits, hit string) {
	t.Helper()
	all := map[string]any{"memory": "256MiB", "disk": "24MiB", "output": "4MiB", "pids": 512, "wall_clock": "60s"}
	if err := json.Unmarshal([]byte("{"+limits+"}"), &all); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	root := attackTree(t, "")
	e := attackEntry(t, string(text), "bomb", name)
	tell(t, "bombs", "attempt")
	r, err := l.attack(t, root, e, l.pin(t, root, e))
	if err != nil {
		t.Fatal(err)
	}
	want := receipt.Indeterminate
	if hit == "" {
		want = receipt.VerifiedEligible
	}
	ok := r.Classification == want && (r.Limits.Hit == hit || slices.Contains(strings.Fields(hit), r.Limits.Hit)) && r.Control.Outcome == receipt.FailedAsRequired && len(r.Executions) == 2
	for _, x := range r.Executions {
		t.Logf("a run ended after %d ms, exit %d %s, timed out %v", x.DurationMS, x.ExitCode, x.Signal, x.TimedOut)
		if x.TimedOut {
			t.Attr("overshoot", fmt.Sprint(x.DurationMS-r.Limits.WallClockMS))
		}
		// Nothing else ends these, and nothing but their limit the others.
		ok = ok && (x.TimedOut == (hit == "wall_clock") || strings.Contains(hit, " "))
	}
	switch {
	case ok:
		tell(t, "bombs", "stopped")
	case hit != "" && (r.Classification == receipt.VerifiedEligible || r.Classification == receipt.Asserted):
		tell(t, "bombs", "wrong-green")
	}
	if !ok {
		t.Errorf("%s, hit %q; want %s, %q; codes %s; control %s %s", r.Classification, r.Limits.Hit, want, hit, codes(r), r.Control.Outcome, r.Control.Why)
	}
}

// exactly are the facts that are the same in every sandbox. All others have numbers
// that are the sandbox's own: times, devices, mounts, ids of the host.
var exactly = regexp.MustCompile(`^(arguments|environment|folder|host|processors|limit|descriptor|content|order|root|(stat|mtime) /workspace|/proc/self/(cgroup|limits|cmdline)|/etc/(host|pass|group|resolv))`)

var digits, spaces = regexp.MustCompile(`[0-9]+`), regexp.MustCompile(`[ \t]+`)

// differences returns what a control shows and a run does not, or the other way
// round, but for the facts of the planted files and the state of a process.
func differences(control, run string, planted *regexp.Regexp) []string {
	facts := func(text string) map[string]int {
		all := map[string]int{}
		for line := range strings.Lines(text) {
			switch line = strings.TrimSpace(line); {
			case planted.MatchString(line), strings.Contains(line, "State:"):
				continue
			case !exactly.MatchString(line):
				line = spaces.ReplaceAllString(digits.ReplaceAllString(line, "#"), " ")
			}
			all[line]++
		}
		return all
	}
	a, b := facts(control), facts(run)
	var out []string
	for _, line := range slices.Sorted(maps.Keys(a)) {
		if a[line] != b[line] {
			out = append(out, "control: "+line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(b)) {
		if a[line] != b[line] {
			out = append(out, "run: "+line)
		}
	}
	return out
}

// same looks at what a control and both runs showed.
func (l *lab) same(t *testing.T, r receipt.Receipt, planted string, facts func(out string) string) {
	t.Helper()
	if r.Control.Outcome != receipt.FailedAsRequired || r.Control.Execution == nil || len(r.Executions) != 2 {
		t.Fatalf("%s, codes %s, control %s %s; want a control and two runs", r.Classification, codes(r), r.Control.Outcome, r.Control.Why)
	}
	control := facts(l.output(t, *r.Control.Execution))
	matched := regexp.MustCompile(planted)
	if n := strings.Count(control, "\n"); n < 500 || !matched.MatchString(control) {
		t.Fatalf("the control shows %d facts, and of what is planted: %q", n, matched.FindString(control))
	}
	for _, x := range r.Executions {
		tell(t, "controls told from runs", "attempt")
		run := facts(l.output(t, x))
		if differs := differences(control, run, matched); len(differs) > 0 {
			t.Errorf("%d facts tell the control from a run, first: %q", len(differs), differs[:min(len(differs), 10)])
			continue
		}
		tell(t, "controls told from runs", "stopped")
	}
	if len(differences(control, strings.Replace(control, "host check", "host other", 1), matched)) != 2 {
		t.Error("another host name would not be seen")
	}
}

// TestNothingTellsAControlFromARun: an external check sees the same in its control
// and in its runs, but for the mutated file; which has the times of its folder.
func TestNothingTellsAControlFromARun(t *testing.T) {
	l := ownLab(t, "controls told from runs")
	root := attackTree(t, "-- a/b/c.txt --\nx\n-- run.sh --\n#!/bin/sh\n")
	e := attackEntry(t, `{"memory": "1GiB"}`, "look")
	r, err := l.attack(t, root, e, l.pin(t, root, e))
	if err != nil {
		t.Fatal(err)
	}
	l.same(t, r, `(?m)^(stat|content) /workspace/in\.txt `, func(out string) string { return out })
}

// TestNothingTellsPlantedTestsFromTheTreesOwn: nor does a test of Go code, but for
// the bytes of its binary.
func TestNothingTellsPlantedTestsFromTheTreesOwn(t *testing.T) {
	l := open(t)
	root := attackTree(t, good+`-- look_test.go --
package m

import (
	"fmt"
	"os/exec"
	"testing"
)

func TestLook(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Fatal("a mutant")
	}
	out, err := exec.Command("bin/attack", "look").Output()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nlook begins\n%slook ends\n", out)
}
`)
	l.same(t, l.receiptOf(t, root, goTest), `(?m)^(stat|content) /check/`, func(out string) string {
		_, out, _ = strings.Cut(out, "look begins\n")
		out, _, _ = strings.Cut(out, "look ends\n")
		return out
	})
}
