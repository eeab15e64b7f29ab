package seal

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// maxEncodeDepth stops the encoding of values that contain themselves.
const maxEncodeDepth = 500

// Canonical returns the RFC 8785 bytes of v: keys sorted, no white space, one
// spelling per character and number. A json.RawMessage is canonicalised. Nil
// slices and maps are written like empty ones. It is an error if v cannot be
// written exactly: invalid UTF-8, an integer beyond ±(2^53-1), a duplicate key
// in raw JSON, or a type that JSON lacks.
func Canonical(v any) ([]byte, error) { return AppendCanonical(nil, v) }

// AppendCanonical appends the bytes that Canonical returns to b. On error it
// returns nil; b's array may have been written to beyond its length.
func AppendCanonical(b []byte, v any) ([]byte, error) {
	e := encoder{buf: b}
	if err := e.value(reflect.ValueOf(v), 0); err != nil {
		return nil, fmt.Errorf("encode canonical JSON: %w", err)
	}
	return e.buf, nil
}

// SHA256Hex returns the SHA-256 of b as 64 lower-case hex digits.
func SHA256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ValidDigest reports whether s is 64 lower-case hex digits.
func ValidDigest(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// encoder writes canonical JSON into buf. depth counts the arrays and objects
// around the place where it is.
type encoder struct {
	buf   []byte
	depth int
}

// value writes v, whose type is not known yet. depth counts pointers too.
func (e *encoder) value(v reflect.Value, depth int) error {
	if !v.IsValid() {
		e.buf = append(e.buf, "null"...)
		return nil
	}
	return e.planned(planOf(v.Type()), v, depth)
}

// planned writes v, which is of p's type.
func (e *encoder) planned(p *plan, v reflect.Value, depth int) error {
	if depth > maxEncodeDepth {
		return fmt.Errorf("nested deeper than %d", maxEncodeDepth)
	}
	kind := v.Kind()
	if (kind == reflect.Pointer || kind == reflect.Interface) && v.IsNil() {
		e.buf = append(e.buf, "null"...)
		return nil
	}
	switch {
	case p.byPointerMethod && v.CanAddr():
		return e.marshal(v.Addr().Interface())
	case p.byMethod:
		return e.marshal(v.Interface())
	}
	switch kind { //nolint:exhaustive // the other kinds have no JSON
	case reflect.Pointer:
		return e.planned(p.elem, v.Elem(), depth+1)
	case reflect.Interface:
		return e.value(v.Elem(), depth+1)
	case reflect.Struct:
		return e.structure(p, v, depth)
	case reflect.Map:
		return e.mapping(p, v, depth)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			e.buf = append(e.buf, '"')
			e.buf = base64.StdEncoding.AppendEncode(e.buf, v.Bytes())
			e.buf = append(e.buf, '"')
			return nil
		}
		return e.list(p, v, depth)
	case reflect.Array:
		return e.list(p, v, depth)
	case reflect.String:
		return e.text(v.String())
	case reflect.Bool:
		e.buf = strconv.AppendBool(e.buf, v.Bool())
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n := v.Int()
		e.buf = strconv.AppendInt(e.buf, n, 10)
		return e.exact(n >= -maxInteger && n <= maxInteger)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := v.Uint()
		e.buf = strconv.AppendUint(e.buf, n, 10)
		return e.exact(n <= maxInteger)
	case reflect.Float32, reflect.Float64:
		return e.marshal(v.Float())
	}
	return fmt.Errorf("JSON has no %s", v.Type())
}

func (e *encoder) exact(ok bool) error {
	if !ok {
		return fail("an integer beyond ±(2^53-1)")
	}
	return nil
}

// marshal writes what encoding/json makes of v, which may be anything.
func (e *encoder) marshal(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s := scanner{data: text, depth: e.depth, maxDepth: maxEncodeDepth}
	if err := s.text(anyPlan, reflect.Value{}); err != nil {
		return err
	}
	if text, err = jcs.Transform(text); err != nil {
		return err
	}
	e.buf = append(e.buf, text...)
	return nil
}

func (e *encoder) enter(bracket byte) error {
	if e.depth++; e.depth > maxEncodeDepth {
		return fail("nested deeper than the limit of %d", maxEncodeDepth)
	}
	e.buf = append(e.buf, bracket)
	return nil
}

func (e *encoder) leave(bracket byte) error {
	e.depth--
	e.buf = append(e.buf, bracket)
	return nil
}

func (e *encoder) text(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("a string is not valid UTF-8: %s", strconv.QuoteToASCII(s[:min(len(s), 64)]))
	}
	e.buf = appendString(e.buf, s)
	return nil
}

// appendString appends s, which is valid UTF-8, as RFC 8785 spells it.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for {
		n := plain(s)
		b = append(b, s[:n]...)
		if n == len(s) {
			return append(b, '"')
		}
		if at := strings.IndexByte("\"\\\b\f\n\r\t", s[n]); at >= 0 {
			b = append(b, '\\', `"\bfnrt`[at])
		} else {
			b = fmt.Appendf(b, `\u%04x`, s[n])
		}
		s = s[n+1:]
	}
}

// compareKeys orders keys, which are valid UTF-8, by their UTF-16 units. Bytes
// order them alike but for characters that UTF-16 spells with surrogates (first
// byte from 0xf0): these come before U+E000 to U+FFFF (first byte 0xee or 0xef).
func compareKeys(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i < len(a) && i < len(b) && min(a[i], b[i]) >= 0xee && (a[i] < 0xf0) != (b[i] < 0xf0) {
		return strings.Compare(b[i:], a[i:])
	}
	return strings.Compare(a[i:], b[i:])
}

func (e *encoder) structure(p *plan, v reflect.Value, depth int) error {
	if err := e.enter('{'); err != nil {
		return err
	}
	last := ""
	for i := range p.fields {
		f := &p.fields[i]
		fv, err := v.FieldByIndexErr(f.index)
		if err != nil { // inside a nil embedded pointer
			continue
		}
		if f.omitEmpty && isEmpty(fv) || f.omitZero && fv.IsZero() {
			continue
		}
		if last == f.key {
			return within(f.name, fail("duplicate key"))
		}
		if last != "" {
			e.buf = append(e.buf, ',')
		}
		last = f.key
		e.buf = append(e.buf, f.key...)
		if err := e.planned(f.plan, fv, depth+1); err != nil {
			return within(f.name, err)
		}
	}
	return e.leave('}')
}

// isEmpty is what encoding/json means by omitempty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() { //nolint:exhaustive // of the other kinds zero is empty
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

func (e *encoder) mapping(p *plan, v reflect.Value, depth int) error {
	if v.Type().Key().Kind() != reflect.String {
		return errors.New("a map's keys must be strings")
	}
	if err := e.enter('{'); err != nil {
		return err
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return compareKeys(x.String(), y.String()) })
	for i, k := range keys {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		if err := e.text(k.String()); err != nil {
			return err
		}
		e.buf = append(e.buf, ':')
		if err := e.planned(p.elem, v.MapIndex(k), depth+1); err != nil {
			return within(k.String(), err)
		}
	}
	return e.leave('}')
}

func (e *encoder) list(p *plan, v reflect.Value, depth int) error {
	if err := e.enter('['); err != nil {
		return err
	}
	for i := range v.Len() {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		if err := e.planned(p.elem, v.Index(i), depth+1); err != nil {
			return within(strconv.Itoa(i), err)
		}
	}
	return e.leave(']')
}
