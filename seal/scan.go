package seal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// scanner is one strict pass over a JSON text.
// It sets values as it goes; where it fails, what it set is thrown away. Its
// errors are DecodeErrors whose pointers grow on the way out.
type scanner struct {
	data     []byte
	pos      int
	depth    int
	maxDepth int
	refused  error // the first that encoding/json or a type's own method made

	// recent holds strings that were set, at the place that their length and last
	// bytes say: documents repeat digests and words, and then share them.
	recent [64]string
}

func fail(format string, args ...any) error {
	return &DecodeError{Reason: fmt.Sprintf(format, args...)}
}

// text reads the whole text, which must fit p, into dst; into nothing if dst is
// invalid.
func (s *scanner) text(p *plan, dst reflect.Value) error {
	if !utf8.Valid(s.data) {
		return fail("not valid UTF-8")
	}
	if err := s.value(p, dst); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.data) {
		return fail("data after the JSON value")
	}
	if s.refused != nil {
		whole := json.Unmarshal(s.data, reflect.New(p.typ).Interface()) // says in which field
		return fail("%v", cmp.Or(whole, s.refused))
	}
	return nil
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos == len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

// value reads one value that must fit p into dst; into nothing if dst is invalid.
func (s *scanner) value(p *plan, dst reflect.Value) error {
	if end := p.pointed(); end != p || !end.direct {
		return s.indirect(p, end, dst)
	}
	return s.fitting(p, dst)
}

// indirect reads a value that is behind pointers, of which end is the end, or
// left to encoding/json.
func (s *scanner) indirect(p, end *plan, dst reflect.Value) error {
	if end.direct {
		for ; p != end && dst.IsValid(); p = p.elem {
			dst.Set(reflect.New(p.elem.typ))
			dst = dst.Elem()
		}
		return s.fitting(end, dst)
	}
	s.space()
	start := s.pos
	if err := s.fitting(end, reflect.Value{}); err != nil {
		return err
	}
	if dst.IsValid() && s.refused == nil {
		s.refused = json.Unmarshal(s.data[start:s.pos], dst.Addr().Interface())
	}
	return nil
}

// fitting reads one value of p's shape. p is not the plan of a pointer.
func (s *scanner) fitting(p *plan, dst reflect.Value) error {
	switch c := s.peek(); {
	case c == '{':
		if p.shape != anyShape && p.shape != structShape && p.shape != mapShape {
			return fail("an object where %s is due", p.shape)
		}
		return s.object(p, dst)
	case c == '[':
		if p.shape != anyShape && p.shape != listShape {
			return fail("an array where %s is due", p.shape)
		}
		return s.array(p, dst)
	case c == '"':
		if p.shape != anyShape && p.shape != stringShape {
			return fail("a string where %s is due", p.shape)
		}
		text, err := s.str()
		if err == nil && dst.IsValid() {
			dst.SetString(s.shared(text))
		}
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number(p, dst)
	case c == 't' || c == 'f' || c == 'n':
		return s.word(p, dst)
	case s.pos == len(s.data):
		return fail("the text ends where a value is due")
	default:
		return fail("unexpected character %q", rune(c))
	}
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > s.maxDepth {
		return fail("nested deeper than the limit of %d", s.maxDepth)
	}
	s.pos++
	return nil
}

func (s *scanner) leave() {
	s.pos++
	s.depth--
}

func (s *scanner) object(p *plan, dst reflect.Value) error {
	if err := s.enter(); err != nil {
		return err
	}
	m := members{plan: p, dst: dst}
	if p.shape == mapShape && dst.IsValid() {
		dst.Set(reflect.MakeMap(p.typ))
	}
	for first := true; ; first = false {
		c := s.peek()
		if c == '}' {
			break
		}
		if !first {
			if c != ',' {
				return fail("a comma or } is due in an object")
			}
			s.pos++
			c = s.peek()
		}
		if c != '"' {
			return fail("a key is due in an object")
		}
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.member(&m, key); err != nil {
			return within(string(key), err)
		}
	}
	s.leave()
	return nil
}

// members is what is known of an object while it is read.
type members struct {
	plan *plan
	dst  reflect.Value
	next int             // of a struct: the field that follows the last one
	had  uint64          // of a struct: a bit for each of the first 64 fields that was there
	seen map[string]bool // the keys that neither had nor dst tells
}

