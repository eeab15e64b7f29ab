package verifiercmd

import (
	"crypto/rand"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"striatum/allowlist"
	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/cli/service"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/receipt/receipttest"
	"striatum/seal"
	"striatum/verifier"
)

// TestReceiptDiffFlagsEachPart holds a pin of this host against what a receipt of
// another one saw.
func TestReceiptDiffFlagsEachPart(t *testing.T) {
	part := func(path, content string) allowlist.ClosurePart {
		return allowlist.ClosurePart{Path: path, SHA256: receipttest.Digest(content), Size: new(int64(len(content)))}
	}
	closure := func(tool, library, script string) []allowlist.ClosurePart {
		return []allowlist.ClosurePart{part("/usr/bin/tool", tool), part("/usr/lib/x.so", library), {Tree: "definition", SHA256: receipttest.Digest(script)}}
	}
	pin := func(parts []allowlist.ClosurePart) allowlist.Pin {
		t.Helper()
		p := allowlist.Pin{CheckDigest: receipttest.Digest("check"), BinarySHA256: parts[0].SHA256, Closure: parts}
		var err error
		if p.ClosureSHA256, err = allowlist.ClosureDigest(parts); err != nil {
			t.Fatal(err)
		}
		return p
	}
	there := closure("tool", "library", "script")
	r := receipttest.Facts()
	r.Lane.HostFingerprint = "ffffffff-linux-arm64"
	r.Tools.BinarySHA256, r.Tools.ClosureSHA256 = receipttest.Digest("tool"), pin(there).ClosureSHA256
	r.Inputs.DefinitionSHA256 = receipttest.Digest("script")
	other := pin(there)
	other.CheckDigest = receipttest.Digest("other")
	resized := closure("tool", "library", "script")
	resized[1].Size = new(int64(1))
	for name, c := range map[string]struct {
		known []allowlist.ClosurePart
		pin   allowlist.Pin
		want  []string // how the lines begin
	}{
		"same":                   {there, pin(there), nil},
		"same, parts unknown":    {nil, pin(there), nil},
		"another entry":          {there, other, []string{"the entry was "}},
		"another library":        {there, pin(closure("tool", "x", "script")), []string{"the closure was ", "/usr/lib/x.so was "}},
		"another size":           {there, pin(resized), []string{"the closure was "}},
		"no library":             {there, pin([]allowlist.ClosurePart{there[0], there[2]}), []string{"the closure was ", "/usr/lib/x.so is no longer"}},
		"all, parts known":       {there, pin(closure("a", "b", "c")), []string{"the program was ", "the closure was ", "/usr/bin/tool was ", "/usr/lib/x.so was ", "the definition in the tree was "}},
		"all, parts unknown":     {nil, pin(closure("a", "b", "c")), []string{"the program was ", "the closure was ", "the definition in the tree was ", "the parts of that closure"}},
		"library, parts unknown": {nil, pin(closure("tool", "b", "script")), []string{"the closure was ", "the parts of that closure"}},
	} {
		got := receiptDiff(r, c.known, "", c.pin)
		ok := len(got) == len(c.want)
		for i := range c.want {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestAReceiptOfAnotherHostIsHeldAgainstWhatIsHere has the receipts of a second lane
// in the store.
func TestAReceiptOfAnotherHostIsHeldAgainstWhatIsHere(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"STRIATUM_HOME": filepath.Join(t.TempDir(), "home")}
	f := &cli.Factory{
		Streams: cli.Streams{Out: new(strings.Builder), Err: new(strings.Builder)},
		Getenv:  func(name string) string { return env[name] }, Now: time.Now, Rand: rand.Reader,
	}
	s, err := embedded.Open(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	o := &opened{Session: &service.Session{Service: s.Service.As(daemon.LocalUser())}}
	if o.worktree, err = home.Worktree(dir); err != nil {
		t.Fatal(err)
	}
	if o.repo, _, err = s.Service.Repository(t.Context(), o.worktree); err != nil {
		t.Fatal(err)
	}
	key := receipttest.Key(t, 7)
	operator := daemon.Principal{Kind: daemon.Operator, Name: "op"}
	if err := s.Service.EnrolLane(t.Context(), operator, daemon.LaneSpec{LaneID: "lane-1", PublicKey: key.Public(), Class: seal.ClassShared}); err != nil {
		t.Fatal(err)
	}
	sequence, prev := int64(0), receipt.FirstPrevSeal
	record := func(change func(*receipt.Receipt)) string {
		t.Helper()
		r := receipttest.Facts()
		sequence++
		r.Sequence, r.PrevSeal, r.RepositoryID, r.Lane.HostFingerprint = sequence, prev, o.repo.ID, "ffffffff-linux-arm64"
		r.Inputs.DefinitionSHA256 = receipttest.Digest("old")
		r.Check.ID, r.Check.Kind, r.Tools.BuiltinID, r.Compile, r.Control.Kind = "schema", receipt.External, "", nil, receipt.ControlWorktree
		change(&r)
		envelope, _ := receipttest.Sign(t, r, key)
		sealed, err := s.Service.RecordReceipt(t.Context(), operator, envelope)
		if err != nil {
			t.Fatal(err)
		}
		prev = sealed
		return sealed
	}
	pin := allowlist.Pin{
		ID: "schema", CheckDigest: receipttest.Digest("check"), BinarySHA256: receipttest.Digest("go"),
		ClosureSHA256: receipttest.Digest("closure"), Closure: []allowlist.ClosurePart{{Tree: "definition", SHA256: receipttest.Digest("script")}},
	}
	for name, c := range map[string]struct {
		change func(*receipt.Receipt)
		seal   string // instead
		kind   problem.Kind
		says   string
	}{
		"same":               {func(*receipt.Receipt) {}, "", 0, "has here the bytes of that receipt, of host ffffffff-linux-arm64"},
		"another definition": {func(r *receipt.Receipt) { r.Tools.ClosureSHA256 = receipttest.Digest("x") }, "", problem.Refused, "the definition in the tree was " + receipttest.Digest("old") + " and is "},
		"another program":    {func(r *receipt.Receipt) { r.Tools.BinarySHA256 = receipttest.Digest("x") }, "", problem.Refused, "the program was "},
		"another entry":      {func(r *receipt.Receipt) { r.Check.Digest = receipttest.Digest("x") }, "", problem.Refused, "the entry was "},
		"another check":      {func(r *receipt.Receipt) { r.Check.ID = "lint" }, "", problem.Refused, "not pinned here"},
		"another repository": {func(r *receipt.Receipt) { r.RepositoryID = "repo-2" }, "", problem.Refused, "another repository"},
		"no closure": {func(r *receipt.Receipt) {
			r.Tools.ClosureSHA256, r.Tools.BinarySHA256, r.Executions = "", "", nil
		}, "", problem.Refused, "saw no bytes"},
		"unknown": {nil, receipttest.Digest("nothing"), problem.Usage, "no such receipt"},
	} {
		sealed := c.seal
		if sealed == "" {
			sealed = record(c.change)
		}
		var out, said strings.Builder
		err := o.sameAsReceipt(t.Context(), cli.Streams{Out: &out, Err: &said}, sealed, []verifier.Observation{{ID: pin.ID, Pin: pin}})
		var kind problem.Kind
		if p, ok := errors.AsType[*problem.Problem](err); ok {
			kind = p.Kind
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text := out.String() + said.String()
		if err != nil {
			text += err.Error()
		}
		if kind != c.kind || !strings.Contains(text, c.says) {
			t.Errorf("%s: kind %d, want %d and %q:\n%s", name, kind, c.kind, c.says, text)
		}
	}
}
