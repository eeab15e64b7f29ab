package verifier_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"striatum/allowlist"
	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/verifier"
)

// toolImage is an image with a shell and a check that no host has.
func toolImage(t *testing.T, l testenv.Layout, more ...testenv.Entry) (name string) {
	t.Helper()
	tool := testenv.File("usr/local/bin/no-todo-in", "#!/bin/sh\nenv >&2\ntest -e \"$1\"/work.txt || exit 1\nif grep -q TODO \"$1\"/work.txt; then echo \"todo left\"; exit 1; fi\necho none left\n")
	return "registry.test/tools@" + l.Image(t, testenv.Tar(t, testenv.System(t, "/bin/sh", "/bin/grep", "/usr/bin/env")...), testenv.Tar(t, append(more, tool)...))
}

// imageEntry is an entry that runs words with the tools of an image.
func imageEntry(image, words string) string {
	return `{"id": "todo", "argv": [` + words + `], "definition_reason": "the tool is in the image", "pass_when": {"stdout_contains": "none left"}, "backs_claim": "todo-holds", "agreement": "stdout",
		"toolchain": {"image": "` + image + `"},
		"negative_control": {"mutation_of": ".", "mutation": {"file": "work.txt", "find": "done", "replace": "TODO"}, "fails_with": "todo left"}}`
}

const workTree = "-- work.txt --\ndone\n"

func TestToolsFromAnImage(t *testing.T) {
	l := open(t)
	layout := testenv.NewLayout(t)
	l.images = []string{layout.Dir}
	image := toolImage(t, layout)
	text := imageEntry(image, `"no-todo-in", "{target}"`)
	r := l.external(t, text, workTree, nil)
	if r.Classification != receipt.VerifiedEligible || !r.Posture.Strict || r.Control.Outcome != receipt.FailedAsRequired {
		t.Fatalf("%s, strict %v, control %s %s; codes: %s", r.Classification, r.Posture.Strict, r.Control.Outcome, r.Control.Why, codes(r))
	}
	if r.Tools.Image != image {
		t.Errorf("the receipt names the image %q, want %q", r.Tools.Image, image)
	}
	if i := slices.IndexFunc(r.Posture.Facets, func(f receipt.Facet) bool { return f.Name == "tools_immutable" }); i < 0 || !r.Posture.Facets[i].OK {
		t.Errorf("facets: %+v", r.Posture.Facets)
	}
	pins := l.pin(t, testenv.Tree(t, workTree), entry(t, text))
	_, digest, _ := strings.Cut(image, "@sha256:")
	pin := pins.Checks[0]
	if len(pin.Closure) != 2 || pin.Closure[0] != (allowlist.ClosurePart{Image: image, SHA256: digest}) || pin.Closure[1].Tree != "definition" {
		t.Errorf("the closure is not the image and the definition: %+v", pin.Closure)
	}
	if pin.ResolvedPath != "/usr/local/bin/no-todo-in" || r.Tools.ClosureSHA256 != pin.ClosureSHA256 {
		t.Errorf("pinned %+v", pin)
	}
	if r := l.external(t, text, "-- work.txt --\ndone\nTODO\n", nil); r.Classification != receipt.Failed {
		t.Errorf("a tree that is wrong: %s; codes: %s", r.Classification, codes(r))
	}
}

// TestAnImageIsAllThatACheckHas: what only the host has is not there, and what
// cannot be had, or must not, is said.
func TestAnImageIsAllThatACheckHas(t *testing.T) {
	l := open(t)
	layout := testenv.NewLayout(t)
	l.images = []string{layout.Dir}
	image := toolImage(t, layout)
	hostile := toolImage(t, layout, testenv.Entry{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "usr/fifo"}})
	absent := "registry.test/tools@sha256:" + strings.Repeat("0", 64)
	script := "-- t/tool.py --\n#!/usr/bin/python3\nprint('none left')\n" + workTree
	for name, c := range map[string]struct{ entry, code, says string }{
		"a program of the host":      {imageEntry(image, `"python3", "-c", "1"`), verifier.CommandNotFound, "no such program"},
		"by its path":                {imageEntry(image, `"/usr/bin/python3", "-c", "1"`), verifier.CommandNotFound, "no such program"},
		"an interpreter of the host": {imageEntry(image, `"t/tool.py"`), verifier.CommandNotFound, "interpreter"},
		"an image that nobody has":   {imageEntry(absent, `"no-todo-in", "{target}"`), verifier.ImageMissing, "not there"},
		"a hostile image":            {imageEntry(hostile, `"no-todo-in", "{target}"`), verifier.ImageRefused, "FIFO"},
	} {
		t.Run(name, func(t *testing.T) {
			l.mu.Lock()
			defer l.mu.Unlock()
			root := testenv.Tree(t, script)
			e := entry(t, c.entry)
			seen, err := l.lane(t, nil).Observe(t.Context(), ask(root, e, nil))
			if err != nil || seen[0].Code != c.code || !strings.Contains(seen[0].Why, c.says) {
				t.Fatalf("got %+v, %v, want %s with %q", seen, err, c.code, c.says)
			}
			outcomes, err := l.lane(t, nil).Run(t.Context(), ask(root, e, nil))
			if err != nil {
				t.Fatal(err)
			}
			if r := outcomes[0].Receipt.Receipt(); r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), c.code) || len(r.Executions) != 0 {
				t.Errorf("%s; codes: %s", r.Classification, codes(r))
			}
		})
	}
}

