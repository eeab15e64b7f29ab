package execpath

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes an executable file and returns its path, links resolved.
func write(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

func paths(r Resolution) []string {
	var out []string
	for _, f := range r.Files {
		out = append(out, f.Path)
	}
	return out
}

func TestResolveFollowsWhatTheKernelRuns(t *testing.T) {
	bin, tree := t.TempDir(), t.TempDir()
	prog := write(t, bin, "prog", "\x7fELF not really", 0o755)
	env := write(t, bin, "env", "\x7fELF env", 0o755)
	if err := os.Symlink(prog, filepath.Join(bin, "alias")); err != nil {
		t.Fatal(err)
	}
	direct := write(t, tree, "direct", "#!"+prog+" -u\nbody\n", 0o755)
	byEnv := write(t, tree, "byenv", "#! "+env+" -S X=1 prog -u\nbody\n", 0o755)
	nested := write(t, tree, "nested", "#!"+direct+"\n", 0o755)
	for _, tt := range []struct {
		word string
		want []string
	}{
		{"prog", []string{prog}},
		{"alias", []string{prog}},
		{prog, []string{prog}},
		{"./direct", []string{direct, prog}},
		{"byenv", nil}, // not in the search path
		{"./byenv", []string{byEnv, env, prog}},
		{"./nested", []string{nested, direct, prog}},
	} {
		t.Run(tt.word, func(t *testing.T) {
			r, err := Resolve(tt.word, tree, "relative:"+bin)
			if tt.want == nil {
				if !errors.Is(err, ErrNotFound) {
					t.Fatalf("got %v, %v, want ErrNotFound", r, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := paths(r); !slices.Equal(got, tt.want) || r.Path != tt.want[0] {
				t.Errorf("got %q and %q, want %q", r.Path, got, tt.want)
			}
			for _, f := range r.Files {
				data, err := os.ReadFile(f.Path)
				if err != nil {
					t.Fatal(err)
				}
				if sum := sha256.Sum256(data); f.SHA256 != hex.EncodeToString(sum[:]) || f.Size != int64(len(data)) {
					t.Errorf("%s: got %s, %d", f.Path, f.SHA256, f.Size)
				}
			}
		})
	}
}

func TestResolveSaysWhyNothingRuns(t *testing.T) {
	bin := t.TempDir()
	write(t, bin, "data", "x", 0o644)
	write(t, bin, "dangling", "#!/nowhere/at/all\n", 0o755)
	write(t, bin, "empty", "#!\n", 0o755)
	loop := filepath.Join(bin, "loop")
	write(t, bin, "loop", "#!"+loop+"\n", 0o755)
	for word, want := range map[string]error{
		"data": ErrNotExecutable, "absent": ErrNotFound, "": ErrNotFound, "dangling": ErrNotFound, "empty": ErrNotFound,
		"/": ErrNotExecutable, "./data": ErrNotExecutable,
	} {
		if r, err := Resolve(word, bin, bin); !errors.Is(err, want) || r.Files != nil {
			t.Errorf("%q: got %v, %v, want %v", word, r, err, want)
		}
	}
	if r, err := Resolve("loop", bin, bin); err == nil || !strings.Contains(err.Error(), "interpreters") {
		t.Errorf("a loop of interpreters: got %v, %v", r, err)
	}
}

func TestWritePrintsOneLine(t *testing.T) {
	bin := t.TempDir()
	prog := write(t, bin, "prog", "x", 0o755)
	var out bytes.Buffer
	if err := Write(&out, "prog", "/", bin); err != nil {
		t.Fatal(err)
	}
	var r Resolution
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("got %q, %v", out.String(), err)
	}
	if r.SchemaVersion != SchemaVersion || r.Path != prog {
		t.Errorf("got %+v", r)
	}
	if err := Write(&out, "absent", "/", bin); err == nil {
		t.Error("an absent program was resolved")
	}
}
