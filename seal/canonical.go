package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
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
func Canonical(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := encode(&b, reflect.ValueOf(v), 0); err != nil {
		return nil, fmt.Errorf("encode canonical JSON: %w", err)
	}
	// This pass refuses what came through raw JSON and MarshalJSON methods.
	if err := check(b.Bytes(), nil, Limits{Bytes: math.MaxInt, Depth: maxEncodeDepth}); err != nil {
		return nil, fmt.Errorf("encode canonical JSON: %w", err)
	}
	out, err := jcs.Transform(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("encode canonical JSON: %w", err)
	}
	return out, nil
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

// encode writes v as JSON, in no particular order of keys.
func encode(b *bytes.Buffer, v reflect.Value, depth int) error {
	if depth > maxEncodeDepth {
		return fmt.Errorf("nested deeper than %d", maxEncodeDepth)
	}
	if !v.IsValid() {
		b.WriteString("null")
		return nil
	}
	if k := v.Kind(); k == reflect.Pointer || k == reflect.Interface {
		if v.IsNil() {
			b.WriteString("null")
			return nil
		}
	}
	if m, ok := selfEncoding(v); ok {
		raw, err := json.Marshal(m)
		if err != nil {
			return err
		}
		b.Write(raw)
		return nil
	}
	switch v.Kind() { //nolint:exhaustive // the other kinds have no JSON
	case reflect.Pointer, reflect.Interface:
		return encode(b, v.Elem(), depth+1)
	case reflect.Struct:
		return encodeStruct(b, v, depth)
	case reflect.Map:
		return encodeMap(b, v, depth)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			raw, err := json.Marshal(append([]byte{}, v.Bytes()...))
			b.Write(raw)
			return err
		}
		return encodeList(b, v, depth)
	case reflect.Array:
		return encodeList(b, v, depth)
	case reflect.String:
		return encodeString(b, v.String())
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
		return nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		b.WriteString(strconv.FormatUint(v.Uint(), 10))
		return nil
	case reflect.Float32, reflect.Float64:
		raw, err := json.Marshal(v.Float())
		b.Write(raw)
		return err
	}
	return fmt.Errorf("JSON has no %s", v.Type())
}

// selfEncoding returns the value that encoding/json would call a method of.
func selfEncoding(v reflect.Value) (any, bool) {
	if v.Kind() != reflect.Pointer && v.CanAddr() {
		v = v.Addr()
	}
	if !v.CanInterface() {
		return nil, false
	}
	switch v.Interface().(type) {
	case json.Marshaler, encoding.TextMarshaler:
		return v.Interface(), true
	}
	return nil, false
}

func encodeString(b *bytes.Buffer, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("a string is not valid UTF-8: %s", strconv.QuoteToASCII(s[:min(len(s), 64)]))
	}
	raw, err := json.Marshal(s)
	b.Write(raw)
	return err
}

func encodeStruct(b *bytes.Buffer, v reflect.Value, depth int) error {
	b.WriteByte('{')
	first := true
	for _, f := range fieldsOf(v.Type()) {
		fv, err := v.FieldByIndexErr(f.index)
		if err != nil { // inside a nil embedded pointer
			continue
		}
		if f.omitEmpty && isEmpty(fv) || f.omitZero && fv.IsZero() {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		if err := encodeString(b, f.name); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := encode(b, fv, depth+1); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	b.WriteByte('}')
	return nil
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

func encodeMap(b *bytes.Buffer, v reflect.Value, depth int) error {
	if v.Type().Key().Kind() != reflect.String {
		return errors.New("a map's keys must be strings")
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return bytes.Compare([]byte(x.String()), []byte(y.String())) })
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encodeString(b, k.String()); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := encode(b, v.MapIndex(k), depth+1); err != nil {
			return fmt.Errorf("%s: %w", k.String(), err)
		}
	}
	b.WriteByte('}')
	return nil
}

func encodeList(b *bytes.Buffer, v reflect.Value, depth int) error {
	b.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encode(b, v.Index(i), depth+1); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	b.WriteByte(']')
	return nil
}
