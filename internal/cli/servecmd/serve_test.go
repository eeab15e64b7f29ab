package servecmd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"striatum/daemon"
	"striatum/daemon/client"
	"striatum/daemon/wire"
	"striatum/internal/cli"
	"striatum/internal/cli/servecmd"
)

// daemonVariable makes a process of this binary striatumd, which on SIGUSR1 tries
// to start a program on several threads and prints what came of it.
const daemonVariable = "STRIATUM_TEST_DAEMON"

func TestMain(m *testing.M) {
	if os.Getenv(daemonVariable) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	tries := make(chan os.Signal, 1)
	signal.Notify(tries, syscall.SIGUSR1)
	go func() {
		for range tries {
			fmt.Println(tryPrograms())
		}
	}()
	f := &cli.Factory{
		Streams: cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr},
		Getenv:  os.Getenv, Getwd: os.Getwd, Now: time.Now, Rand: rand.Reader,
	}
	os.Exit(cli.Run(ctx, servecmd.New(f), f.Streams))
}

// tryPrograms says whether any of several threads could start a program.
func tryPrograms() string {
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for range cap(errs) {
		all.Go(func() {
			runtime.LockOSThread() // each on a thread of its own, which ends with it
			errs <- exec.Command("/bin/true").Run()
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if !errors.Is(err, syscall.EPERM) {
			return fmt.Sprintf("a thread was not refused: %v", err)
		}
	}
	return "every thread was refused"
}

// process is a striatumd that runs.
type process struct {
	*exec.Cmd
	testing.TB
	dir, socket string
	log         *bufio.Scanner
	out         *bufio.Reader
}

// place returns a folder for a daemon, with a short path.
func place(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "striatumd") //nolint:usetesting // its path is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func command(t testing.TB, dir string, args ...string) *exec.Cmd {
	args = append([]string{"serve", "--home", filepath.Join(dir, "home"), "--socket", filepath.Join(dir, "s")}, args...)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), daemonVariable+"=1")
	return cmd
}

// start starts a daemon in dir and waits until it serves.
func start(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(t, dir, args...), TB: t, dir: dir, socket: filepath.Join(dir, "s")}
	log, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.log, p.out = bufio.NewScanner(log), bufio.NewReader(out)
	var said []string
	for p.log.Scan() {
		said = append(said, p.log.Text())
		if strings.Contains(p.log.Text(), `"msg":"serving"`) {
			return p
		}
	}
	t.Fatalf("it does not serve: %v: %s", p.Wait(), strings.Join(said, "\n"))
	return nil
}

// end sends a signal and returns the exit code and what was logged since.
func (p *process) end(sig syscall.Signal) (code int, log string) {
	p.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.Fatal(err)
	}
	for p.log.Scan() {
		log += p.log.Text() + "\n"
	}
	_ = p.Wait() // the code says it
	return p.ProcessState.ExitCode(), log
}

// refuse runs a daemon that must not serve.
func refuse(t testing.TB, dir string, code int, words string, args ...string) {
	t.Helper()
	cmd := command(t, dir, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run() // the code says it
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(stderr.String(), words) {
		t.Errorf("%v: exit %d, want %d with %q: %s", args, got, code, words, stderr.String())
	}
}

func (p *process) health() (h wire.Healthy) {
	p.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://striatumd" + wire.Health)
	if err != nil {
		p.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
		p.Fatal(err)
	}
	return h
}

func TestTheDaemonStartsNoProgram(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux refuses it")
	}
	p := start(t, place(t))
	if h := p.health(); h.CanStartPrograms || h.Threads == 0 || h.FilteredThreads != h.Threads || h.NoNewPrivsThreads != h.Threads {
		t.Errorf("got %+v", h)
	}
	if err := p.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if got, err := p.out.ReadString('\n'); err != nil || got != "every thread was refused\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if code, log := p.end(syscall.SIGTERM); code != 0 || !strings.Contains(log, `"msg":"stopped"`) {
		t.Errorf("exit %d: %s", code, log)
	}
}

