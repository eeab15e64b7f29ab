package seal

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// shapeKind is what a Go type looks like in JSON.
type shapeKind uint8

const (
	anyShape shapeKind = iota // interface, raw message, or a type that decodes itself
	structShape
	mapShape
	listShape
	stringShape
	intShape
	floatShape
	boolShape
)

// String names the kind with its article, for messages.
func (k shapeKind) String() string {
	switch k {
	case anyShape:
		return "any value"
	case structShape, mapShape:
		return "an object"
	case listShape:
		return "an array"
	case stringShape:
		return "a string"
	case intShape:
		return "an integer"
	case floatShape:
		return "a number"
	case boolShape:
		return "true or false"
	}
	return "nothing"
}

type shape struct {
	kind     shapeKind
	elem     reflect.Type // of maps and lists
	fields   map[string]reflect.Type
	length   int // of arrays; -1: any
	min, max int64
}

func (s *scanner) shapeOf(t reflect.Type) shape {
	if t == nil {
		return shape{length: -1}
	}
	sh, ok := s.shapes[t]
	if !ok {
		sh = shapeOf(t)
		s.shapes[t] = sh
	}
	return sh
}

func shapeOf(t reflect.Type) shape {
	sh := shape{length: -1}
	pt := reflect.PointerTo(t)
	switch {
	case pt.Implements(reflect.TypeFor[json.Unmarshaler]()):
		return sh
	case pt.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		sh.kind = stringShape
		return sh
	}
	switch t.Kind() { //nolint:exhaustive // the other kinds stay anyShape
	case reflect.Pointer:
		return shapeOf(t.Elem())
	case reflect.Struct:
		sh.kind = structShape
		sh.fields = map[string]reflect.Type{}
		for _, f := range fieldsOf(t) {
			sh.fields[f.name] = f.typ
		}
	case reflect.Map:
		sh.kind, sh.elem = mapShape, t.Elem()
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			sh.kind = stringShape
			return sh
		}
		sh.kind, sh.elem = listShape, t.Elem()
	case reflect.Array:
		sh.kind, sh.elem, sh.length = listShape, t.Elem(), t.Len()
	case reflect.String:
		sh.kind = stringShape
	case reflect.Bool:
		sh.kind = boolShape
	case reflect.Float32, reflect.Float64:
		sh.kind = floatShape
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		sh.kind = intShape
		sh.min, sh.max = -maxInteger, maxInteger
		if t.Bits() < 64 {
			sh.min, sh.max = -1<<(t.Bits()-1), 1<<(t.Bits()-1)-1
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		sh.kind = intShape
		sh.max = maxInteger
		if t.Bits() < 64 {
			sh.max = 1<<t.Bits() - 1
		}
	}
	return sh
}

// field is one key of a struct. index leads to it through embedded structs.
type field struct {
	name      string
	typ       reflect.Type
	index     []int
	omitEmpty bool
	omitZero  bool
}

// fieldsOf lists the keys that encoding/json knows for the struct type t.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, opts, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if f.Anonymous && name == "" && inner.Kind() == reflect.Struct {
			for _, sub := range fieldsOf(inner) {
				sub.index = append([]int{i}, sub.index...)
				out = append(out, sub)
			}
			continue
		}
		if tag == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		opts = "," + opts + ","
		out = append(out, field{
			name: name, typ: f.Type, index: []int{i},
			omitEmpty: strings.Contains(opts, ",omitempty,"),
			omitZero:  strings.Contains(opts, ",omitzero,"),
		})
	}
	return out
}
