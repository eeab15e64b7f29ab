package gocheck

import (
	"errors"
	"fmt"
	"go/version"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"

	"striatum/receipt"
)

// Selection says which module of a tree a check is about.
type Selection struct {
	// Dir is the module's folder, slash-separated and relative to the tree.
	// Empty: the tree's own folder if it has a go.mod, else that of the only
	// module below it.
	Dir string
	// Declared names the module folders that other checks are about.
	Declared []string
	// GoWork says that the check declares go.work, so that it is in force.
	GoWork bool
}

// Module is one Go module of a tree, as its go.mod describes it.
type Module struct {
	Dir       string // slash-separated, relative to the tree; "." for the tree itself
	Path      string // module path
	GoVersion string // "1.24"; empty when go.mod has no go line
	Toolchain string // "go1.24.3"; empty when go.mod has no toolchain line
	Requires  []module.Version
	Replaces  []Replace
	Vendored  bool     // has a vendor folder, so that go reads dependencies from it
	Work      string   // path of the go.work above or beside it in the tree; empty: none
	Uses      []string // folders of the modules that a declared go.work uses, relative to the tree

	ignored []string // the paths of its ignore lines
}

// requires reports whether a module that m requires may have the package.
func (m Module) requires(importPath string) bool {
	return slices.ContainsFunc(m.Requires, func(v module.Version) bool {
		rest, ok := strings.CutPrefix(importPath, v.Path)
		return ok && (rest == "" || rest[0] == '/')
	})
}

// Replace is one replace line of go.mod or go.work. A replacement by a folder
// has an empty New.Version.
type Replace struct {
	Old, New module.Version
}

// Notes are what the intake scan saw: findings for the reader, and incidents,
// which decide.
type Notes struct {
	Findings  []receipt.Finding
	Incidents []receipt.Incident
}

func (n *Notes) find(code, path, detail string) {
	n.Findings = append(n.Findings, receipt.Finding{Code: code, Path: path, Detail: detail})
}

// ModuleProblem says why no module was chosen.
type ModuleProblem uint8

// The problems of choosing a module.
const (
	_ ModuleProblem = iota
	NoModule
	SeveralModules
	NotAModule // the named folder has no go.mod
	BadModFile // go.mod or go.work does not parse; plain go fails on it too
	OverBound  // go.mod or go.work is larger than what is read; plain go may take it
)

// ModuleError is the error of FindModule. Modules lists the folders of the
// modules that are there.
type ModuleError struct {
	Problem ModuleProblem
	Dir     string
	Modules []string
	Err     error
}

func (e *ModuleError) Error() string {
	switch e.Problem {
	case NoModule:
		return "find a Go module: there is no go.mod in the tree"
	case SeveralModules:
		return fmt.Sprintf("find a Go module: there are several, and none in the tree's own folder: %s", strings.Join(e.Modules, ", "))
	case NotAModule:
		return fmt.Sprintf("find a Go module in %q: there is no go.mod", e.Dir)
	case BadModFile, OverBound:
		return fmt.Sprintf("read module in %q: %v", e.Dir, e.Err)
	}
	return "find a Go module"
}

func (e *ModuleError) Unwrap() error { return e.Err }

// TooNew reports whether the module asks for a newer Go than laneVersion
// ("go1.26.1"), so that its checks are indeterminate (toolchain_too_old).
func (m Module) TooNew(laneVersion string) bool {
	return m.GoVersion != "" && version.Compare("go"+m.GoVersion, laneVersion) > 0
}

// TooOldIncident is the incident of a module for which TooNew is true.
func (m Module) TooOldIncident(laneVersion string) receipt.Incident {
	return receipt.Incident{
		Code: "toolchain_too_old", Effect: receipt.MakesIndeterminate,
		Detail: fmt.Sprintf("%s asks for go %s and the lane has %s", path.Join(m.Dir, "go.mod"), m.GoVersion, laneVersion),
	}
}

