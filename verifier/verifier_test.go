package verifier_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/sandbox"
	"striatum/sandbox/containerdengine"
	"striatum/seal"
	"striatum/snapshot"
	"striatum/verifier"
	"striatum/verifier/gocheck"
	"striatum/verifier/images"
	"striatum/verifier/journal"
	"striatum/verifier/modules"
	"striatum/verifier/toolchain"
	"striatum/workflow"
)

// lab is one lane for all tests of this package, so that the standard library is
// compiled once.
type lab struct {
	dir    string
	key    *seal.PrivateKey
	engine *containerdengine.Engine
	mu     sync.Mutex // one check at a time, as the lane's lock has it
	stored [][]byte
	stuck  bool // no receipt is ever taken
	// downloads is the download cache that the lane may take modules from.
	downloads string
	// wrap, if set, stands before the engine.
	wrap func(sandbox.Engine) sandbox.Engine
	// images are where the lane takes toolchain images from.
	images []string
}

var shared struct {
	sync.Once
	lab *lab
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if l := shared.lab; l != nil {
		if err := l.engine.Close(); err != nil {
			slog.Error("close the engine", slog.String("error", err.Error()))
			code = 1
		}
		if left := leftovers(l.dir); len(left) != 0 {
			slog.Error("the lab left something on the machine", slog.Any("left", left))
			code = 1
		}
		if err := os.RemoveAll(l.dir); err != nil {
			slog.Error("remove the lab", slog.String("error", err.Error()))
			code = 1
		}
	}
	os.Exit(code)
}

