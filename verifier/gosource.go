package verifier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"striatum/receipt"
	"striatum/sandbox"
	"striatum/verifier/gocheck"
	"striatum/verifier/modules"
	"striatum/verifier/toolchain"
)

// goSource is what the intake of a Go check read.
type goSource struct {
	module    gocheck.Module
	params    gocheck.Params
	discovery gocheck.Discovery
	env       gocheck.Environment
	files     modules.Files
}

// prepareGo reads the tree for a Go check: which module, which packages and
// tests, and where its dependencies are. No code runs. errConcluded: the body
// says why the check cannot go on.
func prepareGo(ctx context.Context, r *run) error {
	if err := r.useToolchain(); err != nil {
		return err
	}
	r.source.env = gocheck.NewEnvironment(r.tools.chain.GOROOT, r.tools.chain.CgoEnabled, r.check.GoWork)
	r.body.Tools.EnvironmentSHA = r.source.env.Digest()
	root, err := os.OpenRoot(r.snap.Dir)
	if err != nil {
		return fmt.Errorf("open the frozen tree: %w", err)
	}
	defer func() { _ = root.Close() }() // a read-only handle
	tree := root.FS()

	r.step("read the module")
	module, notes, err := gocheck.FindModule(tree, gocheck.Selection{Dir: r.check.Dir, Declared: r.declaredDirs(), GoWork: r.check.GoWork})
	if chosen, ok := errors.AsType[*gocheck.ModuleError](err); ok {
		r.body.Findings = append(r.body.Findings, notes.Findings...)
		if chosen.Problem == gocheck.BadModFile && module.TooNew(r.tools.chain.Version) {
			return r.tooOld(module)
		}
		if chosen.Problem == gocheck.OverBound {
			return r.overBound(chosen.Error())
		}
		r.incident("nothing_to_check", receipt.MakesFailed, chosen.Error())
		return errConcluded
	}
	if err != nil {
		return err
	}
	if err := r.addNotes(notes); err != nil {
		return err
	}
	if module.TooNew(r.tools.chain.Version) {
		return r.tooOld(module)
	}
	r.source.module = module
	r.source.params = gocheck.Params{Packages: r.check.Packages, Tags: r.check.Tags}
	discovery, findings, err := gocheck.Census(tree, module, r.source.params, gocheck.BuildContext{
		GOOS: r.tools.chain.GOOS, GOARCH: r.tools.chain.GOARCH, CgoEnabled: r.tools.chain.CgoEnabled, GoVersion: r.tools.chain.Version,
	})
	r.body.Findings = append(r.body.Findings, findings...)
	if literal, ok := errors.AsType[*gocheck.LiteralError](err); ok {
		r.incident("nothing_to_check", receipt.MakesFailed, literal.Error())
		return errConcluded
	}
	if err != nil {
		return err
	}
	if len(discovery.Unread) > 0 {
		return r.overBound(fmt.Sprintf("read the imports of %q: they are not within %d bytes", discovery.Unread[0], gocheck.MaxSourceBytes))
	}
	if findings, err = gocheck.IgnoredFindings(tree, module, r.source.params, r.snap.Ignored, r.snap.IgnoredMore); err != nil {
		return err
	}
	r.body.Findings = append(r.body.Findings, findings...)
	r.source.discovery = discovery
	return r.dependencies(ctx, tree)
}

// overBound concludes: a file of the tree is larger than the lane reads.
func (r *run) overBound(detail string) error {
	r.incident("file_over_bound", receipt.MakesIndeterminate, detail)
	return errConcluded
}

// tooOld concludes: the module wants a newer Go than the lane has.
func (r *run) tooOld(m gocheck.Module) error {
	i := m.TooOldIncident(r.tools.chain.Version)
	r.incident(i.Code, i.Effect, i.Detail)
	return errConcluded
}

// declaredDirs are the module folders that the other checks name.
func (r *run) declaredDirs() []string {
	var dirs []string
	for _, c := range r.sel.Checks {
		if c.Dir != "" {
			dirs = append(dirs, c.Dir)
		}
	}
	return dirs
}

// moduleFiles reads the go.mod and go.sum of the module; in a workspace those of
// each of its modules, and go.work with its go.work.sum.
func (r *run) moduleFiles(tree fs.FS) (modules.Files, error) {
	const sumBytes = 16 << 20
	var files modules.Files
	optional := func(name string, limit int64) ([]byte, error) {
		data, err := gocheck.ReadFile(tree, name, limit)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // the go command misses it, if it does
		}
		return data, err
	}
	dirs := []string{r.source.module.Dir}
	if work := r.source.module.Work; r.check.GoWork && work != "" {
		dirs = append(dirs, r.source.module.Uses...)
		var err error
		if files.Work, err = gocheck.ReadFile(tree, work, gocheck.MaxModFileBytes); err != nil {
			return files, err
		}
		if files.WorkSum, err = optional(work+".sum", sumBytes); err != nil {
			return files, err
		}
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		mod, err := optional(path.Join(dir, "go.mod"), gocheck.MaxModFileBytes)
		if err != nil {
			return files, err
		}
		sum, err := optional(path.Join(dir, "go.sum"), sumBytes)
		if err != nil {
			return files, err
		}
		if mod != nil {
			files.Mods = append(files.Mods, mod)
		}
		files.Sums = append(files.Sums, sum)
	}
	return files, nil
}