func TestAKilledDaemonLosesNothing(t *testing.T) {
	dir := place(t)
	me := []string{"--operator-uid", strconv.Itoa(os.Getuid())}
	p := start(t, dir, me...)
	if st, err := os.Stat(p.socket); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("the socket: %v, %v", st.Mode(), err)
	}
	refuse(t, dir, 3, "another striatumd serves it")
	refuse(t, place(t), 3, "another process answers there", "--socket", p.socket)
	c, err := client.Open(t.Context(), p.socket, "")
	if err != nil {
		t.Fatal(err)
	}
	spec := daemon.TokenSpec{Kind: daemon.Operator, TTL: time.Hour}
	token, hash, err := daemon.DrawToken(rand.Reader, spec.Kind)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RecordToken(t.Context(), spec, hash); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	p.end(syscall.SIGKILL)
	p = start(t, dir, me...) // over the socket that was left
	c, err = client.Open(t.Context(), p.socket, token)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := c.Tokens(t.Context()); err != nil || len(all) != 1 || all[0].Hash != hash {
		t.Errorf("got %+v, %v", all, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if code, log := p.end(syscall.SIGTERM); code != 0 || strings.Contains(log, token[12:]) {
		t.Errorf("exit %d: %s", code, log)
	}
	if _, err := os.Stat(p.socket); !os.IsNotExist(err) {
		t.Errorf("the socket was left: %v", err)
	}
}

func TestWhatIsNoSocketIsLeftAlone(t *testing.T) {
	dir := place(t)
	path := filepath.Join(dir, "s")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse(t, dir, 3, "no socket is there")
	if data, err := os.ReadFile(path); err != nil || string(data) != "mine" {
		t.Errorf("got %q, %v", data, err)
	}
	refuse(t, dir, 7, "folder that exists", "--socket", filepath.Join(dir, "none", "s"))
	refuse(t, dir, 7, "group of this machine", "--socket", filepath.Join(dir, "t"), "--socket-group", "no-such-group")
}

func TestAStoreIsIsolatedOnlyWhereThatIsSeen(t *testing.T) {
	dir := place(t) // below a folder that everybody may write
	p := start(t, dir, "--store-class", "isolated")
	if h := p.health(); h.StoreClass != "shared" || !strings.Contains(h.StoreClassWhy, "writable by others") {
		t.Errorf("got %+v", h)
	}
	p.end(syscall.SIGTERM)
}

func TestConfigurationIsStrictAndShownWithoutSecrets(t *testing.T) {
	dir := place(t)
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const marker = `{"schema_version":"striatum.striatumd.v1"`
	for _, tt := range []struct {
		text  string
		code  int
		words string
	}{
		{`{}`, 6, "/schema_version"},
		{marker + `,"sockets":"/x"}`, 6, `at "/sockets"`},
		{marker + `,"home":"/a","home":"/b"}`, 6, `at "/home"`},
		{marker + `,"home":7}`, 6, `at "/home"`},
		{marker + `,"operator_uids":["root"]}`, 6, `at "/operator_uids/0"`},
		{marker + `,"operator_uids":[-1]}`, 6, `at "/operator_uids/0"`},
		{marker + `,"tcp":"0.0.0.0:80"}`, 6, "/tcp is not a loopback"},
		{marker + `,"tcp":"localhost:80"}`, 6, "/tcp is not a loopback"},
		{marker + `,"store_class":"private"}`, 6, "/store_class"},
		{marker + `,"sqlite_path":"store.db"}`, 6, "/sqlite_path is not an absolute"},
		{marker + `,"sqlite_path":"/a","postgres_dsn_file":"/b"}`, 6, "two stores"},
		{marker + strings.Repeat(" ", 70<<10) + `}`, 2, "bytes"},
	} {
		refuse(t, dir, tt.code, tt.words, "--config", write("config.json", tt.text, 0o600), "--check-config")
	}
	refuse(t, dir, 2, "no such file", "--config", filepath.Join(dir, "absent.json"))
	refuse(t, dir, 6, "107 bytes", "--socket", "/"+strings.Repeat("x", 107))
	refuse(t, dir, 2, "not a uid", "--operator-uid", "4294967295")

	dsn := write("dsn", "postgres://u:hunter2@127.0.0.1:1/none?connect_timeout=1\n", 0o600)
	config := write("config.json", marker+`,"postgres_dsn_file":"`+dsn+`","operator_uids":[7,7,3],"tcp":"127.0.0.1:7417"}`, 0o600)
	cmd := command(t, dir, "--config", config, "--tcp", "[::1]:7418", "--check-config")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got servecmd.Config
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.TCP != "[::1]:7418" || got.PostgresDSNFile != dsn || got.SQLitePath != "" || fmt.Sprint(got.OperatorUIDs) != "[3 7]" || got.StoreClass != "shared" {
		t.Errorf("got %+v", got)
	}
	if bytes.Contains(out, []byte("hunter2")) {
		t.Errorf("a secret is shown: %s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "home")); !os.IsNotExist(err) {
		t.Errorf("checking made something: %v", err)
	}

	// The database is down: the daemon does not serve, and keeps the secret.
	cmd = command(t, dir, "--config", config)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run() // the code says it
	if cmd.ProcessState.ExitCode() != 7 || strings.Contains(stderr.String(), "hunter2") {
		t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), stderr.String())
	}
	refuse(t, dir, 3, "chmod 0600", "--postgres-dsn-file", write("open", "postgres://u@h/d", 0o644))
	refuse(t, dir, 7, "no such file", "--postgres-dsn-file", filepath.Join(dir, "absent"))
}

func TestThePageHasEveryField(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "striatumd.md"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(servecmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for name := range fields {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/striatumd.md does not have %q", name)
		}
	}
}
