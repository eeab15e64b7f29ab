package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"striatum/internal/testenv"
)

const (
	tarLayer  = "application/vnd.oci.image.layer.v1.tar"
	gzipLayer = tarLayer + "+gzip"
	zstdLayer = tarLayer + "+zstd"
)

// open returns a store that takes images from sources.
func open(t *testing.T, limits Limits, sources ...string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: filepath.Join(t.TempDir(), "images"), Sources: sources, OS: "linux", Arch: "amd64", Limits: limits, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tree lists what is below dir: the content of files with their modes, the text
// of links.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(p, dir+"/")
		switch {
		case d.IsDir():
			out[name] = fmt.Sprintf("%v", info.Mode())
		case d.Type() == fs.ModeSymlink:
			out[name], err = os.Readlink(p)
			out[name] = "→" + out[name]
		default:
			var data []byte
			data, err = os.ReadFile(p)
			out[name] = fmt.Sprintf("%v %s", info.Mode(), data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// image gets an image of layers from a layout, which must be possible.
func image(t *testing.T, layers ...[]byte) map[string]string {
	t.Helper()
	l := testenv.NewLayout(t)
	img, err := open(t, Limits{}, l.Dir).Get(t.Context(), "tools@"+l.Image(t, layers...))
	if err != nil {
		t.Fatal(err)
	}
	return tree(t, img.Root)
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if w, ok := want[name]; !ok || w != got[name] {
			t.Errorf("%s is %q, want %q", name, got[name], w)
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is not there", name)
		}
	}
}

func header(h tar.Header) testenv.Entry { return testenv.Entry{Header: h} }

func TestAnImageIsUnpackedWithoutItsPrivileges(t *testing.T) {
	when := time.Unix(1_500_000_000, 0)
	layer := testenv.Tar(t,
		testenv.Folder("./"), testenv.Folder("usr/"),
		testenv.Entry{Header: tar.Header{
			Name: "usr/bin/tool", Mode: 0o6755, Uid: 7, Gid: 8, ModTime: when, Format: tar.FormatPAX, Typeflag: tar.TypeReg,
			PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02", "SCHILY.xattr.user.x": "y"},
		}, Content: "tool"},
		testenv.Entry{Header: tar.Header{Name: "usr/data", Mode: 0o666, Typeflag: tar.TypeReg}, Content: "data"},
		testenv.Entry{Header: tar.Header{Name: "secret", Mode: 0o600, Typeflag: tar.TypeReg}, Content: "s"},
		header(tar.Header{Name: "sticky", Mode: 0o1777, Typeflag: tar.TypeDir}),
		testenv.Link("bin", "usr/bin"), testenv.Link("usr/out", "/etc/passwd"), testenv.Link("usr/up", "../../../../etc/passwd"),
		header(tar.Header{Name: "usr/same", Linkname: "usr/data", Typeflag: tar.TypeLink}),
		header(tar.Header{Name: "usr/samelink", Linkname: "usr/out", Typeflag: tar.TypeLink}),
	)
	l := testenv.NewLayout(t)
	for mediaType, data := range map[string][]byte{tarLayer: layer, gzipLayer: zipped(t, layer), zstdLayer: zstandard(t, layer)} {
		d := l.Document(t, ociManifest, testenv.Manifest(l.Blob(t, mediaType, data)))
		s := open(t, Limits{}, l.Dir)
		img, err := s.Get(t.Context(), "example.test/tools:tag@"+d["digest"].(string))
		if err != nil {
			t.Fatalf("%s: %v", mediaType, err)
		}
		same(t, tree(t, img.Root), map[string]string{
			"usr": "drwxr-xr-x", "usr/bin": "drwxr-xr-x", "usr/bin/tool": "-r-xr-xr-x tool", "usr/data": "-r--r--r-- data", "secret": "-r--r--r-- s",
			"sticky": "drwxr-xr-x", "bin": "→usr/bin", "usr/out": "→/etc/passwd", "usr/up": "→../../../../etc/passwd",
			"usr/same": "-r--r--r-- data", "usr/samelink": "→/etc/passwd",
		})
		st, err := os.Stat(filepath.Join(img.Root, "usr/bin/tool"))
		if err != nil || !st.ModTime().Equal(when) {
			t.Errorf("the time of a file is %v, %v", st.ModTime(), err)
		}
		if left := xattrs(t, filepath.Join(img.Root, "usr/bin/tool")); left != "" {
			t.Errorf("extended attributes: %q", left)
		}
		if again, err := s.Get(t.Context(), "tools@"+d["digest"].(string)); err != nil || again != img {
			t.Errorf("again: %+v, %v; want %+v", again, err, img)
		}
	}
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstandard(t *testing.T, data []byte, options ...zstd.EOption) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(data, nil)
}

func TestLayersHideWhatIsBelowAndOnlyThat(t *testing.T) {
	base := testenv.Tar(t, testenv.File("a/1", "1"), testenv.File("a/2", "2"), testenv.File("a/b/3", "3"), testenv.File("c", "c"),
		testenv.Link("link", "a"), testenv.File("gone/x", "x"), testenv.File("kept/x", "x"))
	const f, d = "-r-xr-xr-x ", "drwxr-xr-x"
	for name, c := range map[string]struct {
		layer []byte
		want  map[string]string
	}{
		"a file, a folder and what never was": {
			testenv.Tar(t, testenv.File("a/.wh.1", ""), testenv.File(".wh.gone", ""), testenv.File("never/.wh.x", ""), testenv.File("a/.wh.never", "")),
			map[string]string{"a": d, "a/2": f + "2", "a/b": d, "a/b/3": f + "3", "c": f + "c", "link": "→a", "kept": d, "kept/x": f + "x"},
		},
		"everything, but not what the same layer has before or after": {
			testenv.Tar(t, testenv.File("a/0", "0"), testenv.File("a/.wh..wh..opq", ""), testenv.File("a/2", "new"), testenv.File(".wh.kept", ""), testenv.File("kept/y", "y")),
			map[string]string{"a": d, "a/0": f + "0", "a/2": f + "new", "c": f + "c", "link": "→a", "gone": d, "gone/x": f + "x", "kept": d, "kept/y": f + "y"},
		},
		"a link, not where it leads": {
			testenv.Tar(t, testenv.File(".wh.link", ""), testenv.File("link/.wh.1", ""), testenv.File("link/.wh..wh..opq", ""), testenv.File(".wh..wh.plnk", "")),
			map[string]string{"a": d, "a/1": f + "1", "a/2": f + "2", "a/b": d, "a/b/3": f + "3", "c": f + "c", "gone": d, "gone/x": f + "x", "kept": d, "kept/x": f + "x"},
		},
		"by being something else": {
			testenv.Tar(t, testenv.Link("a", "/etc"), testenv.Folder("link"), testenv.File("link/1", "mine"), testenv.Folder("c"), testenv.File("gone", "file"), testenv.Folder("kept")),
			map[string]string{"a": "→/etc", "c": d, "link": d, "link/1": f + "mine", "gone": f + "file", "kept": d, "kept/x": f + "x"},
		},
		"twice": {
			testenv.Tar(t, testenv.File("c", "1"), testenv.Link("c", "/etc/passwd"), testenv.File("c", "2"), testenv.File(".wh.a", ""), testenv.File(".wh.gone", ""), testenv.File(".wh.kept", ""), testenv.File(".wh.link", "")),
			map[string]string{"c": f + "2"},
		},
	} {
		t.Run(name, func(t *testing.T) { same(t, image(t, base, c.layer), c.want) })
	}
}

// TestHostileImagesAreRefused: nothing of any of them stays, and nothing beside
// the store changes.
func TestHostileImagesAreRefused(t *testing.T) {
	outside := t.TempDir()
	canary := filepath.Join(outside, "canary")
	if err := os.WriteFile(canary, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := func(entries ...testenv.Entry) [][]byte { return [][]byte{testenv.Tar(t, entries...)} }
	ordinary := testenv.File("usr/bin/x", "x")
	many := func(n int, name func(int) string) (out []testenv.Entry) {
		for i := range n {
			out = append(out, testenv.File(name(i), ""))
		}
		return out
	}
	for name, c := range map[string]struct {
		layers [][]byte
		says   string
	}{
		"an absolute name":             {one(testenv.File(canary, "x")), "absolute"},
		"a name that leads upwards":    {one(testenv.File("usr/../../canary", "x")), "upwards"},
		"upwards and down again":       {one(testenv.File("usr/../usr/x", "x")), "upwards"},
		"through a link":               {one(testenv.Link("l", outside), testenv.File("l/canary", "x")), "is no folder"},
		"through a link within":        {one(ordinary, testenv.Link("l", "usr"), testenv.File("l/canary", "x")), "is no folder"},
		"through a link to nothing":    {one(testenv.Link("l", "nothing"), testenv.File("l/x/canary", "x")), "is no folder"},
		"through a link of before":     {[][]byte{testenv.Tar(t, testenv.Link("l", outside)), testenv.Tar(t, testenv.File("l/canary", "x"))}, "is no folder"},
		"through what became a link":   {[][]byte{testenv.Tar(t, testenv.Folder("d")), testenv.Tar(t, testenv.File("d/y", ""), testenv.Link("d", outside), testenv.File("d/canary", "x"))}, "is no folder"},
		"below a file":                 {one(ordinary, testenv.File("usr/bin/x/y", "x")), "is no folder"},
		"a second name of the outside": {one(testenv.Link("l", outside), header(tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "l/canary"})), "no file of the image"},
		"a second name, absolute":      {one(header(tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: canary})), "absolute"},
		"a second name, upwards":       {one(header(tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "../canary"})), "upwards"},
		"a second name of nothing":     {one(header(tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "none"})), "no file of the image"},
		"a second name of a folder":    {one(ordinary, header(tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "usr"})), "no file of the image"},
		"a second name of itself":      {one(ordinary, header(tar.Header{Typeflag: tar.TypeLink, Name: "usr/bin/x", Linkname: "usr/bin/x"})), "no file of the image"},
		"a character device":           {one(header(tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3})), "a device"},
		"a block device":               {one(header(tar.Header{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8})), "a device"},
		"a FIFO":                       {one(header(tar.Header{Typeflag: tar.TypeFifo, Name: "f"})), "a FIFO"},
		"an unknown type":              {one(header(tar.Header{Typeflag: tar.TypeCont, Name: "f"})), "unknown"},
		"a root that is a link":        {one(testenv.Link(".", outside)), "root of the image"},
		"hiding nothing":               {[][]byte{testenv.Tar(t, ordinary), testenv.Tar(t, testenv.File(".wh.", ""))}, "hides nothing"},
		"hiding the folder itself":     {[][]byte{testenv.Tar(t, ordinary), testenv.Tar(t, testenv.File("usr/.wh..", ""))}, "hides nothing"},
		"hiding the folder above":      {[][]byte{testenv.Tar(t, ordinary), testenv.Tar(t, testenv.File("usr/.wh...", ""))}, "hides nothing"},
		"below what hides":             {one(testenv.File(".wh.x/y", "")), "below what hides"},
		"a long name":                  {one(testenv.File(strings.Repeat("d/", 80)+strings.Repeat("n", 256), "")), "longer than 255"},
		"a very long name":             {one(testenv.File(strings.Repeat(strings.Repeat("d", 99)+"/", 41)+"f", "")), "longer than 4000"},
		"a deep name":                  {one(testenv.File(strings.Repeat("d/", 100)+"f", "")), "more than 100 folders"},
		"a link with a long text":      {one(testenv.Link("l", strings.Repeat("x", 4001))), "longer than 4000"},
		"many entries":                 {one(many(101, func(i int) string { return fmt.Sprintf("d/%d", i) })...), "more than 100 entries"},
		"many entries that hide":       {[][]byte{testenv.Tar(t, ordinary), testenv.Tar(t, many(100, func(i int) string { return fmt.Sprintf(".wh.%d", i) })...)}, "more than 100 entries"},
		"many things at the top":       {one(many(65, func(i int) string { return fmt.Sprintf("f%d", i) })...), "more than 64"},
		"an odd thing at the top":      {one(testenv.File("a\nb", "")), "directly below /"},
		"much content":                 {one(testenv.File("f", strings.Repeat("x", 2<<20))), "more than"},
		"no tar at all":                {[][]byte{bytes.Repeat([]byte("x"), 1024)}, "cannot be read"},
		"a tar that ends early":        {[][]byte{testenv.Tar(t, testenv.File("f", strings.Repeat("x", 4096)))[:2048]}, "cannot be read"},
		"a sparse file":                {[][]byte{sparse(t)}, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			l := testenv.NewLayout(t)
			s := open(t, Limits{UnpackedBytes: 1 << 20, Entries: 100}, l.Dir)
			refused(t, s, "tools@"+l.Image(t, c.layers...), c.says)
			if data, err := os.ReadFile(canary); err != nil || string(data) != "as it was" {
				t.Errorf("outside: %q, %v", data, err)
			}
			if names, err := os.ReadDir(outside); err != nil || len(names) != 1 {
				t.Errorf("outside: %v, %v", names, err)
			}
		})
	}
}

