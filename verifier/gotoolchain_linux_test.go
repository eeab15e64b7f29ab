package verifier_test

import (
	"strings"
	"testing"
	"time"

	"striatum/allowlist"
	"striatum/internal/testenv"
	"striatum/receipt"
	"striatum/verifier"
	"striatum/workflow"
)

// TestAPinnedToolchainIsHeldAgainstItsPin: with its pin a builtin+toolchain check may reach
// VERIFIED; with another, or none, nothing is judged.
func TestAPinnedToolchainIsHeldAgainstItsPin(t *testing.T) {
	l := open(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	check := workflow.CheckRef{Uses: "builtin+toolchain:go-test"}
	req := verifier.Request{
		RepositoryID: "repo-test", Requester: "local", Root: testenv.Tree(t, good), Wait: time.Minute,
		Select: func(string) (verifier.Selection, error) {
			return verifier.Selection{Checks: []workflow.CheckRef{check}}, nil
		},
	}
	seen, err := l.lane(t, nil).Observe(t.Context(), req)
	if err != nil || len(seen) != 1 || seen[0].Why != "" {
		t.Fatalf("observed %+v, %v", seen, err)
	}
	pin := seen[0].Pin
	pins := allowlist.Pins{SchemaVersion: allowlist.PinsSchemaVersion, HostFingerprint: "01234567-linux-amd64", Checks: []allowlist.Pin{pin}}
	if _, err := allowlist.SignPins(pins, l.key); err != nil || !pin.Posture.Strict || pin.ID != check.Uses {
		t.Fatalf("pin %+v: %v", pin, err)
	}
	if same, why, err := allowlist.ToolchainPin(check, &pins, pins.HostFingerprint); err != nil || why != "" || same.ClosureSHA256 != pin.ClosureSHA256 {
		t.Errorf("the pin does not count: %q, %v", why, err)
	}
	other := check
	other.Tags = []string{"x"}
	if _, why, err := allowlist.ToolchainPin(other, &pins, pins.HostFingerprint); err != nil || why == "" {
		t.Errorf("the pin counts for other parameters: %v", err)
	}
	changed := pin
	changed.ClosureSHA256 = strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		pin  allowlist.Pin
		want receipt.Classification
		code string
	}{
		"its pin": {pin, receipt.VerifiedEligible, ""},
		"another": {changed, receipt.Indeterminate, "toolchain_drift"},
		"none":    {allowlist.Pin{}, receipt.Indeterminate, "toolchain_drift"},
	} {
		req.Select = func(string) (verifier.Selection, error) {
			return verifier.Selection{
				Checks: []workflow.CheckRef{check}, Pins: map[string]allowlist.Pin{check.Uses: c.pin}, PinsSHA256: strings.Repeat("1", 64),
			}, nil
		}
		out, err := l.lane(t, nil).Run(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		r := out[0].Receipt.Receipt()
		if r.Classification != c.want || !strings.Contains(codes(r), c.code) || r.Check.Kind != receipt.BuiltinToolchain || r.Tools.ClosureSHA256 != pin.ClosureSHA256 {
			t.Errorf("%s: %s, codes %s, kind %s, closure %s; want %s, %s, closure %s", name, r.Classification, codes(r), r.Check.Kind, r.Tools.ClosureSHA256, c.want, c.code, pin.ClosureSHA256)
		}
	}
}
