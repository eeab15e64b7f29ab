package ignore

// Glob is a compiled pattern of git's wildmatch:
//
//	?        any byte
//	*        any number of bytes
//	[...]    one byte of a set: ranges, '!' or '^' for all others, [:alpha:] and
//	         the other eleven ASCII classes, '\' for the next byte literally,
//	         ']' first for itself
//	\x       the byte x
//
// In path mode none of these matches '/', and "**" after the start or a '/', and
// before the end or a '/', stands for any number of whole components; any other
// run of stars is one star.
//
// Matching simulates all possibilities side by side: its cost is at most the
// length of the pattern times the length of the text.
type Glob struct {
	tokens []token
	sets   []set
	min    int // fewest bytes that can match
}

type tokenKind uint8

const (
	_            tokenKind = iota
	literal                // exactly byte c
	oneOf                  // a byte of sets[set]
	star                   // any number of bytes, none of them '/' in path mode
	anything               // any number of bytes
	maySkip                // nothing; the next token may be skipped
	toSlash                // any bytes that end in '/'
	anyByte                // one byte, in path mode not '/'
	anyByteSlash           // one byte, whatever it is
)

type token struct {
	kind  tokenKind
	c     byte
	slash bool // star only: may pass '/'
	set   int
}

// set is a set of bytes.
type set [4]uint64

func (s *set) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *set) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }
func (s *set) remove(c byte)   { s[c>>6] &^= 1 << (c & 63) }
func (s *set) invert() {
	for i := range s {
		s[i] = ^s[i]
	}
}

// Compile returns the compiled pattern, or nil if it is malformed in a way that
// never matches: an open set, an unknown class, a backslash at the end.
func Compile(p string, path bool) *Glob {
	g := new(Glob)
	for i := 0; i < len(p); {
		switch p[i] {
		case '*':
			i = g.stars(p, i, path)
		case '?':
			kind := anyByteSlash
			if path {
				kind = anyByte
			}
			g.one(token{kind: kind})
			i++
		case '[':
			s, next := parseSet(p, i+1)
			if next < 0 {
				return nil
			}
			if path {
				s.remove('/')
			}
			g.sets = append(g.sets, s)
			g.one(token{kind: oneOf, set: len(g.sets) - 1})
			i = next
		case '\\':
			i++
			if i == len(p) {
				return nil
			}
			fallthrough
		default:
			g.one(token{kind: literal, c: p[i]})
			i++
		}
	}
	return g
}

func (g *Glob) one(t token) {
	g.tokens = append(g.tokens, t)
	g.min++
}

// stars adds the run of stars that begins at p[i] and returns what follows it.
func (g *Glob) stars(p string, i int, path bool) int {
	start := i
	for i < len(p) && p[i] == '*' {
		i++
	}
	rest := p[i:]
	whole := i-start >= 2 && (start == 0 || p[start-1] == '/') &&
		(rest == "" || rest[0] == '/' || len(rest) >= 2 && rest[:2] == `\/`)
	switch {
	case !path:
		g.tokens = append(g.tokens, token{kind: star, slash: true})
	case whole && rest != "" && rest[0] == '/':
		g.tokens = append(g.tokens, token{kind: maySkip}, token{kind: toSlash})
		i++
	case whole:
		g.tokens = append(g.tokens, token{kind: anything, slash: true})
	default:
		g.tokens = append(g.tokens, token{kind: star})
	}
	return i
}

// parseSet parses the set whose '[' is at p[i-1]; next is the index after its
// ']', or -1.
func parseSet(p string, i int) (s set, next int) {
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	var prev int // the byte that a '-' would begin a range with, 0 for none
	for first := true; ; first = false {
		if i >= len(p) {
			return s, -1
		}
		c := p[i]
		switch {
		case c == ']' && !first:
			if negated {
				s.invert()
			}
			return s, i + 1
		case c == '\\':
			i++
			if i == len(p) {
				return s, -1
			}
			s.add(p[i])
			prev = int(p[i])
			i++
		case c == '-' && prev != 0 && i+1 < len(p) && p[i+1] != ']':
			i++
			if p[i] == '\\' {
				i++
				if i == len(p) {
					return s, -1
				}
			}
			for b := prev; b <= int(p[i]); b++ {
				s.add(byte(b))
			}
			prev = 0
			i++
		case c == '[' && i+1 < len(p) && p[i+1] == ':':
			name, after, ok := className(p, i+2)
			switch {
			case after < 0:
				return s, -1
			case !ok: // no ":]": an ordinary '['
				s.add('[')
				prev = '['
				i++
				continue
			}
			if !s.addClass(name) {
				return s, -1
			}
			prev = 0
			i = after
		default:
			s.add(c)
			prev = int(c)
			i++
		}
	}
}

