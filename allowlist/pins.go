package allowlist

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"

	"striatum/receipt"
	"striatum/seal"
	"striatum/workflow"
)

// PinsSchemaVersion marks pins of this format, PinsPayloadType their envelope.
const (
	PinsSchemaVersion = "striatum.verifier_allowlist.v1"
	PinsPayloadType   = "application/vnd.striatum.pins+json"
)

// MaxPinsBytes bounds a pins file: a closure may list many files.
const MaxPinsBytes = 16 << 20

// ErrPins is the reason of every pins file that its lane signed but that says
// something impossible.
var ErrPins = errors.New("pins are not valid")

// Pins is what one host's lane observed of the intent's tools.
type Pins struct {
	SchemaVersion   string `json:"schema_version"`
	HostFingerprint string `json:"host_fingerprint"`
	Checks          []Pin  `json:"checks"`
}

// Pin is the observed bytes behind one check.
type Pin struct {
	ID            string        `json:"id"`
	CheckDigest   string        `json:"check_digest"`
	Argv          []string      `json:"argv"`
	ResolvedPath  string        `json:"resolved_path"`
	BinarySHA256  string        `json:"binary_sha256"`
	Closure       []ClosurePart `json:"closure"`
	ClosureSHA256 string        `json:"closure_sha256"`
	// Definition are the lines of the tree's manifest that the closure's
	// definition is the digest of; absent where there is none, and from pins of
	// earlier versions.
	Definition string          `json:"definition,omitempty"`
	ObservedAt string          `json:"observed_at"`
	ObservedBy string          `json:"observed_by"`
	Posture    receipt.Posture `json:"posture"`
}

// ClosurePart is one of: a file {path, sha256, size}; a folder {root,
// tree_sha256, files, bytes}; the definition in the worktree {tree: "definition",
// sha256}; an OCI image {image, sha256}.
type ClosurePart struct {
	Path       string `json:"path,omitempty"`
	Root       string `json:"root,omitempty"`
	Tree       string `json:"tree,omitempty"`
	Image      string `json:"image,omitempty"`
	SHA256     string `json:"sha256,omitempty"`
	TreeSHA256 string `json:"tree_sha256,omitempty"`
	Size       *int64 `json:"size,omitempty"`
	Files      *int64 `json:"files,omitempty"`
	Bytes      *int64 `json:"bytes,omitempty"`
}

// ClosureDigest returns the digest of a closure: SHA-256 of its canonical JSON.
func ClosureDigest(parts []ClosurePart) (string, error) {
	data, err := seal.Canonical(parts)
	if err != nil {
		return "", fmt.Errorf("digest of closure: %w", err)
	}
	return seal.SHA256Hex(data), nil
}

// HostFingerprint names a host: the first 8 hex digits of SHA-256 over the
// machine id, a newline and the architecture, then "-OS-ARCH".
func HostFingerprint(machineID, os, arch string) string {
	return seal.SHA256Hex([]byte(machineID + "\n" + arch))[:8] + "-" + os + "-" + arch
}

// ValidFingerprint reports whether s looks like a host fingerprint, so that it
// may stand in a file name.
func ValidFingerprint(s string) bool {
	return regexp.MustCompile(`^[0-9a-f]{8}-[a-z0-9]{1,16}-[a-z0-9]{1,16}$`).MatchString(s)
}

// PinsPath returns the path of a host's pins, beside the intent.
func PinsPath(intentPath, fingerprint string) string {
	return path.Join(path.Dir(intentPath), "allowlist.pins."+fingerprint+".json")
}

// AttestPath returns the path of a host's attestation sidecar.
func AttestPath(intentPath, fingerprint string) string {
	return path.Join(path.Dir(intentPath), "allowlist.pins."+fingerprint+".attest.json")
}

// ParsePins opens a pins file: an envelope signed by a lane of the ring over
// canonical JSON. The error is one of seal's (errors.Is seal.ErrUnknownKey,
// seal.ErrBadSignature, seal.ErrMalformed, seal.ErrWrongRole) or ErrPins.
func ParsePins(envelope []byte, ring seal.Keyring) (Pins, error) {
	if len(envelope) > MaxPinsBytes {
		return Pins{}, fmt.Errorf("read pins: %w: %d bytes are more than %d", ErrPins, len(envelope), MaxPinsBytes)
	}
	payload, by, err := seal.Open(envelope, PinsPayloadType, ring, seal.RoleLane)
	if err != nil {
		return Pins{}, fmt.Errorf("read pins: %w", err)
	}
	p, err := parsePinsPayload(payload)
	if err != nil {
		return Pins{}, err
	}
	for i, pin := range p.Checks {
		if pin.ObservedBy != by.Public.ID() {
			return Pins{}, fmt.Errorf("read pins: %w: /checks/%d/observed_by is not the key that signed", ErrPins, i)
		}
	}
	return p, nil
}

