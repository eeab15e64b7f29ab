package allowlist

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"striatum/workflow"
)

// intentRules collects findings about one intent.
type intentRules struct{ found []Finding }

func (r *intentRules) add(code Code, hint, pointer, format string, args ...any) {
	r.found = append(r.found, Finding{Pointer: pointer, Code: code, What: fmt.Sprintf(format, args...), Hint: hint})
}

func (r *intentRules) apply(in Intent) {
	ids, claims := map[string]int{}, map[string]string{}
	for i, e := range in.Checks {
		at := fmt.Sprintf("/checks/%d", i)
		if workflow.ReservedID(e.ID) {
			r.add(ReservedID, "builtins are named by the workflow and need no entry", at+"/id", "id %q is reserved for builtins", e.ID)
		}
		if first, dup := ids[e.ID]; dup {
			r.add(DuplicateID, "", at+"/id", "id %q is also that of /checks/%d", e.ID, first)
		} else {
			ids[e.ID] = i
		}
		if first, dup := claims[e.BacksClaim]; dup {
			r.add(ClaimTwoChecks, "give each check a claim of its own", at+"/backs_claim", "claim %q is backed by two checks, %q and %q", e.BacksClaim, first, e.ID)
		} else {
			claims[e.BacksClaim] = e.ID
		}
		r.argv(e, at)
		r.definition(e, at)
		r.passWhen(e, at)
		r.control(e.NegativeControl, e.ProtectedInputs, at+"/negative_control")
		r.toolchain(e, at)
		if p := e.ProtectedInputs; p != nil {
			if pointer, what := p.Fault(); what != "" {
				r.add(InvalidPath, "", at+"/protected_inputs"+pointer, "%s", what)
			}
		}
		if e.Limits != nil {
			r.limits(*e.Limits, at+"/limits")
		}
	}
}

func (r *intentRules) argv(e Entry, at string) {
	if e.Argv.Unfilled != "" {
		return
	}
	at += "/argv"
	argv0 := e.Argv.Words[0]
	if argv0 == "" || strings.Contains(argv0, Target) || strings.HasSuffix(argv0, "/") {
		r.add(InvalidArgv, "", at+"/0", "%q is not the name or path of a program", argv0)
		return
	}
	if strings.Contains(argv0, "/") && !path.IsAbs(argv0) && !workflow.CleanPath(argv0) {
		r.add(InvalidArgv, "", at+"/0", "%q is neither a name, nor an absolute path, nor a clean path in the worktree", argv0)
	}
	if cmd := goCommand(e.Argv.Words); cmd != "" && e.ExternalReason == "" {
		r.add(WeakerThanBuiltin, fmt.Sprintf(`let the workflow use "builtin:go-%[1]s" or "builtin+toolchain:go-%[1]s", or give external_reason (the claim then stops at ASSERTED)`, cmd), at,
			"go %s as an external check is weaker than the builtin: its report is the tested code's own word", cmd)
	}
	if driver := Driver(e.Argv.Words); driver != "" && len(e.Definition) == 0 && e.DefinitionReason == "" {
		r.add(DefinitionMissing, "list in definition the scripts, build files and configuration that make up the check, or say in definition_reason why there are none", at[:len(at)-len("/argv")],
			"%q only does what its files say, and no definition names them", driver)
	}
}

func (r *intentRules) definition(e Entry, at string) {
	for i, g := range e.Definition {
		p := fmt.Sprintf("%s/definition/%d", at, i)
		if why := workflow.GlobFault(g); why != "" {
			r.add(InvalidGlob, "", p, "%s", why)
		} else if !workflow.CleanPath(g) || g == "." {
			r.add(InvalidPath, "", p, "%q is not a clean path relative to the top of the worktree", g)
		}
	}
}

func (r *intentRules) passWhen(e Entry, at string) {
	at += "/pass_when"
	switch e.PassWhen.Form {
	case ArtifactPresent:
		r.file(e.PassWhen.Text, at+"/artifact_present")
	case Tests:
		if !e.Agreement.TestFormat() {
			r.add(TestsNeedFormat, `set agreement to "go-test-json", "junit" or "tap"`, at+"/tests",
				"tests are counted in a format of test output, and agreement is %q", e.Agreement)
		}
		if t := e.PassWhen.Tests; t.MustPass == nil && t.MinPassed == 0 {
			r.add(TestsNeedFormat, "give must_pass or min_passed", at+"/tests", "tests asks for no test to pass")
		}
	case ExitZero, StdoutContains, PassUnfilled:
	}
}