func open(t *testing.T) *lab {
	t.Helper()
	cfg := testenv.Containerd(t)
	shared.Do(func() {
		dir, err := os.MkdirTemp("", "striatum-lab-") //nolint:usetesting // it outlives the test that makes it
		if err != nil {
			shared.err = err
			return
		}
		shared.lab, shared.err = newLab(dir, cfg)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.lab
}

// newLab opens a lane in dir, which has its key unless it is new.
func newLab(dir string, cfg containerdengine.Config) (*lab, error) {
	l := &lab{dir: dir}
	keyFile := filepath.Join(dir, "key.pem")
	data, err := os.ReadFile(keyFile)
	if err == nil {
		l.key, err = seal.ParsePrivateKey(data)
	} else if l.key, err = seal.GenerateKey(rand.Reader); err == nil {
		if data, err = l.key.PEM(); err == nil {
			err = os.WriteFile(keyFile, data, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	cfg.Home = dir
	if l.engine, err = containerdengine.Open(context.Background(), cfg); err != nil {
		return nil, err
	}
	return l, nil
}

// kept is the lab's engine, which outlives a lane.
type kept struct{ *containerdengine.Engine }

func (kept) Close() error { return nil }

func (l *lab) RecordOpened(context.Context, []byte) error { return nil }

func (l *lab) RecordReceipt(_ context.Context, envelope []byte) error {
	if l.stuck {
		select {}
	}
	l.stored = append(l.stored, envelope)
	return nil
}

func (l *lab) lane(t *testing.T, progress func(check, step string)) *verifier.Lane {
	t.Helper()
	j, err := journal.Open(filepath.Join(l.dir, "journal"), journal.Config{Now: time.Now, Rand: rand.Reader, Key: l.key, LaneID: "lane-test"})
	if err != nil {
		t.Fatal(err)
	}
	ring := seal.NewKeyring(seal.Key{Public: l.key.Public(), Role: seal.RoleLane, Class: seal.ClassShared, LaneID: "lane-test"})
	return verifier.New(verifier.Config{
		Dir: l.dir, Journal: j,
		OpenOutputs: func() (*journal.Outputs, error) {
			return journal.OpenOutputs(filepath.Join(l.dir, "outputs"), 1<<30, time.Now)
		},
		Snapshots: snapshot.Store{Dir: filepath.Join(l.dir, "snapshots")}, Snapshot: snapshot.Options{Now: time.Now},
		Toolchain: toolchain.Config{Path: os.Getenv("PATH"), TempDir: l.dir},
		OpenModules: func(toolchain.Toolchain) (*modules.Store, error) {
			return modules.Open(modules.Config{Dir: filepath.Join(l.dir, "modules"), DownloadCache: l.downloads, Now: time.Now})
		},
		OpenImages: func() (*images.Store, error) {
			return images.Open(images.Config{Dir: filepath.Join(l.dir, "images"), Sources: l.images, OS: "linux", Arch: runtime.GOARCH, Now: time.Now})
		},
		OpenEngine: func(context.Context) (sandbox.Engine, error) {
			if l.wrap != nil {
				return l.wrap(kept{l.engine}), nil
			}
			return kept{l.engine}, nil
		},
		Key:     l.key,
		Lane:    receipt.Lane{LaneID: "lane-test", HostFingerprint: "00000000-linux-" + runtime.GOARCH, OS: "linux", Arch: runtime.GOARCH},
		Version: "test", SelfSHA256: seal.SHA256Hex(nil), Recorder: l,
		Keyring: func(context.Context) (seal.Keyring, error) { return ring, nil },
		Now:     time.Now, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler), Progress: progress,
	})
}

// verify runs one check on the tree at root.
func (l *lab) verify(ctx context.Context, t *testing.T, root string, check workflow.CheckRef, progress func(check, step string)) ([]verifier.Outcome, error) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lane(t, progress).Run(ctx, verifier.Request{
		RepositoryID: "repo-test", Requester: "local", Root: root, Wait: time.Minute,
		Select: func(string) (verifier.Selection, error) {
			return verifier.Selection{Checks: []workflow.CheckRef{check}}, nil
		},
	})
}

// receiptOf is the receipt of a check that must end in one.
func (l *lab) receiptOf(t *testing.T, root string, check workflow.CheckRef) receipt.Receipt {
	t.Helper()
	outcomes, err := l.verify(t.Context(), t, root, check, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := outcomes[0].Receipt.Receipt()
	if !r.Posture.Strict {
		t.Errorf("the posture is not strict: %+v", r.Posture.Facets)
	}
	return r
}

// codes are the codes that a receipt gives for what it is.
func codes(r receipt.Receipt) string {
	var all []string
	for _, x := range r.Reasons {
		all = append(all, x.Code)
	}
	for _, x := range r.Executions {
		for _, y := range x.Reasons {
			all = append(all, y.Code)
		}
	}
	if r.Compile != nil && r.Compile.Execution != nil {
		for _, y := range r.Compile.Execution.Reasons {
			all = append(all, y.Code)
		}
	}
	for _, x := range r.Findings {
		all = append(all, x.Code)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

var goTest = workflow.CheckRef{Uses: "builtin:go-test", BacksClaim: "tests-pass"}

// TestHonestModulesRead runs the honest modules that ask most of a sandbox, or of how
// the tree is read, through the whole lane: none is wrongly red. Package gocheck
// judges all of them, on the host.
func TestHonestModulesRead(t *testing.T) {
	l := open(t)
	want := map[string]string{
		"replaced-by-folder": "module_not_checked replace_in_tree", "vendored": "module_not_checked replace_in_tree vendor_directory vendor_not_compared",
	}
	for _, name := range []string{
		"assembly", "finds-its-source", "home-and-user", "many-subtests", "noise", "permissions", "replaced-by-folder", "signals",
		"sockets", "subprocesses", "time-zones", "vendored", "waiting", "web-server", "working-folder", "writes-beside-itself",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("gocheck/testdata/honest/" + name + ".txtar")
			if err != nil {
				t.Fatal(err)
			}
			r := l.receiptOf(t, testenv.Tree(t, string(text)), goTest)
			if got := codes(r); r.Classification != receipt.Asserted || got != want[name] {
				t.Errorf("%s, %s; want asserted and %q: %+v", r.Classification, got, want[name], r.Reasons)
			}
		})
	}
}

// tell gives scripts/attack what came of an attempt of some kind: that it was
// made, and that it was stopped, or what went wrong.
func tell(t *testing.T, kind, outcome string) {
	t.Helper()
	t.Attr("attack", kind+" "+outcome)
}

// TestCheatsNeverRead holds every cheat against the whole lane: what must come
// of it, and the code that names the trick. "asserted" stands where the cheat is
// a stated limit of this version: a baseline (09) will tell. In 06, 12-skip-one and
// 14 what is left of the tests notices no mutant.
func TestCheatsNeverRead(t *testing.T) {
	l := open(t)
	want := map[string]struct {
		classification receipt.Classification
		code           string
	}{
		"00-honest":          {receipt.Asserted, ""},
		"00-namesakes":       {receipt.Asserted, ""},
		"00-run-twice":       {receipt.Asserted, ""},
		"00-counts-itself":   {receipt.Asserted, ""},
		"00-constants":       {receipt.Asserted, "nothing_to_mutate"},
		"00-examples":        {receipt.Asserted, ""},
		"00-helpers-of-main": {receipt.Asserted, ""},
		"00-builds-itself":   {receipt.Asserted, ""},
		"17-compares-source": {receipt.Void, "kill_fell no_mutant_killed"},
		"17-compares-code":   {receipt.Void, "kill_fell no_mutant_killed"},
		"17-counts-binaries": {receipt.Void, "kill_fell no_mutant_killed"},
		"17-embeds-source":   {receipt.Void, "kill_fell no_mutant_killed"},
		"17-tautology":       {receipt.Void, "no_mutant_killed"},
		"36-rewrites-output": {receipt.Void, "no_mutant_killed"},
		"00-wrong":           {receipt.Failed, "tests_failed"},
		"01-testmain-exits":  {receipt.Failed, "tests_not_run"},
		"03-init-exits":      {receipt.Failed, "output_without_end"},
		"04-filter":          {receipt.Failed, "tests_not_run"},
		"04-list":            {receipt.Failed, "tests_not_run"},
		"06-constraint":      {receipt.Void, "no_mutant_killed"},
		"06-name":            {receipt.Failed, "test_file_excluded"},
		"06-underscore":      {receipt.Void, "no_mutant_killed"},
		"12-skip-all":        {receipt.Failed, "nothing_to_check"},
		"15-lower-case":      {receipt.Failed, "compile_failed"},
		"20-benchmark":       {receipt.Failed, "nothing_to_check"},
		"36-forged-census":   {receipt.Void, "negative_control_did_not_fail"},
		"36-sees-control":    {receipt.Void, "control_detected"},
		"36-prints":          {receipt.Failed, ""},
		"09-ignore":          {receipt.Asserted, "nothing_to_mutate package_ignored"},
		"09-nested-module":   {receipt.Asserted, "module_not_checked"},
		"11-example":         {receipt.Failed, "example_not_run"},
		"12-skip-one":        {receipt.Void, "no_mutant_killed"},
		"14-renamed":         {receipt.Void, "no_mutant_killed"},
		"18-swallowed":       {receipt.Void, "no_mutant_killed"},
		"20-fuzz":            {receipt.Void, "no_mutant_killed"},
		"36-forged-end":      {receipt.Failed, ""},
	}
	files, err := filepath.Glob("gocheck/testdata/cheats/*.txtar")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d fixtures, %d expectations, %v", len(files), len(want), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w, ok := want[name]
			if !ok {
				t.Fatal("no expectation")
			}
			r := l.receiptOf(t, testenv.Tree(t, string(text)), goTest)
			got := codes(r)
			tell(t, "cheats, and honest suites", "attempt")
			switch {
			case r.Classification == w.classification && strings.Contains(got, w.code):
				tell(t, "cheats, and honest suites", "stopped")
				return
			case w.classification == receipt.Asserted:
				tell(t, "cheats, and honest suites", "wrong-red")
			case r.Classification == receipt.Asserted:
				tell(t, "cheats, and honest suites", "wrong-green")
			}
			t.Errorf("%s, want %s with %q; codes: %s; control %s %s", r.Classification, w.classification, w.code, got, r.Control.Outcome, r.Control.Why)
		})
	}
}

// TestRegistryIsWhatWorkflowsMayName: what cannot be run yet is the opt-in alone.
func TestRegistryIsWhatWorkflowsMayName(t *testing.T) {
	var missing []string
	for _, id := range workflow.Builtins() {
		if !slices.Contains(verifier.Builtins(), id) {
			missing = append(missing, id)
		}
	}
	want := []string{"builtin+toolchain:go-build", "builtin+toolchain:go-test", "builtin+toolchain:go-vet"}
	if !slices.Equal(missing, want) {
		t.Errorf("builtins that cannot be run: %v, want %v", missing, want)
	}
}

const good = "-- go.mod --\nmodule example.test/m\n\ngo 1.24\n-- m.go --\npackage m\n\nfunc Add(a, b int) int { return a + b }\n-- m_test.go --\npackage m\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n"

func TestChecksJudgeWhatTheyAreAbout(t *testing.T) {
	l := open(t)
	anchor := seal.SHA256Hex([]byte("bytes\n"))
	for name, c := range map[string]struct {
		uses, text string
		want       receipt.Classification
		code       string
	}{
		"build passes":       {"builtin:go-build", good, receipt.Asserted, ""},
		"build fails":        {"builtin:go-build", good + "-- bad.go --\npackage m\n\nvar _ int = \"x\"\n", receipt.Failed, "build_failed"},
		"vet passes":         {"builtin:go-vet", good, receipt.Asserted, ""},
		"vet fails":          {"builtin:go-vet", good + "-- bad.go --\npackage m\n\nimport \"fmt\"\n\nfunc bad() { fmt.Printf(\"%d\", \"x\") }\n", receipt.Failed, "vet_reported"},
		"does not compile":   {"builtin:go-test", good + "-- bad.go --\npackage m\n\nvar _ int = \"x\"\n", receipt.Failed, "compile_failed"},
		"no module":          {"builtin:go-test", "-- a.txt --\nx\n", receipt.Failed, "nothing_to_check"},
		"several modules":    {"builtin:go-test", "-- a/go.mod --\nmodule a.test\n-- b/go.mod --\nmodule b.test\n", receipt.Failed, "nothing_to_check"},
		"no tests":           {"builtin:go-test", "-- go.mod --\nmodule a.test\n\ngo 1.24\n-- a.go --\npackage a\n", receipt.Failed, "nothing_to_check"},
		"newer go":           {"builtin:go-test", "-- go.mod --\nmodule a.test\n\ngo 1.99\n-- a.go --\npackage a\n", receipt.Indeterminate, "toolchain_too_old"},
		"go.mod over 1 MiB":  {"builtin:go-build", "-- go.mod --\nmodule a.test\n\ngo 1.24\n//" + strings.Repeat("x", gocheck.MaxModFileBytes) + "\n-- a.go --\npackage a\n", receipt.Indeterminate, "file_over_bound"},
		"go.sum over 16 MiB": {"builtin:go-build", good + "-- go.sum --\n" + strings.Repeat("x", 16<<20) + "\n", receipt.Indeterminate, "file_over_bound"},
		"a long comment":     {"builtin:go-vet", "-- go.mod --\nmodule a.test\n\ngo 1.24\n-- a.go --\n//" + strings.Repeat("x", gocheck.MaxSourceBytes) + "\npackage a\n", receipt.Indeterminate, "file_over_bound"},
		"a long test file":   {"builtin:go-test", "-- go.mod --\nmodule a.test\n\ngo 1.24\n-- a_test.go --\npackage a\n\nimport \"testing\"\n\nfunc Test(*testing.T) {}\n//" + strings.Repeat("x", gocheck.MaxSourceBytes) + "\n", receipt.Indeterminate, "census_incomplete"},
		"replace outside":    {"builtin:go-test", "-- go.mod --\nmodule a.test\n\ngo 1.24\n\nreplace b.test => ../b\n-- a.go --\npackage a\n", receipt.Failed, ""},
		"anchors hold":       {"builtin:artifact-anchor-integrity", "-- f --\nbytes\n-- verification/anchors.json --\n{\"schema_version\":\"striatum.anchors.v1\",\"anchors\":[{\"path\":\"f\",\"sha256\":\"" + anchor + "\"}]}\n", receipt.Asserted, ""},
		"anchor differs":     {"builtin:artifact-anchor-integrity", "-- f --\nother\n-- verification/anchors.json --\n{\"schema_version\":\"striatum.anchors.v1\",\"anchors\":[{\"path\":\"f\",\"sha256\":\"" + anchor + "\"}]}\n", receipt.Failed, ""},
		"anchor is missing":  {"builtin:artifact-anchor-integrity", "-- verification/anchors.json --\n{\"schema_version\":\"striatum.anchors.v1\",\"anchors\":[{\"path\":\"f\",\"sha256\":\"" + anchor + "\"}]}\n", receipt.Failed, ""},
		"no anchors":         {"builtin:artifact-anchor-integrity", "-- f --\nbytes\n", receipt.Failed, "nothing_to_check"},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.receiptOf(t, testenv.Tree(t, c.text), workflow.CheckRef{Uses: c.uses})
			if r.Classification != c.want || !strings.Contains(codes(r), c.code) {
				t.Errorf("%s, want %s with %q; codes: %s; control %s %s", r.Classification, c.want, c.code, codes(r), r.Control.Outcome, r.Control.Why)
			}
		})
	}
}

