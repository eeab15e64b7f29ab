package seal

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// scanner is one strict pass over a JSON text that is known to be valid UTF-8.
// path is the way from the root to the current value.
type scanner struct {
	data     []byte
	pos      int
	depth    int
	maxDepth int
	path     []string
	shapes   map[reflect.Type]shape
}

func (s *scanner) fail(format string, args ...any) error {
	var p strings.Builder
	for _, part := range s.path {
		p.WriteByte('/')
		p.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return &DecodeError{Pointer: p.String(), Reason: fmt.Sprintf(format, args...)}
}

func (s *scanner) push(part string) { s.path = append(s.path, part) }
func (s *scanner) pop()             { s.path = s.path[:len(s.path)-1] }

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

// value reads one value that must fit t; nil fits every value.
func (s *scanner) value(t reflect.Type) error {
	sh := s.shapeOf(t)
	switch c := s.peek(); {
	case c == '{':
		if sh.kind != anyShape && sh.kind != structShape && sh.kind != mapShape {
			return s.fail("an object where %s is due", sh.kind)
		}
		return s.object(sh)
	case c == '[':
		if sh.kind != anyShape && sh.kind != listShape {
			return s.fail("an array where %s is due", sh.kind)
		}
		return s.array(sh)
	case c == '"':
		if sh.kind != anyShape && sh.kind != stringShape {
			return s.fail("a string where %s is due", sh.kind)
		}
		_, err := s.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number(sh)
	case c == 't' || c == 'f' || c == 'n':
		return s.word(sh)
	case s.pos == len(s.data):
		return s.fail("the text ends where a value is due")
	default:
		return s.fail("unexpected character %q", rune(c))
	}
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > s.maxDepth {
		return s.fail("nested deeper than the limit of %d", s.maxDepth)
	}
	s.pos++
	return nil
}

func (s *scanner) object(sh shape) error {
	if err := s.enter(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for first := true; ; first = false {
		c := s.peek()
		if c == '}' && first {
			break
		}
		if !first {
			if c == '}' {
				break
			}
			if c != ',' {
				return s.fail("a comma or } is due in an object")
			}
			s.pos++
			c = s.peek()
		}
		if c != '"' {
			return s.fail("a key is due in an object")
		}
		key, err := s.str()
		if err != nil {
			return err
		}
		s.push(key)
		if seen[key] {
			return s.fail("duplicate key")
		}
		seen[key] = true
		elem := sh.elem
		if sh.kind == structShape {
			field, ok := sh.fields[key]
			if !ok {
				return s.fail("unknown key")
			}
			elem = field
		}
		if s.peek() != ':' {
			return s.fail("a colon is due after a key")
		}
		s.pos++
		if err := s.value(elem); err != nil {
			return err
		}
		s.pop()
	}
	s.pos++
	s.depth--
	return nil
}

func (s *scanner) array(sh shape) error {
	if err := s.enter(); err != nil {
		return err
	}
	n := 0
	for ; ; n++ {
		c := s.peek()
		if c == ']' {
			break
		}
		if n > 0 {
			if c != ',' {
				return s.fail("a comma or ] is due in an array")
			}
			s.pos++
		}
		s.push(strconv.Itoa(n))
		if err := s.value(sh.elem); err != nil {
			return err
		}
		s.pop()
	}
	if sh.length >= 0 && n != sh.length {
		return s.fail("%d elements where %d are due", n, sh.length)
	}
	s.pos++
	s.depth--
	return nil
}

// str reads a string and returns it unescaped.
func (s *scanner) str() (string, error) {
	start := s.pos
	s.pos++
	escaped := false
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			text := s.data[start:s.pos]
			if !escaped {
				return string(text[1 : len(text)-1]), nil
			}
			var out string
			if err := json.Unmarshal(text, &out); err != nil {
				return "", s.fail("bad string: %v", err)
			}
			return out, nil
		case c < 0x20:
			return "", s.fail("a control character in a string")
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return "", err
			}
		default:
			s.pos++
		}
	}
	return "", s.fail("the text ends inside a string")
}

// escape reads one escape sequence; both halves of a surrogate pair are one.
func (s *scanner) escape() error {
	rest := s.data[s.pos:]
	if len(rest) < 2 {
		return s.fail("the text ends inside a string")
	}
	if rest[1] != 'u' {
		if !strings.ContainsRune(`"\/bfnrt`, rune(rest[1])) {
			return s.fail("unknown escape sequence")
		}
		s.pos += 2
		return nil
	}
	unit, ok := hexUnit(rest)
	if !ok {
		return s.fail("bad \\u escape sequence")
	}
	s.pos += 6
	if unit < 0xd800 || unit > 0xdfff {
		return nil
	}
	low, ok := hexUnit(rest[6:])
	if unit > 0xdbff || !ok || low < 0xdc00 || low > 0xdfff {
		return s.fail("half a surrogate pair")
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

func (s *scanner) number(sh shape) error {
	start := s.pos
	if s.at("-") {
		s.pos++
	}
	if s.at("0") {
		s.pos++
	} else if !s.digits() {
		return s.fail("bad number")
	}
	integer := true
	if s.at(".") {
		integer = false
		s.pos++
		if !s.digits() {
			return s.fail("bad number")
		}
	}
	if s.at("eE") {
		integer = false
		s.pos++
		if s.at("+-") {
			s.pos++
		}
		if !s.digits() {
			return s.fail("bad number")
		}
	}
	text := string(s.data[start:s.pos])
	switch sh.kind {
	case anyShape, floatShape:
		if !integer {
			if f, err := strconv.ParseFloat(text, 64); err != nil || f > maxInteger || f < -maxInteger {
				return s.fail("a number beyond ±(2^53-1)")
			}
			return nil
		}
	case intShape:
		if !integer {
			return s.fail("a number with a fraction or exponent where an integer is due")
		}
	case structShape, mapShape, listShape, stringShape, boolShape:
		return s.fail("a number where %s is due", sh.kind)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > maxInteger || n < -maxInteger {
		return s.fail("an integer beyond ±(2^53-1)")
	}
	if text == "-0" {
		return s.fail("a negative zero")
	}
	if sh.kind == intShape && (n < sh.min || n > sh.max) {
		return s.fail("an integer outside %d to %d", sh.min, sh.max)
	}
	return nil
}

func (s *scanner) word(sh shape) error {
	for _, w := range []string{"true", "false", "null"} {
		if !strings.HasPrefix(string(s.data[s.pos:min(len(s.data), s.pos+len(w))]), w) {
			continue
		}
		s.pos += len(w)
		switch {
		case sh.kind == anyShape, sh.kind == boolShape && w != "null":
			return nil
		case w == "null":
			return s.fail("null where %s is due", sh.kind)
		default:
			return s.fail("%s where %s is due", w, sh.kind)
		}
	}
	return s.fail("unexpected word")
}