func (r *intentRules) file(p, at string) {
	if !workflow.CleanPath(p) || p == "." {
		r.add(InvalidPath, "", at, "%q is not a clean path relative to the top of the worktree", p)
	}
}

func (r *intentRules) control(c NegativeControl, protected *workflow.ProtectedInputs, at string) {
	if c.Unfilled != "" {
		return
	}
	if !workflow.CleanPath(c.MutationOf) {
		r.add(InvalidPath, `"." is the worktree`, at+"/mutation_of", "%q is not a clean path relative to the top of the worktree", c.MutationOf)
	}
	for i, m := range c.Mutations {
		p := at + "/mutation"
		if c.list {
			p = fmt.Sprintf("%s/%d", p, i)
		}
		r.file(m.File, p+"/file")
		if protected != nil && c.OnSubject() && slices.ContainsFunc(protected.Paths, func(g string) bool { return workflow.GlobFault(g) == "" && workflow.MatchGlob(g, m.File) }) {
			r.add(InvalidMutation, "change a file that the check examines", p+"/file", "%q is a protected input, so the control would not be about the tree's own files", m.File)
		}
		for _, x := range [][2]string{{"find", m.Find}, {"replace", m.Replace}} {
			if strings.ContainsAny(x[1], "\n\r") {
				r.add(InvalidMutation, "a mutation changes one line", p+"/"+x[0], "%s has a line break", x[0])
			}
		}
		if m.Find == m.Replace {
			r.add(InvalidMutation, "", p+"/replace", "find and replace are equal, so nothing would change")
		}
	}
	re, err := regexp.Compile(c.FailsWith)
	switch {
	case err != nil:
		r.add(InvalidPattern, "Go's regular expressions: see https://pkg.go.dev/regexp/syntax", at+"/fails_with", "%v", err)
	case re.MatchString(""):
		r.add(FailsWithUnspecific, "match words that only this failure prints", at+"/fails_with", "%q matches empty output, so it says nothing about why the control failed", c.FailsWith)
	}
}

func (r *intentRules) toolchain(e Entry, at string) {
	if e.Toolchain == nil {
		return
	}
	for i, root := range e.Toolchain.Roots {
		if !path.IsAbs(root) || path.Clean(root) != root || root == "/" || !workflow.CleanPath(root[1:]) {
			r.add(InvalidPath, "", fmt.Sprintf("%s/toolchain/roots/%d", at, i), "%q is not a clean absolute path below /", root)
		} else if !ToolRoot(root) {
			r.add(InvalidPath, "install the tool there, as root", fmt.Sprintf("%s/toolchain/roots/%d", at, i),
				"%q is shown to whoever is checked, so it must lie below %s", root, strings.Join(toolRoots, " or "))
		}
	}
}

// toolRoots are where tools are installed: a root below them is shown to checks,
// and nothing else of the host is.
var toolRoots = []string{"/usr", "/opt"}

// ToolRoot reports whether a clean path may be a root of a toolchain.
func ToolRoot(path string) bool {
	return slices.ContainsFunc(toolRoots, func(root string) bool { return strings.HasPrefix(path, root+"/") })
}

func (r *intentRules) limits(l workflow.Limits, at string) {
	if _, err := l.Parse(); err != nil {
		if le, ok := errors.AsType[*workflow.LimitError](err); ok {
			at += "/" + le.Key
		}
		r.add(InvalidLimit, "", at, "%v", err)
	}
}