// SignPins validates p and returns the signed pins file.
func SignPins(p Pins, key *seal.PrivateKey) ([]byte, error) {
	payload, err := seal.Canonical(p)
	if err != nil {
		return nil, fmt.Errorf("write pins: %w", err)
	}
	if _, err := parsePinsPayload(payload); err != nil {
		return nil, err
	}
	return seal.Sign(key, PinsPayloadType, payload)
}

func parsePinsPayload(payload []byte) (Pins, error) {
	var p Pins
	if err := seal.Decode(payload, &p, seal.Limits{Bytes: MaxPinsBytes, Depth: MaxDepth}); err != nil {
		return Pins{}, fmt.Errorf("read pins: %w: %w", ErrPins, err)
	}
	if err := p.validate(); err != nil {
		return Pins{}, fmt.Errorf("read pins: %w: %w", ErrPins, err)
	}
	again, err := seal.Canonical(p)
	if err != nil {
		return Pins{}, fmt.Errorf("read pins: %w: %w", ErrPins, err)
	}
	if !bytes.Equal(again, payload) {
		return Pins{}, fmt.Errorf("read pins: %w: not in canonical form", ErrPins)
	}
	return p, nil
}

// Pin returns the pin of that check id.
func (p Pins) Pin(id string) (Pin, bool) {
	for _, x := range p.Checks {
		if x.ID == id {
			return x, true
		}
	}
	return Pin{}, false
}

func (p Pins) validate() error {
	if p.SchemaVersion != PinsSchemaVersion {
		return fmt.Errorf("/schema_version: want %q", PinsSchemaVersion)
	}
	if !ValidFingerprint(p.HostFingerprint) {
		return fmt.Errorf("/host_fingerprint: %.80q is none", p.HostFingerprint)
	}
	seen := map[string]bool{}
	for i, x := range p.Checks {
		if err := x.validate(); err != nil {
			return fmt.Errorf("/checks/%d%w", i, err)
		}
		if seen[x.ID] {
			return fmt.Errorf("/checks/%d/id: a second pin of %.80q", i, x.ID)
		}
		seen[x.ID] = true
	}
	return nil
}

// validate returns an error that begins with the pointer below the pin.
func (p Pin) validate() error {
	at, err := time.Parse(time.RFC3339Nano, p.ObservedAt)
	switch {
	case !workflow.ValidID(p.ID) && !workflow.ToolchainBuiltin(p.ID):
		return fmt.Errorf("/id: %.80q is not an id", p.ID)
	case !seal.ValidDigest(p.CheckDigest):
		return errors.New("/check_digest: not a digest")
	case len(p.Argv) == 0:
		return errors.New("/argv: empty")
	case !path.IsAbs(p.ResolvedPath) || path.Clean(p.ResolvedPath) != p.ResolvedPath:
		return errors.New("/resolved_path: not a clean absolute path")
	case !seal.ValidDigest(p.BinarySHA256):
		return errors.New("/binary_sha256: not a digest")
	case len(p.Closure) == 0:
		return errors.New("/closure: empty")
	case err != nil || at.Location() != time.UTC:
		return errors.New("/observed_at: not an RFC 3339 time in UTC")
	}
	for i, c := range p.Closure {
		if !c.valid() {
			return fmt.Errorf("/closure/%d: neither a file, a folder, the definition nor an image", i)
		}
	}
	if p.Definition != "" && seal.SHA256Hex([]byte(p.Definition)) != DefinitionDigest(p.Closure) {
		return errors.New("/definition: not what the closure has the digest of")
	}
	digest, err := ClosureDigest(p.Closure)
	if err != nil {
		return fmt.Errorf("/closure: %w", err)
	}
	if digest != p.ClosureSHA256 {
		return errors.New("/closure_sha256: not the digest of closure")
	}
	return nil
}

// DefinitionDigest returns the digest of the definition in a closure, empty if it
// has none.
func DefinitionDigest(parts []ClosurePart) string {
	for _, c := range parts {
		if c.Tree != "" {
			return c.SHA256
		}
	}
	return ""
}

func (c ClosurePart) valid() bool {
	counts := func(ns ...*int64) bool {
		return !slices.ContainsFunc(ns, func(n *int64) bool { return n == nil || *n < 0 })
	}
	switch {
	case c.Path != "":
		return seal.ValidDigest(c.SHA256) && counts(c.Size) &&
			c == ClosurePart{Path: c.Path, SHA256: c.SHA256, Size: c.Size}
	case c.Root != "":
		return seal.ValidDigest(c.TreeSHA256) && counts(c.Files, c.Bytes) &&
			c == ClosurePart{Root: c.Root, TreeSHA256: c.TreeSHA256, Files: c.Files, Bytes: c.Bytes}
	case c.Tree != "":
		return seal.ValidDigest(c.SHA256) && c == ClosurePart{Tree: "definition", SHA256: c.SHA256}
	}
	return c.Image != "" && seal.ValidDigest(c.SHA256) && c == ClosurePart{Image: c.Image, SHA256: c.SHA256}
}