// TestAnotherImageIsDrift: a pin of one image is none of another, and what was
// unpacked is used only as it was then.
func TestAnotherImageIsDrift(t *testing.T) {
	l := open(t)
	layout := testenv.NewLayout(t)
	l.images = []string{layout.Dir}
	image, other := toolImage(t, layout), toolImage(t, layout, testenv.File("usr/other", ""))
	root := testenv.Tree(t, workTree)
	text := imageEntry(image, `"no-todo-in", "{target}"`)
	pins := l.pin(t, root, entry(t, text))
	run := func(t *testing.T, text string, pins *allowlist.Pins, progress func(check, step string)) receipt.Receipt {
		t.Helper()
		l.mu.Lock()
		defer l.mu.Unlock()
		outcomes, err := l.lane(t, progress).Run(t.Context(), ask(root, entry(t, text), pins))
		if err != nil {
			t.Fatal(err)
		}
		return outcomes[0].Receipt.Receipt()
	}
	drifted := func(t *testing.T, r receipt.Receipt, executions int) {
		t.Helper()
		if r.Classification != receipt.Indeterminate || !strings.Contains(codes(r), "toolchain_drift") || len(r.Executions) != executions {
			t.Errorf("%s, %d executions; codes: %s", r.Classification, len(r.Executions), codes(r))
		}
	}
	t.Run("the entry names another", func(t *testing.T) {
		text := strings.ReplaceAll(text, image, other)
		moved := *l.pin(t, root, entry(t, text))
		moved.Checks = slices.Clone(moved.Checks)
		moved.Checks[0].Closure, moved.Checks[0].ClosureSHA256 = pins.Checks[0].Closure, pins.Checks[0].ClosureSHA256
		drifted(t, run(t, text, &moved, nil), 0)
	})
	_, digest, _ := strings.Cut(image, "@sha256:")
	unpacked := filepath.Join(l.dir, "images", digest)
	tool := filepath.Join(unpacked, "root/usr/local/bin/no-todo-in")
	honest, err := os.ReadFile(tool)
	if err != nil {
		t.Fatal(err)
	}
	put := func(text string) {
		if err := os.WriteFile(tool, []byte(text), 0o555); err != nil {
			t.Error(err)
		}
	}
	t.Run("it changes while it is used", func(t *testing.T) {
		drifted(t, run(t, text, pins, func(_, step string) {
			if step == "both runs" {
				put("#!/bin/sh\necho none left\n")
			}
		}), 2)
	})
	t.Run("it changed before", func(t *testing.T) { drifted(t, run(t, text, pins, nil), 0) })
	put(string(honest))
	if r := run(t, text, pins, nil); r.Classification != receipt.VerifiedEligible {
		t.Errorf("as it was: %s; codes: %s", r.Classification, codes(r))
	}
	t.Run("another may write to it", func(t *testing.T) {
		if err := os.Chmod(filepath.Join(unpacked, "root/usr/local"), 0o777); err != nil {
			t.Fatal(err)
		}
		r := run(t, text, pins, nil)
		if r.Classification != receipt.Indeterminate || r.Posture.Strict || !strings.Contains(codes(r), "tools_immutable") && !strings.Contains(codes(r), "sandbox_not_strict") {
			t.Errorf("%s; codes: %s", r.Classification, codes(r))
		}
	})
	if err := os.RemoveAll(unpacked); err != nil {
		t.Fatal(err)
	}
	if r := run(t, text, pins, nil); r.Classification != receipt.VerifiedEligible {
		t.Errorf("unpacked anew: %s; codes: %s", r.Classification, codes(r))
	}
}
