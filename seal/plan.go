package seal

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// shape is what a Go type looks like in JSON.
type shape uint8

const (
	anyShape shape = iota // interface, raw message, or a type that decodes itself
	structShape
	mapShape
	listShape
	stringShape
	intShape
	floatShape
	boolShape
)

// String names the shape with its article, for messages.
func (s shape) String() string {
	switch s {
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

// plan says how a Go type is read and written. A plan does not change once made.
type plan struct {
	typ   reflect.Type
	shape shape
	// direct: the scanner sets such values itself. All others it checks and
	// leaves to encoding/json: types with methods of their own, bytes in base64,
	// floating point numbers, interfaces, and what no type here has.
	direct bool
	// byMethod and byPointerMethod: encoding/json would call a method of the
	// type, or of a pointer to it, to write it.
	byMethod, byPointerMethod bool

	elem     *plan          // of pointers, maps and lists
	fields   []field        // of structs, in the order of their keys in canonical JSON
	named    map[string]int // of structs: the place in fields of each key
	length   int            // of arrays; -1: any
	min, max int64          // of integers
}

// field is one key of a struct. index leads to it through embedded structs.
type field struct {
	name           string
	key            string // the name in canonical JSON, with a colon
	typ            reflect.Type
	plan           *plan
	index          []int
	omitEmpty      bool
	omitZero       bool
	throughPointer bool // the way to it leads through an embedded pointer
}

// anyPlan accepts every value.
var anyPlan = &plan{length: -1}

// plans keeps what was made: a reflect.Type's *plan.
var plans sync.Map

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	made := map[reflect.Type]*plan{}
	p := makePlan(t, made)
	for t, p := range made {
		plans.Store(t, p)
	}
	return p
}

// makePlan makes the plan of t and of what it is made of; made has those that
// are finished or, where a type holds itself, being made.
func makePlan(t reflect.Type, made map[reflect.Type]*plan) *plan {
	if p, ok := made[t]; ok {
		return p
	}
	p := &plan{typ: t, length: -1}
	made[t] = p
	p.fill(made)
	pt := reflect.PointerTo(t)
	switch {
	case pt.Implements(reflect.TypeFor[json.Unmarshaler]()):
		p.shape, p.direct = anyShape, false
	case pt.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		p.shape, p.direct = stringShape, false
	}
	encodes := func(t reflect.Type) bool {
		return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
	}
	p.byMethod, p.byPointerMethod = encodes(t), t.Kind() != reflect.Pointer && encodes(pt)
	return p
}

// fill sets what follows from the kind of the type.
func (p *plan) fill(made map[reflect.Type]*plan) {
	t := p.typ
	switch t.Kind() { //nolint:exhaustive // the other kinds stay anyShape
	case reflect.Pointer:
		p.elem = makePlan(t.Elem(), made)
	case reflect.Struct:
		p.shape, p.direct, p.named = structShape, true, map[string]int{}
		p.fields = fieldsOf(t)
		slices.SortStableFunc(p.fields, func(a, b field) int { return compareKeys(a.name, b.name) })
		for i := range p.fields {
			f := &p.fields[i]
			f.plan = makePlan(f.typ, made)
			_, twice := p.named[f.name]
			p.named[f.name] = i
			p.direct = p.direct && !twice && !f.throughPointer
		}
	case reflect.Map:
		p.shape, p.elem = mapShape, makePlan(t.Elem(), made)
		p.direct = t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			p.shape = stringShape
			return
		}
		p.shape, p.direct, p.elem = listShape, true, makePlan(t.Elem(), made)
	case reflect.Array:
		p.shape, p.direct, p.elem, p.length = listShape, true, makePlan(t.Elem(), made), t.Len()
	case reflect.String:
		p.shape, p.direct = stringShape, true
	case reflect.Bool:
		p.shape, p.direct = boolShape, true
	case reflect.Float32, reflect.Float64:
		p.shape = floatShape
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.shape, p.direct = intShape, true
		p.min, p.max = -maxInteger, maxInteger
		if t.Bits() < 64 {
			p.min, p.max = -1<<(t.Bits()-1), 1<<(t.Bits()-1)-1
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.shape, p.direct = intShape, true
		p.max = maxInteger
		if t.Bits() < 64 {
			p.max = 1<<t.Bits() - 1
		}
	}
}

// pointed returns the plan of what p points to; p itself if it does not point.
func (p *plan) pointed() *plan {
	for p.typ != nil && p.typ.Kind() == reflect.Pointer {
		p = p.elem
	}
	return p
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
				sub.throughPointer = sub.throughPointer || inner != f.Type
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
			name: name, key: string(appendString(nil, name)) + ":", typ: f.Type, index: []int{i},
			omitEmpty: strings.Contains(opts, ",omitempty,"),
			omitZero:  strings.Contains(opts, ",omitzero,"),
		})
	}
	return out
}