// refused gets an image that must be refused for a reason, and nothing of it kept.
func refused(t *testing.T, s *Store, name, says string) {
	t.Helper()
	_, err := s.Get(t.Context(), name)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want ErrRefused with %q", err, says)
	}
	same(t, tree(t, s.cfg.Dir), map[string]string{"spool": "drwx------"})
}

// sparse is a tar with a file of 1 TiB that has no content.
func sparse(t *testing.T) []byte {
	t.Helper()
	records := "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n37 GNU.sparse.realsize=1099511627776\n"
	filler := strings.Repeat("A", len(records)-len("81 comment=\n"))
	data := testenv.Tar(t, testenv.Entry{Header: tar.Header{
		Typeflag: tar.TypeReg, Name: "GNUSparseFile.0/f", Mode: 0o644, Format: tar.FormatPAX, PAXRecords: map[string]string{"comment": filler},
	}, Content: "0\n" + strings.Repeat("\x00", 510)})
	out := bytes.Replace(data, []byte("81 comment="+filler+"\n"), []byte(records), 1)
	h, err := tar.NewReader(bytes.NewReader(out)).Next()
	if err != nil || h.Size != 1<<40 {
		t.Fatalf("%+v, %v", h, err)
	}
	return out
}

func TestBombsEndAtTheBound(t *testing.T) {
	zeros := testenv.Tar(t, testenv.File("f", strings.Repeat("\x00", 16<<20)))
	ordinary := []testenv.Entry{testenv.File("a", "a"), testenv.File("b", "b")}
	wide := zstandard(t, make([]byte, 64<<20), zstd.WithWindowSize(zstd.MaxWindowSize))
	for name, c := range map[string]struct {
		mediaType string
		data      []byte
		says      string
	}{
		"gzip":                  {gzipLayer, zipped(t, zeros), "more than 1048576 bytes"},
		"zstd":                  {zstdLayer, zstandard(t, zeros), "more than 1048576 bytes"},
		"zstd with a window":    {zstdLayer, wide, "cannot be read"},
		"gzip that ends early":  {gzipLayer, zipped(t, testenv.Tar(t, ordinary...))[:40], "cannot be read"},
		"gzip that is none":     {gzipLayer, []byte("no"), "not packed as it says"},
		"zstd that is none":     {zstdLayer, bytes.Repeat([]byte("no"), 100), "cannot be read"},
		"tar that is gzip":      {tarLayer, zipped(t, zeros), "cannot be read"},
		"fetched bytes":         {tarLayer, zeros, "what it consists of"},
		"an unknown media type": {"application/octet-stream", zeros, "not unpacked"},
		"a foreign layer":       {"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", zeros, "not unpacked"},
	} {
		t.Run(name, func(t *testing.T) {
			l := testenv.NewLayout(t)
			d := l.Document(t, ociManifest, testenv.Manifest(l.Blob(t, c.mediaType, c.data)))
			refused(t, open(t, Limits{PackedBytes: 1 << 20, UnpackedBytes: 1 << 20}, l.Dir), "tools@"+d["digest"].(string), c.says)
		})
	}
}
