package testenv

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
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
