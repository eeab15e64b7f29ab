package verifiercmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"striatum/internal/cli"
)

func TestCopiesThatCannotBeWrittenAreToldOnce(t *testing.T) {
	top := t.TempDir()
	if err := os.Symlink("/elsewhere", filepath.Join(top, ".striatum")); err != nil {
		t.Fatal(err)
	}
	var notes bytes.Buffer
	b := &binder{top: top, streams: cli.Streams{Err: &notes}}
	b.copy(".striatum/one", []byte("1"))
	b.copy(".striatum/two", []byte("2"))
	if got := notes.String(); strings.Count(got, "no copy in the worktree") != 1 || !strings.Contains(got, "a symbolic link is in the way") {
		t.Errorf("got %q", got)
	}
}
