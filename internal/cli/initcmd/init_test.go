package initcmd_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/clitest"
	"striatum/internal/cli/initcmd"
	"striatum/internal/problem"
)

func TestMain(m *testing.M) {
	clitest.Main(m, func(f *cli.Factory) []*cobra.Command { return []*cobra.Command{initcmd.New(f)} })
}

func TestScripts(t *testing.T) {
	clitest.Run(t, map[string]func(*testscript.TestScript, bool, []string){"mode": mode})
}

// mode FILE MODE: the file has the mode, as ls writes it.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	st, err := os.Lstat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := st.Mode().String(); got != args[1] {
		ts.Fatalf("%s has mode %s, want %s", args[0], got, args[1])
	}
}

// fullDisk fails every write.
type fullDisk struct{}

var errFull = errors.New("no space left on device")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestTokenThatNobodySawIsNotMinted(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	var notes, out bytes.Buffer
	f := &cli.Factory{
		Streams: cli.Streams{Out: fullDisk{}, Err: &notes},
		Getenv:  func(k string) string { return map[string]string{"STRIATUM_HOME": home}[k] },
		Now:     time.Now, Rand: rand.Reader,
	}
	cmd := initcmd.New(f)
	cmd.SetArgs(nil)
	if code := cli.Run(t.Context(), cmd, f.Streams); code != problem.Indeterminate.ExitCode() {
		t.Errorf("exit %d: %s", code, notes.String())
	}
	f.Streams.Out = &out
	cmd = initcmd.New(f)
	cmd.SetArgs(nil)
	if code := cli.Run(t.Context(), cmd, f.Streams); code != 0 || !strings.HasPrefix(out.String(), "striatum_op_") {
		t.Errorf("the next init: exit %d, %q: %s", code, out.String(), notes.String())
	}
}