// className reads up to the next ']'. after is -1 if there is none; ok says that
// a ':' stands before it.
func className(p string, i int) (name string, after int, ok bool) {
	for j := i; j < len(p); j++ {
		if p[j] == ']' {
			if j == i || p[j-1] != ':' {
				return "", j, false
			}
			return p[i : j-1], j + 1, true
		}
	}
	return "", -1, false
}

// addClass adds the bytes of an ASCII class; false for a name that is none. As in
// git, space is blank, tab, line feed and carriage return.
func (s *set) addClass(name string) bool {
	var in func(c byte) bool
	alpha := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	digit := func(c byte) bool { return c >= '0' && c <= '9' }
	space := func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
	printable := func(c byte) bool { return c >= 0x20 && c <= 0x7e }
	switch name {
	case "alnum":
		in = func(c byte) bool { return alpha(c) || digit(c) }
	case "alpha":
		in = alpha
	case "blank":
		in = func(c byte) bool { return c == ' ' || c == '\t' }
	case "cntrl":
		in = func(c byte) bool { return c < 0x20 || c == 0x7f }
	case "digit":
		in = digit
	case "graph":
		in = func(c byte) bool { return printable(c) && !space(c) }
	case "lower":
		in = func(c byte) bool { return c >= 'a' && c <= 'z' }
	case "print":
		in = printable
	case "punct":
		in = func(c byte) bool { return printable(c) && !space(c) && !alpha(c) && !digit(c) }
	case "space":
		in = space
	case "upper":
		in = func(c byte) bool { return c >= 'A' && c <= 'Z' }
	case "xdigit":
		in = func(c byte) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
	default:
		return false
	}
	for c := range 256 {
		if in(byte(c)) {
			s.add(byte(c))
		}
	}
	return true
}

// Match says whether all of text matches. It answers false when b is spent.
func (g *Glob) Match(text string, b *Budget) bool {
	if len(text) < g.min || !b.take(1+len(g.tokens)*len(text)/8) {
		return false
	}
	// now[i] says that tokens[i:] may have to match the rest of the text.
	var small [2][65]bool
	now, next := small[0][:], small[1][:]
	if n := len(g.tokens) + 1; n > len(now) {
		now, next = make([]bool, n), make([]bool, n)
	}
	now, next = now[:len(g.tokens)+1], next[:len(g.tokens)+1]
	now[0] = true
	g.skipEmpty(now)
	for i := range len(text) {
		clear(next)
		if !g.step(now, next, text[i]) {
			return false
		}
		g.skipEmpty(next)
		now, next = next, now
	}
	return now[len(g.tokens)]
}

// skipEmpty passes over the tokens that may match nothing.
func (g *Glob) skipEmpty(at []bool) {
	for i, t := range g.tokens {
		if !at[i] {
			continue
		}
		switch t.kind {
		case star, anything:
			at[i+1] = true
		case maySkip:
			at[i+1], at[i+2] = true, true
		case literal, oneOf, toSlash, anyByte, anyByteSlash:
		}
	}
}

// step consumes c; false when nothing is left that could match.
func (g *Glob) step(now, next []bool, c byte) (alive bool) {
	for i, t := range g.tokens {
		if !now[i] {
			continue
		}
		stay, pass := false, false
		switch t.kind {
		case literal:
			pass = c == t.c
		case oneOf:
			pass = g.sets[t.set].has(c)
		case anyByteSlash:
			pass = true
		case anyByte:
			pass = c != '/'
		case star:
			stay = t.slash || c != '/'
		case anything:
			stay = true
		case toSlash:
			stay, pass = true, c == '/'
		case maySkip:
		}
		next[i] = next[i] || stay
		next[i+1] = next[i+1] || pass
		alive = alive || stay || pass
	}
	return alive
}
