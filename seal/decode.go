package seal

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// The limits of Decode where a Limits has zero.
const (
	DefaultBytes = 1 << 20
	DefaultDepth = 64
)

// maxInteger is the largest integer that every JSON reader holds exactly.
const maxInteger = 1<<53 - 1

// Limits bound what Decode reads. Depth counts nested arrays and objects.
type Limits struct {
	Bytes int // zero: DefaultBytes
	Depth int // zero: DefaultDepth
}

// DecodeError says where a JSON text is not acceptable and why. Pointer is an
// RFC 6901 JSON pointer; the empty pointer is the whole document. Both may hold
// characters from the input; Error quotes the pointer and cuts it at 200 bytes.
type DecodeError struct {
	Pointer string
	Reason  string
}

// within says that err, made by this package, came from the part of that name.
func within(part string, err error) error {
	if e, ok := err.(*DecodeError); ok { //nolint:errorlint // one that somebody wrapped is not ours to change
		e.Pointer = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part) + e.Pointer
		return e
	}
	return fmt.Errorf("%s: %w", part, err)
}

// Error returns the pointer, quoted, and the reason.
func (e *DecodeError) Error() string {
	p := e.Pointer
	if len(p) > 200 {
		p = p[:200] + "…"
	}
	return fmt.Sprintf("at %s: %s", strconv.QuoteToASCII(p), e.Reason)
}

// Decode reads exactly one JSON value from data into the value that v points
// to, strictly (see the package comment). Values with an UnmarshalJSON method
// of their own are checked for everything but unknown keys, which are theirs
// to refuse. On error, a *DecodeError, *v is unchanged; on success nothing of
// its former content is left.
func Decode(data []byte, v any, lim Limits) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return &DecodeError{Reason: fmt.Sprintf("cannot decode into %T", v)}
	}
	if lim.Bytes == 0 {
		lim.Bytes = DefaultBytes
	}
	if lim.Depth == 0 {
		lim.Depth = DefaultDepth
	}
	if len(data) > lim.Bytes {
		return fail("%d bytes are more than the limit of %d", len(data), lim.Bytes)
	}
	fresh := reflect.New(target.Type().Elem()).Elem()
	s := scanner{data: data, maxDepth: lim.Depth}
	if err := s.text(planOf(fresh.Type()), fresh); err != nil {
		return err
	}
	target.Elem().Set(fresh)
	return nil
}
