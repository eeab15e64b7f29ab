package verifier

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
// from the tree, and does without. So does one whose dependencies could compile
// otherwise beside the tree, see pure. The layer only saves time: what hinders it
// hinders no check.
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
	switch err := r.dependencyLayer(ctx, imports, std, dir); {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		r.lane.cfg.Log.WarnContext(ctx, "no cache layer of the dependencies", slog.String("check_id", r.check.CheckID()), slog.String("error", err.Error()))
		return std, nil
	}
	return dir, nil
}

// dependencyLayer makes the layer at dir. It has nothing but std's entries if the
// packages are not pure, or if a limit of the check was hit: then nobody tries
// again.
func (r *run) dependencyLayer(ctx context.Context, imports []string, std, dir string) error {
	limits := r.limits
	limits.WallClock = min(limits.WallClock, warmLimits.WallClock)
	shared := []sandbox.Mount{
		{Kind: sandbox.ReadOnly, Source: r.modules.Dir, Target: gocheck.ModuleDir},
		{Kind: sandbox.Layer, Source: std, Target: gocheck.CacheDir, Shared: true},
	}
	listed := &capped{left: maxListed}
	list := r.dependencyPrograms(imports, goList)
	said, err := r.compileLayer(ctx, limits, list, func(int) (io.Writer, io.Writer) { return listed, nil }, shared...)
	pure := err == nil && said == "" && r.pure(listed.Bytes())
	vol, verr := r.engine.NewVolume(ctx, warmVolumeBytes)
	if verr != nil {
		return verr
	}
	defer func() { r.drop(vol) }()
	if pure {
		programs := append(r.dependencyPrograms(imports, []string{"build"}, []string{"vet"}, []string{"test", "-count=1", "-exec=/bin/true"}),
			program(sandbox.InitPath, []string{"fresh", gocheck.CacheDir, outLayer}, "/", nil))
		_, err = r.compileLayer(ctx, limits, programs, nil, append(shared, sandbox.Mount{Kind: sandbox.Output, Volume: vol, Target: outLayer})...)
	}
	if errors.Is(err, errLimit) { // what was collected may be incomplete
		r.drop(vol)
		if vol, err = r.engine.NewVolume(ctx, warmVolumeBytes); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("compile the dependencies in the sandbox: %w", err)
	}
	return r.keepLayer(vol, dir, std)
}

// maxListed bounds what go list may say of the dependencies.
const maxListed = 32 << 20

// goList lists the files of every package below the imports, by kind.
var goList = []string{"list", "-deps", "-json=Standard,Dir,CgoFiles,CFiles,CXXFiles,MFiles,FFiles,SFiles,SwigFiles,SwigCXXFiles,SysoFiles"}

// listedPackage is what goList says of one package.
type listedPackage struct {
	Standard                                                            bool
	Dir                                                                 string
	CgoFiles, CFiles, CXXFiles, MFiles, FFiles, SwigFiles, SwigCXXFiles []string
	SFiles, SysoFiles                                                   []string
}

// pure reports whether each listed package compiles to the same wherever it is
// compiled, so that its cached result is the check's own. A C compiler can ask
// for files outside of a package, which no key of the go command's cache covers;
// so can Go's assembler, by #include.
func (r *run) pure(list []byte) bool {
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var p listedPackage
		if err := dec.Decode(&p); err != nil {
			return errors.Is(err, io.EOF)
		}
		if p.Standard || p.Dir == path.Join(gocheck.WorkDir, warmDir) {
			continue
		}
		dir, ok := strings.CutPrefix(p.Dir, gocheck.ModuleDir+"/")
		if !ok || len(slices.Concat(p.CgoFiles, p.CFiles, p.CXXFiles, p.MFiles, p.FFiles, p.SwigFiles, p.SwigCXXFiles, p.SysoFiles)) > 0 {
			return false
		}
		seen := map[string]bool{}
		for _, name := range p.SFiles {
			if !includesOwn(filepath.Join(r.modules.Dir, dir), name, seen) {
				return false
			}
		}
	}
}

// goIncludes are the files that the go command gives every assembly file.
var goIncludes = []string{"asm_amd64.h", "asm_ppc64x.h", "asm_riscv64.h", "funcdata.h", "go_asm.h", "textflag.h"}

// ownInclude is what may follow the word include in an assembly file.
var ownInclude = regexp.MustCompile(`^[ \t]+"([A-Za-z0-9_.-]+)"`)

// includesOwn reports whether a package's assembly file, and what it includes,
// includes nothing but files of the package, where the assembler looks first, and
// Go's own. Whatever else has the word include in it counts as more.
func includesOwn(dir, name string, seen map[string]bool) bool {
	if seen[name] {
		return true
	}
	seen[name] = true
	source, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return slices.Contains(goIncludes, name)
	}
	for err == nil {
		_, after, found := bytes.Cut(source, []byte("include"))
		if !found {
			return true
		}
		m := ownInclude.FindSubmatch(after)
		if m == nil || !includesOwn(dir, string(m[1]), seen) {
			return false
		}
		source = after
	}
	return false
}

// dependencyPrograms are go commands on imports, in a module that has the check's
// go.mod and go.sum. What `go test` would run there -exec replaces.
func (r *run) dependencyPrograms(imports []string, commands ...[]string) []sandbox.Program {
	files := append(warmPackage(imports), telemetryOff,
		warmFile("go.mod", string(r.source.files.Mods[0])), warmFile("go.sum", string(r.source.files.Sums[0])))
	var programs []sandbox.Program
	for _, args := range commands {
		if tags := r.source.params.Tags; len(tags) > 0 {
			args = slices.Insert(slices.Clone(args), 1, "-tags="+strings.Join(tags, ","))
		}
		p := program(r.tools.chain.Go, append(slices.Clone(args), "./..."), gocheck.WorkDir, r.source.env.List())
		if len(programs) == 0 { // they are there for the others too
			p.Files = files
		}
		programs = append(programs, p)
	}
	return programs
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
