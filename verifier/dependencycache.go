package verifier

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"striatum/sandbox"
	"striatum/verifier/gocheck"
)

const (
	outLayer        = "/out/layer" // where new cache entries are collected
	unfinished      = ".new"       // the suffix of a layer that is being made
	maxLayerSumFile = 4 << 20      // a larger go.sum goes without the layer
)

// dependencyCache returns the folder of the lane's cache layer 2, on top of
// layer 1 at std: the packages that the check imports of other modules, compiled
// and vetted in a strict sandbox that sees these proven modules and no byte of the tree but
// its go.mod and go.sum. No code of a module runs there. A check that replaces
// modules by folders, has a vendor folder or a workspace takes their packages
// from the tree, and does without.
func (r *run) dependencyCache(ctx context.Context, std string) (string, error) {
	imports := r.source.discovery.External
	if len(imports) == 0 || r.modules.Self > 0 || r.source.module.Vendored || r.check.GoWork || len(r.modules.Missing) > 0 ||
		r.modules.Dir == "" || len(r.source.files.Mods) != 1 || len(r.source.files.Sums) != 1 || len(r.source.files.Sums[0]) > maxLayerSumFile {
		return std, nil
	}
	d := newDigest()
	for _, s := range append([]string{
		filepath.Base(std), r.source.env.Digest(), r.modules.Digest, string(r.source.files.Mods[0]), string(r.source.files.Sums[0]),
		strings.Join(r.source.params.Tags, ","),
	}, imports...) {
		d.field(s)
	}
	dir, have, err := r.layerDir("deps", d.sum())
	if err != nil || have {
		return dir, err
	}
	r.step("compile the dependencies for the lane's cache (once for each set of them)")
	vol, err := r.engine.NewVolume(ctx, warmVolumeBytes)
	if err != nil {
		return "", err
	}
	defer r.drop(vol)
	said, err := r.compileLayer(ctx, r.dependencyPrograms(imports),
		sandbox.Mount{Kind: sandbox.ReadOnly, Source: r.modules.Dir, Target: gocheck.ModuleDir},
		sandbox.Mount{Kind: sandbox.Layer, Source: std, Target: gocheck.CacheDir, Shared: true},
		sandbox.Mount{Kind: sandbox.Output, Volume: vol, Target: outLayer})
	if err != nil {
		return "", fmt.Errorf("compile the dependencies in the sandbox: %w", err)
	}
	if said != "" { // the check will say so of its own accord; what did compile is kept
		r.lane.cfg.Log.DebugContext(ctx, "not every dependency compiled", slog.String("check_id", r.check.CheckID()), slog.String("said", said))
	}
	return dir, r.keepLayer(vol, dir, std)
}

// dependencyPrograms compile imports in a module that has the check's go.mod and
// go.sum, vet them as `go vet` and as `go test` do, and collect what is new in the cache. `go
// test` would run what it links: /bin/true does not.
func (r *run) dependencyPrograms(imports []string) []sandbox.Program {
	var all strings.Builder
	for _, name := range imports {
		fmt.Fprintf(&all, "import _ %q\n", name)
	}
	run := func(args ...string) sandbox.Program {
		if tags := r.source.params.Tags; len(tags) > 0 {
			args = slices.Insert(slices.Clone(args), 1, "-tags="+strings.Join(tags, ","))
		}
		p := program(r.tools.chain.Go, args, gocheck.WorkDir, r.source.env.List())
		p.Files = []sandbox.File{telemetryOff}
		return p
	}
	first := run("build", "./...")
	for name, data := range map[string]string{
		"go.mod": string(r.source.files.Mods[0]), "go.sum": string(r.source.files.Sums[0]),
		"warm/warm.go":      "package warm\n\n" + all.String(),
		"warm/warm_test.go": "package warm\n\nimport \"testing\"\n\nfunc Test(*testing.T) {}\n",
	} {
		first.Files = append(first.Files, sandbox.File{Path: path.Join(gocheck.WorkDir, name), Mode: 0o644, Data: []byte(data)})
	}
	return []sandbox.Program{
		first, run("vet", "./..."), run("test", "-count=1", "-exec=/bin/true", "./..."),
		program(sandbox.InitPath, []string{"fresh", gocheck.CacheDir, outLayer}, "/", nil),
	}
}

// pruneLayers drops the layers in dir that were not used for the longest, until
// all take at most quota bytes, and what a kill left unfinished. Those in keep
// stay. Only the holder of the lane's lock may call it, between checks.
func pruneLayers(dir string, quota int64, keep ...string) error {
	if err := prune(dir, quota, keep); err != nil {
		return fmt.Errorf("prune the cache layers: %w", err)
	}
	return nil
}

func prune(dir string, quota int64, keep []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type layer struct {
		path string
		used time.Time
	}
	var layers []layer
	for _, e := range entries {
		p := filepath.Join(dir, e.Name())
		if slices.Contains(keep, p) {
			continue
		}
		if strings.HasSuffix(p, unfinished) {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		layers = append(layers, layer{p, info.ModTime()})
	}
	slices.SortFunc(layers, func(a, b layer) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	for {
		n, err := bytesBelow(dir)
		if err != nil || n <= quota || len(layers) == 0 {
			return err
		}
		if err := os.RemoveAll(layers[0].path); err != nil {
			return err
		}
		layers = layers[1:]
	}
}

// bytesBelow sums the files below dir, a file with several links once.
func bytesBelow(dir string) (int64, error) {
	var n int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		if !seen[st.Ino] {
			seen[st.Ino] = true
			n += st.Size
		}
		return nil
	})
	return n, err
}
