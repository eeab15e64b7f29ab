// Package problem is the one error type that a user of Striatum reads: what
// happened, why, and what to do next. Each Kind has one exit code; the table
// is here and nowhere else (docs/formats.md lists it for people).
package problem

import (
	"errors"
	"fmt"
	"strings"
)

// Kind classifies a problem. The zero Kind is Internal's neighbour: it is
// never built by New and maps to the exit code of Internal.
type Kind uint8

// The kinds, each with its exit code.
const (
	_             Kind = iota
	No                 // 1: the check failed, or a claim is below the floor
	Usage              // 2: the command line is wrong
	Refused            // 3: not allowed, not trusted, tampered, unverified
	Indeterminate      // 4: no judgement possible
	Void               // 5: the negative control did not do its work
	Invalid            // 6: a document is not valid
	Missing            // 7: this machine lacks something
	Unfilled           // 8: a template is unfilled or an entry unpinned
	Internal           // 4: a fault of ours
)

// ExitCode returns the process exit code for k.
func (k Kind) ExitCode() int {
	switch k {
	case No:
		return 1
	case Usage:
		return 2
	case Refused:
		return 3
	case Void:
		return 5
	case Invalid:
		return 6
	case Missing:
		return 7
	case Unfilled:
		return 8
	case Indeterminate, Internal:
		return 4
	}
	return 4
}

// Problem is an error in three parts. What and Why are lower case without a
// final full stop; Hint is one thing to do, and may be empty.
type Problem struct { //nolint:errname // problem.Problem is what it is, everywhere
	Kind Kind
	What string
	Why  string
	Hint string
	Err  error
}

// New returns a problem without an underlying error.
func New(kind Kind, what, why, hint string) *Problem {
	return &Problem{Kind: kind, What: what, Why: why, Hint: hint}
}

// Wrap returns a problem whose reason is err, without the part at its beginning
// that only says again on what was acted ("open /x/y: permission denied").
func Wrap(kind Kind, err error, what, hint string) *Problem {
	return &Problem{Kind: kind, What: what, Why: reason(what, err.Error()), Hint: hint, Err: err}
}

// reason drops each leading part of text that ends with a name, quoted or an
// absolute path, that what has already, or that is what itself.
func reason(what, text string) string {
	for {
		part, rest, ok := strings.Cut(text, ": ")
		if !ok {
			return text
		}
		name := ""
		if i := strings.IndexByte(part, '"'); i >= 0 && strings.HasSuffix(part, `"`) {
			name = strings.Trim(part[i:], `"`)
		} else if i := strings.Index(part, " /"); i >= 0 {
			name = part[i+1:]
		}
		said := strings.Contains(what, `"`+name+`"`) || strings.HasSuffix(what, " "+name)
		if part != what && (name == "" || !said) {
			return text
		}
		text = rest
	}
}

// Error returns the first two parts: "what: why".
func (p *Problem) Error() string {
	if p.Why == "" {
		return p.What
	}
	return fmt.Sprintf("%s: %s", p.What, p.Why)
}

// Unwrap returns the underlying error, or nil.
func (p *Problem) Unwrap() error { return p.Err }

// Of returns the outermost Problem in err's chain, or an Internal one around
// err. Of(nil) is nil.
func Of(err error) *Problem {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	return &Problem{Kind: Internal, What: err.Error(), Err: err}
}
