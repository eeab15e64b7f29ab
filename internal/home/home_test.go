package home_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/home"
	"striatum/internal/problem"
)

// childEnv makes this test binary open the home that it names and print what
// it made.
const childEnv = "STRIATUM_HOME_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := useHome(context.Background(), dir, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func useHome(ctx context.Context, dir string, out io.Writer) error {
	h, created, err := home.Open(ctx, dir, rand.Reader)
	if err != nil {
		return err
	}
	_, more, closeStore, err := h.Service(ctx, time.Now, rand.Reader)
	if err != nil {
		return err
	}
	for _, c := range append(created, more...) {
		fmt.Fprintln(out, c)
	}
	return closeStore()
}

func open(t *testing.T, dir string) (*home.Home, []string) {
	t.Helper()
	h, created, err := home.Open(t.Context(), dir, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return h, created
}

func wantKind(t *testing.T, err error, kind problem.Kind, hint string) {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != kind || !strings.Contains(p.Hint, hint) {
		t.Errorf("got %v (%+v), want kind %d with the hint %q", err, p, kind, hint)
	}
}

func TestLocateTakesTheFirstThatIsSet(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"STRIATUM_HOME": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"},
		{map[string]string{"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/striatum"},
		{map[string]string{"HOME": "/c"}, "/c/.local/state/striatum"},
		{map[string]string{}, ""},
		{map[string]string{"STRIATUM_HOME": "relative", "HOME": "/c"}, ""},
	} {
		got, err := home.Locate(func(k string) string { return tt.env[k] })
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%v: got %q, %v, want %q", tt.env, got, err, tt.want)
		}
	}
}

func TestFirstUseMakesEverythingPrivateAndSaysSo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "home")
	h, created := open(t, dir)
	want := []string{"home " + dir, "lane key " + h.KeyPath("lane"), "report key " + h.KeyPath("report")}
	if diff := cmp.Diff(created, want); diff != "" {
		t.Error(diff)
	}
	for path, mode := range map[string]os.FileMode{
		dir: 0o700, filepath.Join(dir, "keys"): 0o700, h.LaneDir(): 0o700,
		h.KeyPath("lane"): 0o600, h.KeyPath("report"): 0o600,
		h.PublicKeyPath("lane"): 0o644, h.PublicKeyPath("report"): 0o644,
	} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: got %v, %v, want %04o", path, st, err, mode)
		}
	}
	again, created := open(t, dir)
	if len(created) != 0 {
		t.Errorf("the second use made %v", created)
	}
	if again.LaneKey.Public().ID() != h.LaneKey.Public().ID() || h.LaneKey.Public().ID() == h.ReportKey.Public().ID() {
		t.Error("the keys changed, or are one key")
	}
}

func TestCrashDuringFirstUseIsMadeGood(t *testing.T) {
	for _, lost := range []string{"keys/report.pem keys/report.pub", "keys/report.pub", "keys/lane.pub", "lane"} {
		t.Run(lost, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "home")
			before, _ := open(t, dir)
			for path := range strings.FieldsSeq(lost) {
				if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "keys", ".tmp-0123"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			after, _ := open(t, dir)
			if before.LaneKey.Public().ID() != after.LaneKey.Public().ID() {
				t.Error("the lane key changed")
			}
			data, err := os.ReadFile(after.PublicKeyPath("report"))
			if err != nil || string(data) != string(after.ReportKey.Public().PEM()) {
				t.Errorf("the public key is not that of the private one: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "keys", ".tmp-0123")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the temporary file is still there: %v", err)
			}
		})
	}
}

func TestHomeThatLetsOthersInIsRefused(t *testing.T) {
	for path, mode := range map[string]os.FileMode{
		".": 0o755, "keys": 0o750, "keys/lane.pem": 0o640, "keys/report.pem": 0o604, "store.db": 0o644,
	} {
		t.Run(path, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "home")
			if err := useHome(t.Context(), dir, io.Discard); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, path), mode); err != nil {
				t.Fatal(err)
			}
			wantKind(t, useHome(t.Context(), dir, io.Discard), problem.Refused, "chmod 0")
		})
	}
}

func TestKeyBehindALinkIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	h, _ := open(t, dir)
	if err := os.Rename(h.KeyPath("lane"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "moved"), h.KeyPath("lane")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := home.Open(t.Context(), dir, rand.Reader); err == nil {
		t.Error("a link was followed")
	}
}

func TestDamagedKeyIsNotReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	h, _ := open(t, dir)
	if err := os.WriteFile(h.KeyPath("lane"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := home.Open(t.Context(), dir, rand.Reader)
	wantKind(t, err, problem.Invalid, "backup")
	if data, err := os.ReadFile(h.KeyPath("lane")); err != nil || string(data) != "broken" {
		t.Errorf("got %q, %v", data, err)
	}
}

func TestLostPrivateKeyIsNotReplacedSilently(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	h, _ := open(t, dir)
	if err := os.Remove(h.KeyPath("lane")); err != nil {
		t.Fatal(err)
	}
	_, _, err := home.Open(t.Context(), dir, rand.Reader)
	wantKind(t, err, problem.Refused, "backup")
}

func TestPublicKeyOfAnotherPairIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	h, _ := open(t, dir)
	if err := os.WriteFile(h.PublicKeyPath("lane"), h.ReportKey.Public().PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, err := home.Open(t.Context(), dir, rand.Reader)
	wantKind(t, err, problem.Refused, "written again")
}

func TestFileInPlaceOfTheHomeIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "home")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := home.Open(t.Context(), path, rand.Reader)
	wantKind(t, err, problem.Refused, "STRIATUM_HOME")
}

func TestHomeThatCannotBeWrittenIsAClearProblem(t *testing.T) {
	if runtime.GOOS == "linux" {
		_, _, err := home.Open(t.Context(), "/proc/striatum/home", rand.Reader)
		wantKind(t, err, problem.Missing, "STRIATUM_HOME")
	}
	if os.Geteuid() != 0 {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		_, _, err := home.Open(t.Context(), filepath.Join(dir, "home"), rand.Reader)
		wantKind(t, err, problem.Missing, "make it writable")
	}
}

func TestProcessesAgreeOnOneFirstUse(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "home")
	const processes = 6
	said := map[string]int{}
	var running []*exec.Cmd
	var out [processes]strings.Builder
	for i := range processes {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		cmd.Stdout, cmd.Stderr = &out[i], os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for i, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
		for line := range strings.Lines(out[i].String()) {
			said[strings.TrimSpace(line)]++
		}
	}
	h, created := open(t, dir)
	if len(created) != 0 {
		t.Errorf("they left out %v", created)
	}
	for _, key := range []string{"lane key " + h.KeyPath("lane"), "report key " + h.KeyPath("report")} {
		if said[key] != 1 {
			t.Errorf("%q was said %d times", key, said[key])
		}
	}
	svc, _, closeStore, err := h.Service(t.Context(), time.Now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := closeStore(); err != nil {
			t.Error(err)
		}
	}()
	ring, err := svc.Keyring(t.Context())
	if err != nil || ring.Len() != 1 || ring.Keys()[0].Public.ID() != h.LaneKey.Public().ID() {
		t.Errorf("got %v, %v, want the home's lane alone", ring.Keys(), err)
	}
}

func TestWorktreeIsKnownByRealPathDeviceAndInode(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	one, err := home.Worktree(real)
	if err != nil {
		t.Fatal(err)
	}
	two, err := home.Worktree(filepath.Join(dir, "link"))
	if err != nil || one != two {
		t.Errorf("got %v and %v, %v", one, two, err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(real, &st); err != nil || one.Inode != st.Ino {
		t.Errorf("got inode %d, want %d (%v)", one.Inode, st.Ino, err)
	}
	_, err = home.Worktree(filepath.Join(dir, "absent"))
	wantKind(t, err, problem.Usage, "exists")
}