// FindModule chooses and reads the module that sel names. A replacement that
// leaves the tree is an incident with effect failed; nested modules that no
// check names, go.work, vendor, replacements, toolchain, godebug and ignore
// lines are findings. The error is a *ModuleError or one of reading the tree;
// with BadModFile the Module has the Dir and, if they could be read, the go and
// toolchain lines.
func FindModule(tree fs.FS, sel Selection) (Module, Notes, error) {
	var notes Notes
	all, works, err := moduleFiles(tree)
	if err != nil {
		return Module{}, notes, err
	}
	dir, err := chooseModule(tree, all, sel.Dir)
	if err != nil {
		return Module{}, notes, err
	}
	for _, d := range all {
		if d != dir && !slices.Contains(sel.Declared, d) {
			notes.find("module_not_checked", path.Join(d, "go.mod"), "no check names this module, and ./... of another stops at it")
		}
	}
	m, err := readModule(tree, dir, &notes)
	if err != nil {
		return m, notes, err
	}
	for _, w := range works {
		above := path.Dir(w) == "." || path.Dir(w) == dir || strings.HasPrefix(dir, path.Dir(w)+"/")
		if above && (m.Work == "" || len(w) > len(m.Work)) {
			m.Work = w
		}
		if !sel.GoWork {
			notes.find("go_work_ignored", w, "the check does not declare go_work, so this file is not in force")
		}
	}
	if sel.GoWork && m.Work != "" {
		if err := readWork(tree, &m, &notes); err != nil {
			return m, notes, err
		}
	}
	return m, notes, nil
}

// moduleFiles lists the folders with a go.mod, and the go.work files, in those
// parts of the tree that the go command looks at.
func moduleFiles(tree fs.FS) (modules, works []string, err error) {
	err = fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != "." && (hiddenDir(d.Name()) || d.Name() == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		switch d.Name() {
		case "go.mod":
			if info, err := fs.Stat(tree, p); err == nil && !info.IsDir() {
				modules = append(modules, path.Dir(p))
			}
		case "go.work":
			works = append(works, p)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look for go.mod files: %w", err)
	}
	return modules, works, nil
}

// hiddenDir reports whether ./... skips folders of this name.
func hiddenDir(name string) bool {
	return strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".") || name == "testdata"
}

func chooseModule(tree fs.FS, all []string, dir string) (string, error) {
	if dir != "" {
		dir = path.Clean(dir)
		if !fs.ValidPath(dir) {
			return "", &ModuleError{Problem: NotAModule, Dir: dir, Modules: all}
		}
		if info, err := fs.Stat(tree, path.Join(dir, "go.mod")); err != nil || info.IsDir() {
			return "", &ModuleError{Problem: NotAModule, Dir: dir, Modules: all}
		}
		return dir, nil
	}
	switch {
	case slices.Contains(all, "."):
		return ".", nil
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return "", &ModuleError{Problem: NoModule}
	}
	return "", &ModuleError{Problem: SeveralModules, Modules: all}
}

func readModule(tree fs.FS, dir string, notes *Notes) (Module, error) {
	m := Module{Dir: dir}
	file := path.Join(dir, "go.mod")
	bad := func(err error) (Module, error) { return m, badModFile(dir, err) }
	data, err := ReadFile(tree, file, MaxModFileBytes)
	if err != nil {
		return bad(err)
	}
	f, err := modfile.Parse(file, data, nil)
	if err != nil {
		if lax, laxErr := modfile.ParseLax(file, data, nil); laxErr == nil {
			m.fillVersions(lax)
		}
		return bad(err)
	}
	m.fillVersions(f)
	if f.Module == nil || f.Module.Mod.Path == "" {
		return bad(errors.New("there is no module line"))
	}
	m.Path = f.Module.Mod.Path
	for _, r := range f.Require {
		m.Requires = append(m.Requires, r.Mod)
	}
	for _, r := range f.Replace {
		m.replace(tree, file, dir, r, notes)
	}
	settings(file, f.Toolchain, f.Godebug, notes)
	for _, g := range f.Ignore {
		m.ignored = append(m.ignored, g.Path)
		notes.find("ignore_line", file, fmt.Sprintf("./... leaves out %s", g.Path))
	}
	m.vendor(tree, dir, notes)
	return m, nil
}

// badModFile is the error of a go.mod or go.work in dir. A file over our own
// bound is not the module's fault.
func badModFile(dir string, err error) *ModuleError {
	if TooLarge(err) {
		return &ModuleError{Problem: OverBound, Dir: dir, Err: err}
	}
	return &ModuleError{Problem: BadModFile, Dir: dir, Err: err}
}