// maxSourceFindings bounds the files of bad module sources that are named one by one.
const maxSourceFindings = 20

// dependencies fills the lane's module store with what go.sum names.
func (r *run) dependencies(ctx context.Context, tree fs.FS) error {
	r.step("fetch dependencies")
	files, err := r.moduleFiles(tree)
	if gocheck.TooLarge(err) {
		return r.overBound(err.Error())
	}
	if err != nil {
		return err
	}
	r.source.files = files
	set, err := r.tools.modules.Fetch(ctx, files)
	if invalid, ok := errors.AsType[*modules.InvalidError](err); ok {
		if errors.Is(err, modules.ErrBound) {
			return r.overBound(invalid.Error())
		}
		r.finding("module_file_invalid", path.Join(r.source.module.Dir, invalid.File), cut(invalid.Err.Error()))
		return r.vendored(ctx, tree) // the go command reads the same file, and fails if it needs it
	}
	if err != nil {
		return err
	}
	r.modules = set
	r.body.Inputs.Dependencies = &receipt.Dependencies{
		Digest: set.Digest, SumDB: set.SumDB, Accepted: set.Accepted, FirstSeen: set.FirstSeen, Self: set.Self,
	}
	if set.SumDBTrouble != "" {
		r.finding("sumdb_trouble", path.Join(r.source.module.Dir, "go.sum"), cut(set.SumDBTrouble))
	}
	for i, n := range set.Notes {
		if i == maxSourceFindings {
			r.finding("module_source_wrong", "", fmt.Sprintf("%d more", len(set.Notes)-i))
			break
		}
		r.finding("module_source_wrong", "", cut(n))
	}
	for _, t := range set.Tampered {
		r.incident("dependency_tampered", receipt.MakesFailed, t.String())
	}
	if len(set.Tampered) > 0 {
		return errConcluded
	}
	if len(set.Missing) > 0 {
		r.finding("dependency_missing", path.Join(r.source.module.Dir, "go.sum"), fmt.Sprintf(
			"%d files of go.sum or go.work.sum are neither in a download cache nor reachable, first: %s; run `go mod download` with network access, then check again",
			len(set.Missing), set.Missing[0]))
	}
	return r.vendored(ctx, tree)
}

// goMounts are what every program of a Go check sees: the tools, the tree, the
// module store, and the compiled standard library below a layer of its own.
func (r *run) goMounts(cache string) []sandbox.Mount {
	mounts := append(toolMounts(r.tools.closure),
		sandbox.Mount{Kind: sandbox.Layer, Source: r.snap.Dir, Target: gocheck.WorkDir},
		sandbox.Mount{Kind: sandbox.Scratch, Target: gocheck.HomeDir},
		sandbox.Mount{Kind: sandbox.Scratch, Target: gocheck.TempDir},
		sandbox.Mount{Kind: sandbox.Layer, Source: cache, Target: gocheck.CacheDir, Shared: true},
	)
	if r.modules.Dir != "" {
		mounts = append(mounts, sandbox.Mount{Kind: sandbox.ReadOnly, Source: r.modules.Dir, Target: gocheck.ModuleDir})
	}
	return mounts
}

// toolMounts show the toolchain where it is on the host. What lies below /usr
// is there already.
func toolMounts(closure toolchain.Closure) []sandbox.Mount {
	var mounts []sandbox.Mount
	for _, root := range closure.Roots {
		if root != "/usr" && !isBelow(root, "/usr") {
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.ReadOnly, Source: root, Target: root})
		}
	}
	return mounts
}

func isBelow(p, dir string) bool {
	return len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/'
}

func (r *run) program(c gocheck.Command) sandbox.Program {
	p := program(r.tools.chain.Go, c.Args, c.Dir, r.source.env.List())
	p.Files = []sandbox.File{telemetryOff}
	return p
}

// telemetryOff keeps the go command from counting in its home, which GOTELEMETRY
// in the environment does not (seen with Go 1.26).
var telemetryOff = sandbox.File{Path: gocheck.HomeDir + "/.config/go/telemetry/mode", Mode: 0o644, Data: []byte("off 2024-01-01\n")}

// program is a program whose first argument is its own path, as the go command
// and a shell start one.
func program(file string, args []string, dir string, env []string) sandbox.Program {
	return sandbox.Program{Path: file, Args: append([]string{file}, args...), Dir: dir, Env: env}
}
