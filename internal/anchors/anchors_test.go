package anchors

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree writes files, and anchors for all of them, and returns their folder and
// the path of the anchors file.
func tree(t *testing.T, files map[string]string) (root, path string, list []Anchor) {
	t.Helper()
	root = t.TempDir()
	for name, data := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		list = append(list, Anchor{name, fmt.Sprintf("%x", sha256.Sum256([]byte(data)))})
	}
	return root, anchorsFile(t, list), list
}

func anchorsFile(t *testing.T, list []Anchor) string {
	t.Helper()
	data, err := Encode(list)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "anchors.json")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// judge runs the check as the sandbox does and judges it.
func judge(t *testing.T, path, root string) (Verdict, []Reason) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code := Run(path, root, &out)
	v, reasons, _ := Judge(data, out.Bytes(), code)
	return v, reasons
}

func TestAnchorsThatHoldPass(t *testing.T) {
	root, path, _ := tree(t, map[string]string{"a": "1", "dir/b": "", "odd \n\t\"é name": "x"})
	if v, reasons := judge(t, path, root); v != Passed || reasons != nil {
		t.Errorf("verdict %v, %v", v, reasons)
	}
}

func TestEveryAnchorThatDoesNotHoldIsNamed(t *testing.T) {
	root, _, list := tree(t, map[string]string{"good": "1", "changed": "1", "gone": "1", "link": "1", "dir/behind": "1", "folder": "1", "file": "1"})
	list = append(list, Anchor{"file/below", list[0].SHA256}, Anchor{"pipe", list[0].SHA256})
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, "changed"), []byte("2"), 0o644),
		os.Remove(filepath.Join(root, "gone")),
		os.Remove(filepath.Join(root, "link")),
		os.Symlink("good", filepath.Join(root, "link")),
		os.Rename(filepath.Join(root, "dir"), filepath.Join(root, "real")),
		os.Symlink("real", filepath.Join(root, "dir")),
		os.Remove(filepath.Join(root, "folder")),
		os.Mkdir(filepath.Join(root, "folder"), 0o755),
		syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	v, reasons := judge(t, anchorsFile(t, list), root)
	got := map[string]string{}
	for _, r := range reasons {
		got[strings.Split(r.Detail, `"`)[1]] = r.Code
	}
	want := map[string]string{
		"changed": "anchor_differs", "gone": "anchor_absent", "file/below": "anchor_absent",
		"link": "anchor_irregular", "dir/behind": "anchor_irregular", "folder": "anchor_irregular", "pipe": "anchor_irregular",
	}
	if v != Failed || !cmp.Equal(got, want) {
		t.Errorf("verdict %v (-want +got):\n%s", v, cmp.Diff(want, got))
	}
}

func TestNoAnchorsAreNothingToCheckAndFail(t *testing.T) {
	v, reasons := judge(t, anchorsFile(t, nil), t.TempDir())
	if v != Failed || len(reasons) != 1 || reasons[0].Code != "nothing_to_check" {
		t.Errorf("verdict %v, %v", v, reasons)
	}
}

func TestRunFailsWithoutAnAnchorsFile(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	_, good, _ := tree(t, map[string]string{"a": "1"})
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "absent"), dir, link} {
		var out bytes.Buffer
		if code := Run(path, dir, &out); code != 1 || !strings.HasPrefix(out.String(), "invalid ") {
			t.Errorf("%s: code %d, %q", path, code, out.String())
		}
	}
}

func TestEachMutatedAnchorIsReported(t *testing.T) {
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("d%d/f%d", i%7, i)] = strings.Repeat("x", i)
	}
	root, path, list := tree(t, files)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range byte(10) {
		bad, err := Mutate(good, rand.NewChaCha8([32]byte{seed}))
		if err != nil {
			t.Fatal(err)
		}
		mutated, err := Parse(bad)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if d := digitsThatDiffer(list[i].SHA256, mutated[i].SHA256); d != 1 || list[i].Path != mutated[i].Path {
				t.Fatalf("anchor %d: %d digits differ", i, d)
			}
		}
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code := Run(path, root, &out)
		if v, why := JudgeControl(bad, out.Bytes(), code); v != Failed {
			t.Errorf("control: verdict %v: %s", v, why)
		}
		// One that goes unnoticed voids the control.
		forged := strings.Replace(out.String(), "differs "+list[3].SHA256, "ok "+mutated[3].SHA256, 1)
		if v, _ := JudgeControl(bad, []byte(forged), code); v != Passed {
			t.Errorf("unnoticed mutation: verdict %v, want Passed", v)
		}
	}
}

