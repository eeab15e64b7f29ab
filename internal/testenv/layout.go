package testenv

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Layout is an OCI image layout that a test fills.
type Layout struct{ Dir string }

// NewLayout returns a layout without content.
func NewLayout(t testing.TB) Layout {
	t.Helper()
	l := Layout{t.TempDir()}
	if err := os.MkdirAll(filepath.Join(l.Dir, "blobs", "sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	return l
}

// Blob adds content and returns its descriptor.
func (l Layout) Blob(t testing.TB, mediaType string, data []byte) map[string]any {
	t.Helper()
	sum := sha256.Sum256(data)
	if err := os.WriteFile(l.Path(hex.EncodeToString(sum[:])), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"mediaType": mediaType, "digest": "sha256:" + hex.EncodeToString(sum[:]), "size": len(data)}
}

// Path is where the content of a digest, in hex, lies.
func (l Layout) Path(digest string) string { return filepath.Join(l.Dir, "blobs", "sha256", digest) }

// Document adds a JSON document and returns its descriptor.
func (l Layout) Document(t testing.TB, mediaType string, v any) map[string]any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return l.Blob(t, mediaType, data)
}

// Image adds an image of layers that are plain tar, lowest first, and returns
// its digest ("sha256:…").
func (l Layout) Image(t testing.TB, layers ...[]byte) string {
	t.Helper()
	var list []any
	for _, data := range layers {
		list = append(list, l.Blob(t, "application/vnd.oci.image.layer.v1.tar", data))
	}
	return l.Document(t, "application/vnd.oci.image.manifest.v1+json", Manifest(list...))["digest"].(string)
}

// Manifest is a manifest of the layers with these descriptors.
func Manifest(layers ...any) map[string]any {
	return map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": layers,
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2, "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
	}
}

// Entry is one entry of a layer.
type Entry struct {
	tar.Header
	Content string
}

// File is a regular file that anyone may read and execute.
func File(name, content string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, content}
}

// Folder is a folder.
func Folder(name string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

// Link is a symbolic link.
func Link(name, to string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}, ""}
}

// Tar packs entries.
func Tar(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.Content))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.Content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// System is a whole small system: programs of the host, below /bin, with what they
// load.
func System(t testing.TB, programs ...string) []Entry {
	t.Helper()
	entries := []Entry{Link("bin", "usr/bin"), Link("lib", "usr/lib"), Link("lib64", "usr/lib64")}
	seen := map[string]bool{}
	add := func(path string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if name := "usr/" + strings.TrimPrefix(strings.TrimPrefix(path, "/"), "usr/"); !seen[name] {
			seen[name] = true
			entries = append(entries, File(name, string(data)))
		}
	}
	for _, p := range programs {
		add(p)
		out, err := exec.CommandContext(t.Context(), "ldd", p).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", p, err)
		}
		for _, lib := range regexp.MustCompile(`/\S+`).FindAllString(string(out), -1) {
			add(lib)
		}
	}
	return entries
}

// Put lays entries down in a folder, with the modes that they have.
func Put(t testing.TB, dir string, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		path := filepath.Join(dir, e.Name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case e.Typeflag == tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case e.Typeflag == tar.TypeSymlink:
			err = os.Symlink(e.Linkname, path)
		default:
			if err = os.WriteFile(path, []byte(e.Content), 0o600); err == nil {
				err = os.Chmod(path, e.FileInfo().Mode())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
