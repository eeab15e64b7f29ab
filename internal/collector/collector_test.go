package collector

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMain makes this test binary a collector when the go command starts it as
// one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "collect" {
		os.Exit(Main(os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

func binary(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.test")
	if err := os.WriteFile(file, []byte("\x7fELF binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCollectKeepsTheBinaryItsFolderAndItsArguments(t *testing.T) {
	out := t.TempDir()
	src := binary(t)
	if err := Collect(out, "/workspace/a", []string{src, "-test.v=test2json", "-test.count=1"}); err != nil {
		t.Fatal(err)
	}
	if err := Collect(out, "/workspace", []string{src}); err != nil {
		t.Fatal(err)
	}
	records := records(t, out)
	want := []Record{
		{SchemaVersion: schemaVersion, Dir: "/workspace", Args: []string{}, Binary: name("/workspace") + ".test"},
		{SchemaVersion: schemaVersion, Dir: "/workspace/a", Args: []string{"-test.v=test2json", "-test.count=1"}, Binary: name("/workspace/a") + ".test"},
	}
	if diff := cmp.Diff(want, records); diff != "" {
		t.Fatal(diff)
	}
	copied := filepath.Join(out, records[1].Binary)
	data, err := os.ReadFile(copied)
	if err != nil || string(data) != "\x7fELF binary" {
		t.Errorf("copy is %q, %v", data, err)
	}
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v; want 0755", info.Mode(), err)
	}
}

func TestCollectRefusesASecondBinaryForAFolder(t *testing.T) {
	out := t.TempDir()
	src := binary(t)
	if err := Collect(out, "/workspace", []string{src}); err != nil {
		t.Fatal(err)
	}
	if err := Collect(out, "/workspace", []string{src}); err == nil {
		t.Error("a second binary was taken")
	}
}

func TestCollectRefusesWhatNoGoCommandPasses(t *testing.T) {
	src := binary(t)
	for name, c := range map[string]struct {
		dir  string
		argv []string
	}{
		"no binary":       {"/workspace", nil},
		"absent binary":   {"/workspace", []string{src + "x"}},
		"folder":          {"/workspace", []string{filepath.Dir(src)}},
		"relative folder": {"workspace", []string{src}},
		"unclean folder":  {"/workspace/../etc", []string{src}},
		"not text":        {"/workspace", []string{src, "\xff"}},
		"many arguments":  {"/workspace", append([]string{src}, make([]string, MaxArgs+1)...)},
		"long arguments":  {"/workspace", []string{src, strings.Repeat("x", MaxRecordBytes)}},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			if err := Collect(out, c.dir, c.argv); err == nil {
				t.Error("no error")
			}
			if files, _ := filepath.Glob(filepath.Join(out, "*.json")); len(files) > 0 {
				t.Errorf("left %v", files)
			}
		})
	}
}

func TestParseRecordRefusesWhatNoCollectorWrites(t *testing.T) {
	good, err := Record{SchemaVersion: schemaVersion, Dir: "/workspace", Args: []string{"-test.v"}, Binary: name("/workspace") + ".test"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseRecord(good); err != nil {
		t.Fatal(err)
	}
	text := string(good)
	for what, bad := range map[string]string{
		"nothing":          "",
		"cut":              text[:len(text)-5],
		"no newline":       strings.TrimSpace(text),
		"more after it":    text + "{}",
		"blanks":           strings.Replace(text, ":", ": ", 1),
		"another key":      strings.Replace(text, "{", `{"x":1,`, 1),
		"a key twice":      strings.Replace(text, `"args"`, `"dir":"/workspace","args"`, 1),
		"key in capitals":  strings.Replace(text, `"args"`, `"Args"`, 1),
		"another version":  strings.Replace(text, ".v1", ".v2", 1),
		"another folder":   strings.Replace(text, `"/workspace"`, `"/workspace/a"`, 1),
		"unclean folder":   strings.Replace(text, `"/workspace"`, `"/workspace/"`, 1),
		"args null":        strings.Replace(text, `["-test.v"]`, `null`, 1),
		"another binary":   strings.Replace(text, name("/workspace"), "../x", 1),
		"over the bound":   strings.Replace(text, "-test.v", strings.Repeat("x", MaxRecordBytes), 1),
		"a surrogate half": strings.Replace(text, "-test.v", `\ud800`, 1),
	} {
		if r, err := ParseRecord([]byte(bad)); err == nil {
			t.Errorf("%s: read %+v", what, r)
		}
	}
}

// records reads every record in out, by folder.
func records(t *testing.T, out string) []Record {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []Record
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ParseRecord(data)
		if err != nil || filepath.Base(file) != RecordName(r.Dir) {
			t.Fatalf("%s: %+v, %v", file, r, err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(a.Dir, b.Dir) })
	return all
}

// TestGoCommandTakesACollectedTestAsRun compiles two packages with one base name
// with the real go command and this test binary as the collector.
func TestGoCommandTakesACollectedTestAsRun(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":         "module example.test/m\n\ngo 1.24\n",
		"p/p_test.go":    "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc init() { os.Exit(3) }\n\nfunc TestP(t *testing.T) {}\n",
		"x/p/p_test.go":  "package p\n\nimport \"testing\"\n\nfunc TestP(t *testing.T) {}\n",
		"none/none.go":   "package none\n",
		"x/none/none.go": "package none\n",
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout=3m0s", "-exec="+self+" collect "+out+" --", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	for _, path := range []string{"p", "x/p"} {
		if want := []byte(`"Action":"pass","Package":"example.test/m/` + path + `"`); !bytes.Contains(stdout, want) {
			t.Errorf("no %s in %s", want, stdout)
		}
	}
	var got [][]string
	for _, r := range records(t, out) {
		got = append(got, append([]string{r.Dir}, r.Args...))
	}
	args := []string{"-test.paniconexit0", "-test.v=test2json", "-test.count=1", "-test.timeout=3m0s"}
	want := [][]string{append([]string{dir + "/p"}, args...), append([]string{dir + "/x/p"}, args...)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMainSaysHowItIsCalled(t *testing.T) {
	for _, args := range [][]string{nil, {"out"}, {"out", "--"}, {"out", "x", "--"}} {
		var stderr bytes.Buffer
		if code := Main(args, &stderr); code != 2 || !strings.Contains(stderr.String(), "usage") {
			t.Errorf("%q: %d %q", args, code, stderr.String())
		}
	}
}

func FuzzRecords(f *testing.F) {
	good, err := Record{SchemaVersion: schemaVersion, Dir: "/workspace", Args: []string{"-test.v", "é<&>\u2028"}, Binary: name("/workspace") + ".test"}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"schema_version":"striatum.collected.v1","dir":"/","args":null,"binary":""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRecord(data)
		if err != nil {
			if !cmp.Equal(r, Record{}) {
				t.Errorf("an error and a record %+v", r)
			}
			return
		}
		again, err := r.encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q was accepted and is written %q, %v", data, again, err)
		}
	})
}
