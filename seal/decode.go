package seal

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"
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
	elem := target.Type().Elem()
	if err := check(data, elem, lim); err != nil {
		return err
	}
	fresh := reflect.New(elem)
	if err := json.Unmarshal(data, fresh.Interface()); err != nil {
		return &DecodeError{Reason: err.Error()}
	}
	target.Elem().Set(fresh.Elem())
	return nil
}

// check walks data against t. A nil t accepts any value.
func check(data []byte, t reflect.Type, lim Limits) error {
	if len(data) > lim.Bytes {
		return &DecodeError{Reason: fmt.Sprintf("%d bytes are more than the limit of %d", len(data), lim.Bytes)}
	}
	if !utf8.Valid(data) {
		return &DecodeError{Reason: "not valid UTF-8"}
	}
	s := scanner{data: data, maxDepth: lim.Depth, shapes: map[reflect.Type]shape{}}
	if err := s.value(t); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.data) {
		s.path = nil
		return s.fail("data after the JSON value")
	}
	return nil
}