// member reads what follows a key.
func (s *scanner) member(m *members, key []byte) error {
	if m.plan.shape == structShape {
		f, err := m.field(key)
		if err != nil {
			return err
		}
		if !m.dst.IsValid() {
			return s.afterColon(f.plan, reflect.Value{})
		}
		return s.afterColon(f.plan, m.dst.FieldByIndex(f.index))
	}
	if m.plan.shape == mapShape && m.dst.IsValid() {
		k := reflect.ValueOf(string(key)).Convert(m.plan.typ.Key())
		if m.dst.MapIndex(k).IsValid() {
			return fail("duplicate key")
		}
		elem := reflect.New(m.plan.elem.typ).Elem()
		if err := s.afterColon(m.plan.elem, elem); err != nil {
			return err
		}
		m.dst.SetMapIndex(k, elem)
		return nil
	}
	if !m.add(64, key) {
		return fail("duplicate key")
	}
	if m.plan.shape == mapShape {
		return s.afterColon(m.plan.elem, reflect.Value{})
	}
	return s.afterColon(anyPlan, reflect.Value{})
}

// add notes a key, of the field i, and reports whether it is new.
func (m *members) add(i int, key []byte) bool {
	if i < 64 {
		before := m.had
		m.had |= 1 << i
		return m.had != before
	}
	if m.seen[string(key)] {
		return false
	}
	if m.seen == nil {
		m.seen = map[string]bool{}
	}
	m.seen[string(key)] = true
	return true
}

// field finds the field of a key, which in canonical JSON is mostly the next.
func (m *members) field(key []byte) (*field, error) {
	fields := m.plan.fields
	i := m.next
	if i >= len(fields) || fields[i].name != string(key) {
		var ok bool
		if i, ok = m.plan.named[string(key)]; !ok {
			return nil, fail("unknown key")
		}
	}
	if !m.add(i, key) {
		return nil, fail("duplicate key")
	}
	m.next = i + 1
	return &fields[i], nil
}

func (s *scanner) afterColon(p *plan, dst reflect.Value) error {
	if s.peek() != ':' {
		return fail("a colon is due after a key")
	}
	s.pos++
	return s.value(p, dst)
}

func (s *scanner) array(p *plan, dst reflect.Value) error {
	if err := s.enter(); err != nil {
		return err
	}
	elem, slice := anyPlan, false
	if p.shape == listShape {
		elem = p.elem
		slice = dst.IsValid() && p.length < 0
	}
	n := 0
	for ; ; n++ {
		c := s.peek()
		if c == ']' {
			break
		}
		if n > 0 {
			if c != ',' {
				return fail("a comma or ] is due in an array")
			}
			s.pos++
		}
		var to reflect.Value
		if slice {
			dst.Grow(1)
			dst.SetLen(n + 1)
		}
		if dst.IsValid() && n < dst.Len() {
			to = dst.Index(n)
		}
		if err := s.value(elem, to); err != nil {
			return within(strconv.Itoa(n), err)
		}
	}
	if p.shape == listShape && p.length >= 0 && n != p.length {
		return fail("%d elements where %d are due", n, p.length)
	}
	if slice && n == 0 {
		dst.Set(reflect.MakeSlice(p.typ, 0, 0))
	}
	s.leave()
	return nil
}

// str reads a string and returns it unescaped.
func (s *scanner) str() ([]byte, error) {
	start := s.pos
	s.pos++
	escaped := false
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			text := s.data[start:s.pos]
			if !escaped {
				return text[1 : len(text)-1], nil
			}
			var out string
			if err := json.Unmarshal(text, &out); err != nil {
				return nil, fail("bad string: %v", err)
			}
			return []byte(out), nil
		case c < 0x20:
			return nil, fail("a control character in a string")
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, err
			}
		default:
			s.pos += plain(s.data[s.pos:])
		}
	}
	return nil, fail("the text ends inside a string")
}

// shared returns text as a string, if it can one that was set before.
func (s *scanner) shared(text []byte) string {
	place := len(text)
	for _, c := range text[max(0, len(text)-4):] {
		place = place*5 + int(c)
	}
	recent := &s.recent[place%len(s.recent)]
	if *recent != string(text) {
		*recent = string(text)
	}
	return *recent
}

