package allowlist

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"striatum/internal/schemacheck"
	"striatum/seal"
)

//go:generate go test . -run TestSchemaInDocsIsACopy -update

//go:embed allowlist.intent.v1.json
var intentSchema string

// IntentSchema returns the JSON Schema of an intent.
func IntentSchema() []byte { return []byte(intentSchema) }

var compiled = sync.OnceValues(func() (*schemacheck.Schema, error) { return schemacheck.Compile(IntentSchema()) })

// Code names a rule that an intent broke.
type Code string

// The codes of findings.
const (
	Malformed           Code = "malformed"
	SchemaViolation     Code = "schema"
	HashInIntent        Code = "hash_in_intent"        // binary_sha256 anywhere
	ReservedID          Code = "reserved_id"           // begins with builtin
	DuplicateID         Code = "duplicate_id"          // two entries of one id
	ClaimTwoChecks      Code = "claim_with_two_checks" // two entries for one claim
	InvalidArgv         Code = "invalid_argv"
	InvalidPath         Code = "invalid_path"
	InvalidGlob         Code = "invalid_glob"
	DefinitionMissing   Code = "definition_missing"  // an interpreter without definition
	WeakerThanBuiltin   Code = "weaker_than_builtin" // go test, go vet, go build
	TestsNeedFormat     Code = "tests_need_format"   // tests without a test format
	InvalidMutation     Code = "invalid_mutation"
	InvalidPattern      Code = "invalid_pattern"       // fails_with is no regular expression
	FailsWithUnspecific Code = "fails_with_unspecific" // it matches empty output
	InvalidLimit        Code = "invalid_limit"
)

// Finding is one broken rule with its JSON pointer into the intent.
type Finding struct {
	Pointer string
	Code    Code
	What    string
	Hint    string
}

// InvalidError tells that an intent breaks rules. It has at least one finding.
type InvalidError struct{ Findings []Finding }

// Error names the first finding and how many there are.
func (e *InvalidError) Error() string {
	f := e.Findings[0]
	s := fmt.Sprintf("intent is not valid at %q: %s", f.Pointer, f.What)
	if n := len(e.Findings) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// ParseIntent reads an intent of at most MaxBytes and applies every rule. The
// error is an *InvalidError. Unfilled templates are valid; Entry.UnfilledAt
// names them.
func ParseIntent(data []byte) (Intent, error) {
	in, findings := readIntent(data)
	if findings == nil {
		r := intentRules{}
		r.apply(in)
		findings = r.found
	}
	if len(findings) > 0 {
		return Intent{}, &InvalidError{findings}
	}
	return in, nil
}

func readIntent(data []byte) (Intent, []Finding) {
	lim := seal.Limits{Bytes: MaxBytes, Depth: MaxDepth}
	var doc any
	if err := seal.Decode(data, &doc, lim); err != nil {
		return Intent{}, []Finding{decodeFinding(err)}
	}
	if found := hashes(nil, doc, ""); found != nil {
		return Intent{}, found
	}
	s, err := compiled()
	var violations []schemacheck.Violation
	if err == nil {
		violations, err = s.Check(data)
	}
	if err != nil {
		return Intent{}, []Finding{{Code: Malformed, What: err.Error()}}
	}
	var found []Finding
	for _, v := range violations {
		found = append(found, schemaFinding(v))
	}
	if found != nil {
		return Intent{}, found
	}
	var in Intent
	if err := seal.Decode(data, &in, lim); err != nil {
		return Intent{}, []Finding{decodeFinding(err)}
	}
	return in, nil
}

// schemaFinding says more than the schema can about the keys that people
// forget.
func schemaFinding(v schemacheck.Violation) Finding {
	f := Finding{Pointer: v.Pointer, Code: SchemaViolation, What: v.Reason}
	switch {
	case strings.HasSuffix(v.Reason, `"negative_control"`):
		f.Hint = "every check names a known-bad input that it must fail on"
	case strings.HasSuffix(v.Reason, `"mutation_of"`):
		f.Hint = `a bare known-bad is refused: name the passing input that it mutates, "." for the worktree`
	}
	return f
}

func decodeFinding(err error) Finding {
	if d, ok := errors.AsType[*seal.DecodeError](err); ok {
		return Finding{Pointer: d.Pointer, Code: Malformed, What: d.Reason}
	}
	return Finding{Code: Malformed, What: err.Error()}
}

// hashes finds every key that would bring a digest of a program into the
// intent.
func hashes(found []Finding, v any, at string) []Finding {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			p := at + schemacheck.Pointer(k)
			if k == "binary_sha256" {
				found = append(found, Finding{
					Pointer: p, Code: HashInIntent,
					What: `the intent is hashless: a program's digest holds on one host only, so "binary_sha256" belongs to this host's pins`,
					Hint: "remove it and run: " + PinCommand,
				})
				continue
			}
			found = hashes(found, v[k], p)
		}
	case []any:
		for i, e := range v {
			found = hashes(found, e, fmt.Sprintf("%s/%d", at, i))
		}
	}
	return found
}
