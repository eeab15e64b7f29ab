package allowlist

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"striatum/internal/shellquote"
	"striatum/seal"
	"striatum/workflow"
)

// AttestSchemaVersion marks an attestation sidecar of this format.
const AttestSchemaVersion = "striatum.verifier_allowlist_attest.v1"

// PinCommand is the literal command that pins the intent's tools on a host.
const PinCommand = "striatum verifier pin --host-here"

// AttestCommand is the literal command that shows what attesting a check means.
func AttestCommand(id string) string { return "striatum verifier attest --pin " + shellquote.Word(id) }

// Attestation is an operator's word about one check with one closure.
type Attestation struct {
	CheckDigest   string `json:"check_digest"`
	ClosureSHA256 string `json:"closure_sha256"`
}

// Sidecar is the cache of attestations beside a host's pins, by check id.
type Sidecar struct {
	SchemaVersion string                 `json:"schema_version"`
	Attestations  map[string]Attestation `json:"attestations"`
}

// ErrSidecar is the reason of every sidecar that is refused.
var ErrSidecar = errors.New("attestation sidecar is not valid")

// ParseSidecar reads a sidecar. It is a cache for people: nothing may count it
// as an attestation.
func ParseSidecar(data []byte) (Sidecar, error) {
	var s Sidecar
	if err := seal.Decode(data, &s, seal.Limits{Bytes: MaxBytes, Depth: MaxDepth}); err != nil {
		return Sidecar{}, fmt.Errorf("read sidecar: %w: %w", ErrSidecar, err)
	}
	if s.SchemaVersion != AttestSchemaVersion {
		return Sidecar{}, fmt.Errorf("read sidecar: %w: /schema_version: want %q", ErrSidecar, AttestSchemaVersion)
	}
	if s.Attestations == nil {
		return Sidecar{}, fmt.Errorf("read sidecar: %w: missing key \"attestations\"", ErrSidecar)
	}
	for id, a := range s.Attestations {
		if !workflow.ValidID(id) && !workflow.ToolchainBuiltin(id) || !seal.ValidDigest(a.CheckDigest) || !seal.ValidDigest(a.ClosureSHA256) {
			return Sidecar{}, fmt.Errorf("read sidecar: %w: /attestations: %.80q is not an id with two digests", ErrSidecar, id)
		}
	}
	return s, nil
}

// Encode writes the sidecar as indented JSON with a final newline.
func (s Sidecar) Encode() ([]byte, error) {
	if s.Attestations == nil {
		s.Attestations = map[string]Attestation{}
	}
	return workflow.Indent(s)
}

// List returns the attestations, ordered by check id.
func (s Sidecar) List() []Attestation {
	var out []Attestation
	for _, id := range slices.Sorted(maps.Keys(s.Attestations)) {
		out = append(out, s.Attestations[id])
	}
	return out
}

// Rung is how far a check's tools are known on a host.
type Rung string

// The rungs of an external check, lowest first.
const (
	NamedUnpinned    Rung = "named_unpinned"
	PinnedUnattested Rung = "pinned_unattested"
	Attested         Rung = "attested"
)

// Unpinned is the typed value of a check without a pin that counts.
type Unpinned struct {
	HostFingerprint string `json:"host_fingerprint"`
	FixCommand      string `json:"fix_command"`
	EntryPointer    string `json:"entry_pointer"`
	// Why: no pin at all, or one of another definition.
	Why string `json:"why"`
}

// Row is one entry of the intent, joined.
type Row struct {
	Entry       Entry
	Pointer     string
	CheckDigest string
	Rung        Rung
	Pin         Pin       // of the two upper rungs
	Unpinned    *Unpinned // of NamedUnpinned only
	Unfilled    []string  // pointers of what nobody filled; then NamedUnpinned
}

// Join joins the intent with this host's pins (nil: none) and attestations.
// It is pure: one row for each entry, in order. A pin counts when it was
// observed on this host, for the entry's present check digest and argv; an
// attestation counts when it names the pin's very check and closure.
func Join(in Intent, pins *Pins, attestations []Attestation, hostFingerprint string) ([]Row, error) {
	rows := make([]Row, 0, len(in.Checks))
	for i, e := range in.Checks {
		digest, err := e.Digest()
		if err != nil {
			return nil, err
		}
		row := Row{Entry: e, Pointer: fmt.Sprintf("/checks/%d", i), CheckDigest: digest}
		row.Unfilled = e.UnfilledAt(row.Pointer)
		pin, why := pinFor(row, pins, hostFingerprint)
		switch {
		case why != "":
			row.Rung = NamedUnpinned
			row.Unpinned = &Unpinned{HostFingerprint: hostFingerprint, FixCommand: PinCommand, EntryPointer: row.Pointer, Why: why}
		case slices.Contains(attestations, Attestation{digest, pin.ClosureSHA256}):
			row.Rung, row.Pin = Attested, pin
		default:
			row.Rung, row.Pin = PinnedUnattested, pin
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// pinFor returns the pin that counts for a row, or why none does.
func pinFor(row Row, pins *Pins, hostFingerprint string) (Pin, string) {
	if len(row.Unfilled) > 0 {
		return Pin{}, "the entry is an unfilled template"
	}
	return PinFor(pins, hostFingerprint, row.Entry.ID, row.CheckDigest, row.Entry.Argv.Words)
}

// PinFor returns the pin that counts for a check on a host, or why none does.
func PinFor(pins *Pins, hostFingerprint, id, checkDigest string, argv []string) (_ Pin, why string) {
	switch {
	case pins == nil:
		return Pin{}, "there are no pins of this host"
	case pins.HostFingerprint != hostFingerprint:
		return Pin{}, "the pins are of another host"
	}
	pin, ok := pins.Pin(id)
	switch {
	case !ok:
		return Pin{}, "the pins do not name it"
	case pin.CheckDigest != checkDigest, !slices.Equal(pin.Argv, argv):
		return Pin{}, "the entry changed after it was pinned"
	}
	return pin, ""
}

// ToolchainPin is PinFor for a builtin whose toolchain is pinned.
func ToolchainPin(c workflow.CheckRef, pins *Pins, hostFingerprint string) (_ Pin, why string, err error) {
	digest, err := c.Digest()
	if err != nil {
		return Pin{}, "", err
	}
	b, _ := workflow.LookupBuiltin(c.Uses)
	pin, why := PinFor(pins, hostFingerprint, c.CheckID(), digest, b.Argv())
	return pin, why, nil
}

// TemplateStatus is what a generator or a run start sees: FILLED when every row
// is filled and pinned.
func TemplateStatus(rows []Row) workflow.AllowlistStatus {
	for _, r := range rows {
		if len(r.Unfilled) > 0 || r.Unpinned != nil {
			return workflow.TemplateUnfilled
		}
	}
	return workflow.Filled
}

// View turns rows into what workflow.Validate may know of them.
func View(rows []Row) workflow.View {
	v := workflow.View{IntentFound: true}
	for _, r := range rows {
		x := workflow.External{
			ID: r.Entry.ID, BacksClaim: r.Entry.BacksClaim, Pointer: r.Pointer,
			Unfilled: r.Unfilled, FixCommand: PinCommand,
		}
		if r.Unpinned != nil {
			x.Unpinned = r.Unpinned.Why
		}
		if stops := r.Entry.Stops(); len(stops) > 0 {
			x.Stops = stops[0].Sentence
		}
		v.Externals = append(v.Externals, x)
	}
	return v
}