// drivers are programs that do what their files say: interpreters, shells,
// build drivers, package runners, and wrappers that start another program.
// Version suffixes are cut before the look-up.
const drivers = " sh bash dash zsh ksh fish ash csh tcsh busybox" +
	" python pypy perl ruby node nodejs deno bun php lua luajit tclsh wish rscript r julia java groovy scala kotlin guile racket sbcl clojure elixir escript erl ocaml runghc awk gawk mawk nawk sed expect pwsh" +
	" make gmake ninja cmake ctest bazel bazelisk buck gradle gradlew mvn mvnw ant sbt just task mage rake meson scons waf tup nix nix-shell nix-build earthly dagger docker podman" +
	" npm npx yarn pnpm pnpx bunx corepack pip pipx uv uvx poetry pdm hatch tox nox pytest jest vitest mocha karma bundle bundler gem composer cargo go dotnet swift zig dub lein stack cabal mix rebar" +
	" pre-commit lefthook tsx ts-node "

// wrappers start the program that follows their own arguments.
const wrappers = " env nice timeout time nohup setsid stdbuf xargs sudo doas chrt ionice taskset unshare chroot strace ltrace watch script flock "

// base returns the lower-case name of a program without folder, extension and
// version: "/usr/bin/python3.11" is "python".
func base(argv0 string) string {
	b := strings.ToLower(path.Base(argv0))
	b = strings.TrimSuffix(b, ".exe")
	if cut := strings.TrimRight(b, "0123456789.-"); cut != "" {
		b = cut
	}
	return b
}

func listed(list, name string) bool { return strings.Contains(list, " "+name+" ") }

// Driver returns argv[0] when it is an interpreter, shell, build driver,
// package runner or wrapper, else "".
func Driver(argv []string) string {
	if b := base(argv[0]); listed(drivers, b) || listed(wrappers, b) {
		return argv[0]
	}
	return ""
}

// goCommand returns "test", "vet" or "build" when argv runs that command of
// go, also behind wrappers and in a shell's command line; else "".
func goCommand(argv []string) string {
	b := base(argv[0])
	switch {
	case b == "go":
		return goVerb(argv[1:])
	case listed(wrappers, b):
		for i, w := range argv[1:] {
			if base(w) == "go" {
				return goVerb(argv[i+2:])
			}
			if listed(drivers, base(w)) {
				return goCommand(argv[i+1:])
			}
		}
	case listed(drivers, b):
		for _, w := range argv[1:] {
			if m := regexp.MustCompile(`(?:^|[\s;&|(/])go\s+(?:-C[\s=]*\S+\s+)?(test|vet|build)(?:\s|;|$)`).FindStringSubmatch(w); m != nil {
				return m[1]
			}
		}
	}
	return ""
}

// goVerb returns the command of go among its arguments, past "-C dir".
func goVerb(args []string) string {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] == "-C" || args[0] == "--C" {
			args = args[min(2, len(args)):]
			continue
		}
		args = args[1:]
	}
	if len(args) > 0 && slices.Contains([]string{"test", "vet", "build"}, args[0]) {
		return args[0]
	}
	return ""
}

// UnfilledAt returns the JSON pointers, below the entry's own, of what nobody
// filled.
func (e Entry) UnfilledAt(pointer string) []string {
	var out []string
	if e.Argv.Unfilled != "" {
		out = append(out, pointer+"/argv")
	}
	if e.PassWhen.Form == PassUnfilled {
		out = append(out, pointer+"/pass_when")
	}
	if e.NegativeControl.Unfilled != "" {
		out = append(out, pointer+"/negative_control")
	}
	return out
}

// Stops says, in one sentence each, why the entry's claim stops at ASSERTED
// whatever is pinned and attested. None: it may rise.
func (e Entry) Stops() []Stop {
	var out []Stop
	if e.Argv.Unfilled == "" && goCommand(e.Argv.Words) != "" {
		out = append(out, Stop{WeakerThanBuiltin, "a builtin+toolchain covers this check, and external_reason keeps it external"})
	}
	if c := e.NegativeControl; c.Unfilled == "" && !c.OnSubject() {
		out = append(out, Stop{ControlNotOnSubject, "its negative control mutates a fixture, not the worktree"})
	}
	return out
}

// ControlNotOnSubject is the reason of a check with fixture controls only.
const ControlNotOnSubject Code = "control_not_on_subject"

// Stop is a reason for a claim to stop at ASSERTED.
type Stop struct {
	Code     Code
	Sentence string
}