func digitsThatDiffer(a, b string) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func TestOutputThatRunDoesNotPrintIsInconclusive(t *testing.T) {
	root, path, list := tree(t, map[string]string{"a": "1"})
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	Run(path, root, &out)
	good := out.String()
	for _, c := range []struct {
		out  string
		exit int
	}{
		{"", 0},
		{"", 1},
		{good, 1},
		{good, 2},
		{good, -1},
		{good + "x", 0},
		{good[:len(good)-1], 0},
		{strings.Replace(good, "ok", "fine", 1), 0},
		{strings.Replace(good, list[0].SHA256, strings.Repeat("0", 64), 1), 0},
		{strings.Replace(good, `"a"`, `"b"`, 1), 0},
		{strings.Replace(good, "ok "+list[0].SHA256, "absent -", 1), 0},
		{strings.Replace(good, " 1\n", " 2\n", 1), 0},
	} {
		if v, _, _ := Judge(data, []byte(c.out), c.exit); v != Inconclusive {
			t.Errorf("exit %d, %q: verdict %v", c.exit, c.out, v)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	sum := strings.Repeat("a", 64)
	one := func(path, sha string) string {
		return fmt.Sprintf(`{"schema_version":"striatum.anchors.v1","anchors":[{"path":%q,"sha256":%q}]}`, path, sha)
	}
	for name, bad := range map[string]string{
		"nothing": "", "null": "null", "a list": "[]", "no schema": `{"anchors":[]}`, "other schema": `{"schema_version":"v2","anchors":[]}`,
		"no anchors": `{"schema_version":"striatum.anchors.v1"}`, "null anchors": `{"schema_version":"striatum.anchors.v1","anchors":null}`,
		"unknown key": `{"schema_version":"striatum.anchors.v1","anchors":[],"x":1}`, "key twice": `{"schema_version":"striatum.anchors.v1","anchors":[],"anchors":[]}`,
		"trailing": one("a", sum) + "{}", "absolute": one("/a", sum), "parent": one("../a", sum), "dot": one(".", sum), "unclean": one("a//b", sum),
		"upper case": one("a", strings.ToUpper(sum)), "short": one("a", sum[1:]), "number": `{"schema_version":1,"anchors":[]}`,
		"key of another case": `{"Schema_Version":"striatum.anchors.v1","anchors":[]}`,
		"path twice":          strings.Replace(one("a", sum), "]", `,{"path":"a","sha256":"`+sum+`"}]`, 1),
		"not UTF-8":           strings.Replace(one("a", sum), `"a"`, "\"\xff\"", 1), "huge": strings.Repeat(" ", MaxBytes) + one("a", sum), "deep": strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
	} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"schema_version":"striatum.anchors.v1","anchors":[{"path":"a/b","sha256":"` + strings.Repeat("0", 64) + `"}]}`))
	f.Add([]byte(`{"anchors":[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Parse(data)
		if err != nil {
			return
		}
		first, err := Encode(list)
		if err != nil {
			t.Skip("too long when written out") // only near MaxBytes
		}
		again, err := Parse(first)
		if err != nil || !cmp.Equal(list, again) {
			t.Fatalf("error %v: %s", err, cmp.Diff(list, again))
		}
	})
}

func FuzzJudge(f *testing.F) {
	anchors := []byte(`{"schema_version":"striatum.anchors.v1","anchors":[{"path":"a","sha256":"` + strings.Repeat("0", 64) + `"}]}`)
	f.Add([]byte(resultMarker+" 1\nok "+strings.Repeat("0", 64)+" \"a\"\nend 1\n"), 0)
	f.Fuzz(func(t *testing.T, out []byte, exit int) {
		want := resultMarker + " 1\nok " + strings.Repeat("0", 64) + " \"a\"\nend 1\n"
		if v, _, _ := Judge(anchors, out, exit); (v == Passed) != (exit == 0 && string(out) == want) {
			t.Errorf("verdict %v for exit %d, %q", v, exit, out)
		}
	})
}