// TestHostileTestsAreJudgedWithinTheirLimits: a limit that ends the control makes
// the control invalid, so that the receipt is void, with the limit named.
func TestHostileTestsAreJudgedWithinTheirLimits(t *testing.T) {
	l := open(t)
	test := func(body string) string {
		return good + "-- h_test.go --\npackage m\n\nimport (\n\t\"os\"\n\t\"os/exec\"\n\t\"strings\"\n\t\"testing\"\n\t\"time\"\n)\n\nvar _ = []any{os.Args, exec.Command, strings.Repeat, time.Now}\n\nfunc TestHostile(t *testing.T) {\n" + body + "\n}\n"
	}
	for name, c := range map[string]struct {
		text   string
		limits workflow.Limits
		want   receipt.Classification
		hit    string
	}{
		"endless":            {test("\tfor {\n\t\ttime.Sleep(time.Second)\n\t}"), workflow.Limits{WallClock: "8s"}, receipt.Void, "wall_clock"},
		"flood":              {test("\tfor {\n\t\t_, _ = os.Stdout.WriteString(strings.Repeat(\"x\", 1<<16) + \"\\n\")\n\t}"), workflow.Limits{Output: "8MiB"}, receipt.Void, "output"},
		"daemon":             {test("\tif err := exec.Command(\"sh\", \"-c\", \"sleep 1000 &\").Start(); err != nil {\n\t\tt.Fatal(err)\n\t}"), workflow.Limits{}, receipt.Asserted, ""},
		"writes outside":     {test("\tfor _, dir := range []string{\"/usr\", \"/check\", \"/etc\", \"/cache/go-mod\", \"/\"} {\n\t\tif err := os.WriteFile(dir+\"/x\", nil, 0o600); err == nil {\n\t\t\treturn\n\t\t}\n\t}\n\tt.Error(\"nothing could be written, as it should be\")"), workflow.Limits{}, receipt.Failed, ""},
		"subtest names vary": {test("\tb, _ := os.ReadFile(\"/proc/sys/kernel/random/uuid\")\n\tt.Run(string(b), func(*testing.T) {})\n\tt.Run(\"x\", func(t *testing.T) { t.Skip() })"), workflow.Limits{}, receipt.Asserted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			check := goTest
			check.Limits = &c.limits
			restPeak(t)
			r := l.receiptOf(t, testenv.Tree(t, c.text), check)
			if r.Classification != c.want || r.Limits.Hit != c.hit {
				t.Errorf("%s, hit %q; want %s, %q; codes: %s; control %s %s", r.Classification, r.Limits.Hit, c.want, c.hit, codes(r), r.Control.Outcome, r.Control.Why)
			}
			if most := peak(t); most > laneBytes {
				t.Errorf("the lane's process came to %d MiB", most>>20)
			}
		})
	}
}
