package verifiercmd

import (
	"strings"
	"testing"

	"striatum/allowlist"
	"striatum/receipt/receipttest"
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