// plain returns how many bytes b begins with that stand for themselves in a JSON
// string: no control characters, quotes or backslashes.
func plain[T []byte | string](b T) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080 // the lowest and the highest bit of each of 8 bytes
	i := 0
	for ; i+8 <= len(b); i += 8 {
		x := uint64(b[i]) | uint64(b[i+1])<<8 | uint64(b[i+2])<<16 | uint64(b[i+3])<<24 |
			uint64(b[i+4])<<32 | uint64(b[i+5])<<40 | uint64(b[i+6])<<48 | uint64(b[i+7])<<56
		quote, slash := x^ones*'"', x^ones*'\\' // zero where there is one
		// A subtraction sets the top bit of the lowest byte that is too small.
		if ((x-ones*0x20)&^x|(quote-ones)&^quote|(slash-ones)&^slash)&tops != 0 {
			break
		}
	}
	for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// escape reads one escape sequence; both halves of a surrogate pair are one.
func (s *scanner) escape() error {
	rest := s.data[s.pos:]
	if len(rest) < 2 {
		return fail("the text ends inside a string")
	}
	if rest[1] != 'u' {
		if !strings.ContainsRune(`"\/bfnrt`, rune(rest[1])) {
			return fail("unknown escape sequence")
		}
		s.pos += 2
		return nil
	}
	unit, ok := hexUnit(rest)
	if !ok {
		return fail("bad \\u escape sequence")
	}
	s.pos += 6
	if unit < 0xd800 || unit > 0xdfff {
		return nil
	}
	low, ok := hexUnit(rest[6:])
	if unit > 0xdbff || !ok || low < 0xdc00 || low > 0xdfff {
		return fail("half a surrogate pair")
	}
	s.pos += 6
	return nil
}

// hexUnit reads the \uXXXX that b begins with.
func hexUnit(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, c := range b[2:6] {
		if !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return 0, false
		}
	}
	u, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return u, err == nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) at(set string) bool {
	return s.pos < len(s.data) && strings.IndexByte(set, s.data[s.pos]) >= 0
}

func (s *scanner) number(p *plan, dst reflect.Value) error {
	start := s.pos
	if s.at("-") {
		s.pos++
	}
	if s.at("0") {
		s.pos++
	} else if !s.digits() {
		return fail("bad number")
	}
	integer := true
	if s.at(".") {
		integer = false
		s.pos++
		if !s.digits() {
			return fail("bad number")
		}
	}
	if s.at("eE") {
		integer = false
		s.pos++
		if s.at("+-") {
			s.pos++
		}
		if !s.digits() {
			return fail("bad number")
		}
	}
	text := s.data[start:s.pos]
	switch p.shape {
	case anyShape, floatShape:
		if !integer {
			if f, err := strconv.ParseFloat(string(text), 64); err != nil || f > maxInteger || f < -maxInteger {
				return fail("a number beyond ±(2^53-1)")
			}
			return nil
		}
	case intShape:
		if !integer {
			return fail("a number with a fraction or exponent where an integer is due")
		}
	case structShape, mapShape, listShape, stringShape, boolShape:
		return fail("a number where %s is due", p.shape)
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n > maxInteger || n < -maxInteger {
		return fail("an integer beyond ±(2^53-1)")
	}
	if string(text) == "-0" {
		return fail("a negative zero")
	}
	if p.shape == intShape && (n < p.min || n > p.max) {
		return fail("an integer outside %d to %d", p.min, p.max)
	}
	switch {
	case !dst.IsValid():
	case dst.CanInt():
		dst.SetInt(n)
	default:
		dst.SetUint(uint64(n))
	}
	return nil
}

func (s *scanner) word(p *plan, dst reflect.Value) error {
	for _, w := range []string{"true", "false", "null"} {
		if !bytes.HasPrefix(s.data[s.pos:], []byte(w)) {
			continue
		}
		s.pos += len(w)
		switch {
		case p.shape == anyShape, p.shape == boolShape && w != "null":
			if dst.IsValid() {
				dst.SetBool(w == "true")
			}
			return nil
		case w == "null":
			return fail("null where %s is due", p.shape)
		default:
			return fail("%s where %s is due", w, p.shape)
		}
	}
	return fail("unexpected word")
}