func (m *Module) vendor(tree fs.FS, dir string, notes *Notes) {
	dir = path.Join(dir, "vendor")
	if info, err := fs.Stat(tree, dir); err == nil && info.IsDir() {
		m.Vendored = true
		notes.find("vendor_directory", dir, "dependencies are read from the tree itself")
	}
}

func (m *Module) fillVersions(f *modfile.File) {
	if f.Go != nil {
		m.GoVersion = f.Go.Version
	}
	if f.Toolchain != nil && f.Toolchain.Name != "default" {
		m.Toolchain = f.Toolchain.Name
	}
}

// settings notes the toolchain and godebug lines of a go.mod or go.work.
func settings(file string, toolchain *modfile.Toolchain, godebug []*modfile.Godebug, notes *Notes) {
	if toolchain != nil && toolchain.Name != "default" {
		notes.find("toolchain_line", file, fmt.Sprintf("toolchain %s is ignored: the lane's Go is used", toolchain.Name))
	}
	for _, g := range godebug {
		notes.find("godebug_line", file, fmt.Sprintf("godebug %s=%s", g.Key, g.Value))
	}
}

// replace records a replacement found in file, whose relative paths are
// relative to dir.
func (m *Module) replace(tree fs.FS, file, dir string, r *modfile.Replace, notes *Notes) {
	m.Replaces = append(m.Replaces, Replace{Old: r.Old, New: r.New})
	if r.New.Version != "" {
		notes.find("replace_module", file, fmt.Sprintf("%s is replaced by %s", r.Old, r.New))
		return
	}
	if !inTree(tree, dir, r.New.Path) {
		m.outside(file, "replace_outside_tree", fmt.Sprintf("%s is replaced by %s, which is not in the tree", r.Old, r.New.Path), notes)
		return
	}
	notes.find("replace_in_tree", file, fmt.Sprintf("%s is replaced by %s", r.Old, r.New.Path))
}

func (m *Module) outside(file, code, detail string, notes *Notes) {
	notes.find(code, file, detail)
	notes.Incidents = append(notes.Incidents, receipt.Incident{Code: code, Effect: receipt.MakesFailed, Detail: file + ": " + detail})
}

// inTree reports whether target, as written in a file of dir, is a path of the
// tree. A link on the way that leaves the tree makes it not one; what is not
// there at all is left to the go command's own error.
func inTree(tree fs.FS, dir, target string) bool {
	if path.IsAbs(target) || strings.ContainsAny(target, "\\\x00") {
		return false
	}
	p := path.Join(dir, target)
	if !fs.ValidPath(p) {
		return false
	}
	if _, err := fs.Stat(tree, p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return true
}

func readWork(tree fs.FS, m *Module, notes *Notes) error {
	data, err := ReadFile(tree, m.Work, MaxModFileBytes)
	if err != nil {
		return badModFile(path.Dir(m.Work), err)
	}
	f, err := modfile.ParseWork(m.Work, data, nil)
	if err != nil {
		return badModFile(path.Dir(m.Work), err)
	}
	dir := path.Dir(m.Work)
	notes.find("go_work_used", m.Work, "the check declares go_work")
	if dir != m.Dir {
		m.vendor(tree, dir, notes)
	}
	for _, u := range f.Use {
		if !inTree(tree, dir, u.Path) {
			m.outside(m.Work, "use_outside_tree", fmt.Sprintf("use %s is not in the tree", u.Path), notes)
			continue
		}
		m.Uses = append(m.Uses, path.Join(dir, u.Path))
	}
	for _, r := range f.Replace {
		m.replace(tree, m.Work, dir, r, notes)
	}
	if f.Go != nil && version.Compare("go"+f.Go.Version, "go"+m.GoVersion) > 0 {
		m.GoVersion = f.Go.Version
	}
	settings(m.Work, f.Toolchain, f.Godebug, notes)
	return nil
}

// ReadFile reads a regular file of at most limit bytes; see TooLarge.
func ReadFile(tree fs.FS, name string, limit int64) (data []byte, err error) {
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %q: it is not a regular file", name)
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %q: %w of %d bytes", name, errTooLarge, limit)
	}
	return data, nil
}

// TooLarge reports whether ReadFile gave err because a file is over its bound,
// which is our own: nothing follows from it but that the check cannot be judged.
func TooLarge(err error) bool { return errors.Is(err, errTooLarge) }

var errTooLarge = errors.New("it is over the bound")
