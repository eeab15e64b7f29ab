package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"
)

type inner struct {
	N  int32           `json:"n"`
	On bool            `json:"on"`
	M  map[string]int  `json:"m,omitempty"`
	R  json.RawMessage `json:"r,omitempty"`
}

type base struct {
	Kind string `json:"kind"`
}

type doc struct {
	base
	Name  string   `json:"name"`
	List  []inner  `json:"list"`
	Opt   *inner   `json:"opt,omitempty"`
	Any   any      `json:"any,omitempty"`
	U     uint16   `json:"u"`
	F     float64  `json:"f"`
	B     []byte   `json:"b"`
	A     [2]int64 `json:"a"`
	Local string   `json:"-"`
}

const goodDoc = `{"kind":"k","name":"a\u00e9\ud83d\ude00","list":[{"n":1,"on":true,"m":{"x":1}}],"opt":{"n":-2},"any":{"z":[1,null]},"u":7,"f":1.5,"b":"AQ==","a":[1,2]}`

func TestDecodeReadsEveryKindOfField(t *testing.T) {
	var got doc
	if err := Decode([]byte(" "+goodDoc+"\n"), &got, Limits{}); err != nil {
		t.Fatal(err)
	}
	want := doc{
		base: base{Kind: "k"}, Name: "aé😀", List: []inner{{N: 1, On: true, M: map[string]int{"x": 1}}}, Opt: &inner{N: -2},
		Any: map[string]any{"z": []any{1.0, nil}}, U: 7, F: 1.5, B: []byte{1}, A: [2]int64{1, 2},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(doc{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := []struct {
		name, in, pointer, reason string
	}{
		{"duplicate key", `{"name":"a","name":"b"}`, "/name", "duplicate key"},
		{"duplicate key spelled otherwise", `{"name":"a","n\u0061me":"b"}`, "/name", "duplicate key"},
		{"duplicate key deep in a free value", `{"any":[{"x":{"y":1,"y":2}}]}`, "/any/0/x/y", "duplicate key"},
		{"duplicate key in a map", `{"list":[{"m":{"a":1,"a":1}}]}`, "/list/0/m/a", "duplicate key"},
		{"duplicate key in raw JSON", `{"list":[{"r":{"a":1,"a":1}}]}`, "/list/0/r/a", "duplicate key"},
		{"unknown key", `{"list":[{},{"nn":1}]}`, "/list/1/nn", "unknown key"},
		{"key in another letter case", `{"Name":"a"}`, "/Name", "unknown key"},
		{"field hidden from JSON", `{"Local":"a"}`, "/Local", "unknown key"},
		{"pointer characters escaped", `{"a/b~c":1}`, "/a~1b~0c", "unknown key"},
		{"trailing data", `{} {}`, "", "data after the JSON value"},
		{"trailing comma", `{"name":"a",}`, "", "a key is due"},
		{"trailing comma in an array", `{"list":[{},]}`, "/list/1", "unexpected character"},
		{"invalid UTF-8", "{\"name\":\"\xff\"}", "", "not valid UTF-8"},
		{"byte order mark", "\ufeff{}", "", "unexpected character"},
		{"half a surrogate pair", `{"name":"\ud800"}`, "/name", "half a surrogate pair"},
		{"low surrogate alone", `{"name":"\udc00\ud800"}`, "/name", "half a surrogate pair"},
		{"bad escape", `{"name":"\x"}`, "/name", "unknown escape"},
		{"bad unicode escape", `{"name":"\u12g4"}`, "/name", `bad \u escape`},
		{"control character", "{\"name\":\"a\nb\"}", "/name", "control character"},
		{"null for a string", `{"name":null}`, "/name", "null where a string is due"},
		{"null for a list", `{"list":null}`, "/list", "null where an array is due"},
		{"null for a pointer", `{"opt":null}`, "/opt", "null where an object is due"},
		{"fraction", `{"u":1.0}`, "/u", "fraction"},
		{"exponent", `{"u":1e1}`, "/u", "exponent"},
		{"negative for unsigned", `{"u":-1}`, "/u", "outside 0 to 65535"},
		{"beyond the type", `{"list":[{"n":2147483648}]}`, "/list/0/n", "outside"},
		{"beyond 2^53", `{"a":[9007199254740992,0]}`, "/a/0", "beyond"},
		{"beyond 2^53 in a free value", `{"any":9007199254740993}`, "/any", "beyond"},
		{"beyond 2^53 by exponent", `{"f":1e300}`, "/f", "beyond"},
		{"leading zero", `{"u":01}`, "", "a comma or } is due"},
		{"negative zero", `{"u":-0}`, "/u", "negative zero"},
		{"plus sign", `{"u":+1}`, "/u", "unexpected character"},
		{"not a number", `{"f":NaN}`, "/f", "unexpected character"},
		{"bare minus", `{"u":-}`, "/u", "bad number"},
		{"array too short", `{"a":[1]}`, "/a", "1 elements where 2 are due"},
		{"array too long", `{"a":[1,2,3]}`, "/a", "3 elements where 2 are due"},
		{"string for a number", `{"u":"1"}`, "/u", "a string where an integer is due"},
		{"number for a string", `{"name":1}`, "/name", "a number where a string is due"},
		{"true for a number", `{"u":true}`, "/u", "true where an integer is due"},
		{"object for an array", `{"list":{}}`, "/list", "an object where an array is due"},
		{"array for the root", `[]`, "", "an array where an object is due"},
		{"bad base64", `{"b":"*"}`, "", "base64"},
		{"empty", ``, "", "the text ends"},
		{"only space", " \n", "", "the text ends"},
		{"cut short", `{"name":"a`, "", "the text ends"},
		{"misspelt word", `{"any":nul}`, "/any", "unexpected word"},
		{"comment", `{/**/}`, "", "a key is due"},
		{"single quotes", `{'name':'a'}`, "", "a key is due"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := doc{Name: "untouched"}
			err := Decode([]byte(tt.in), &got, Limits{})
			var de *DecodeError
			if !errors.As(err, &de) {
				t.Fatalf("Decode(%s) = %v, want a *DecodeError", tt.in, err)
			}
			if tt.name != "cut short" && de.Pointer != tt.pointer {
				t.Errorf("pointer %q, want %q", de.Pointer, tt.pointer)
			}
			if !strings.Contains(de.Reason, tt.reason) {
				t.Errorf("reason %q, want %q in it", de.Reason, tt.reason)
			}
			if diff := cmp.Diff(doc{Name: "untouched"}, got, cmp.AllowUnexported(doc{})); diff != "" {
				t.Errorf("the target changed:\n%s", diff)
			}
		})
	}
}

// odd has fields that Decode checks and leaves to encoding/json.
type odd struct {
	*Part
	Keys  map[int]string        `json:"keys"`
	Time  time.Time             `json:"time"`
	Self  own                   `json:"self"`
	Deep  **string              `json:"deep"`
	Names map[name][]own        `json:"names"`
	Next  *odd                  `json:"next,omitempty"`
	Free  *json.RawMessage      `json:"free,omitempty"`
	Float *float32              `json:"float,omitempty"`
	Each  map[string]*[2]string `json:"each,omitempty"`
}

type Part struct {
	Part string `json:"part"`
}

type name string

// own decodes itself from at most 7 bytes.
type own struct{ text string }

func (o *own) UnmarshalJSON(b []byte) error {
	if len(b) > 7 {
		return fmt.Errorf("%d bytes are too many", len(b))
	}
	o.text = string(b)
	return nil
}

func TestDecodeLeavesToEncodingJSONWhatIsItsOwn(t *testing.T) {
	in := `{"part":"p","keys":{"7":"x"},"time":"2026-05-04T03:02:01Z","self": [1, 2] ,"deep":"d","names":{"\u0061b":[1,{}]},
		"free":null,"float":0.1,"each":{"x":["a","b"]},"next":{"part":"q","self":null}}`
	text := "d"
	pointer, float := &text, float32(0.1)
	want := odd{
		Part: &Part{"p"}, Keys: map[int]string{7: "x"}, Time: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Self: own{"[1, 2]"},
		Deep: &pointer, Names: map[name][]own{"ab": {{"1"}, {"{}"}}}, Float: &float, Each: map[string]*[2]string{"x": {"a", "b"}},
		Next: &odd{Part: &Part{"q"}, Self: own{"null"}},
	}
	var got odd
	if err := Decode([]byte(in), &got, Limits{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(own{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for in, reason := range map[string]string{
		`{"keys":{"x":"x"}}`:                     "cannot unmarshal number x into Go struct field odd.keys",
		`{"keys":{"7":"x","7":"y"}}`:             "duplicate key",
		`{"self":{"a":1,"a":2}}`:                 "duplicate key",
		`{"self":"too long","part":1}`:           "a number where a string is due",
		`{"self":"too long","part":"p"}`:         "10 bytes are too many",
		`{"self":"too long","part":"p"} x`:       "data after the JSON value",
		`{"names":{"a":[],"b":["too long"]}}`:    "10 bytes are too many",
		`{"next":{"next":{"time":"yesterday"}}}`: "yesterday",
		`{"next":{"next":{"Part":"p"}}}`:         "unknown key",
	} {
		got := odd{Deep: &pointer}
		var de *DecodeError
		if err := Decode([]byte(in), &got, Limits{}); !errors.As(err, &de) || !strings.Contains(de.Reason, reason) {
			t.Errorf("Decode(%s): %v, want %q", in, err, reason)
		}
		if got.Deep != &pointer || got.Next != nil || got.Names != nil {
			t.Errorf("Decode(%s) changed its target", in)
		}
	}
}

func TestDecodeSeesEachDuplicateInAWideStruct(t *testing.T) {
	var fields []reflect.StructField
	var text strings.Builder
	for i := range 130 {
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%03d", i), Type: reflect.TypeFor[int]()})
		fmt.Fprintf(&text, `"F%03d":%d,`, i, i)
	}
	wide := reflect.New(reflect.StructOf(fields))
	if err := Decode([]byte("{"+strings.TrimSuffix(text.String(), ",")+"}"), wide.Interface(), Limits{}); err != nil {
		t.Fatal(err)
	}
	for i := range 130 {
		if got := wide.Elem().Field(i).Int(); got != int64(i) {
			t.Errorf("field %d is %d", i, got)
		}
		again := fmt.Sprintf(`{%s"F%03d":1}`, text.String(), i)
		var de *DecodeError
		if err := Decode([]byte(again), wide.Interface(), Limits{}); !errors.As(err, &de) || de.Reason != "duplicate key" || de.Pointer != fmt.Sprintf("/F%03d", i) {
			t.Errorf("field %d twice: %v", i, err)
		}
	}
}

func TestDecodeHoldsItsLimits(t *testing.T) {
	var v any
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if err := Decode(deep(DefaultDepth), &v, Limits{}); err != nil {
		t.Errorf("at the default depth: %v", err)
	}
	if err := Decode(deep(DefaultDepth+1), &v, Limits{}); err == nil || !strings.Contains(err.Error(), "deeper than the limit of 64") {
		t.Errorf("beyond the default depth: %v", err)
	}
	if err := Decode(deep(100_000), &v, Limits{Depth: 3}); err == nil {
		t.Error("far beyond the depth: no error")
	}
	long := []byte(`"` + strings.Repeat("a", DefaultBytes-2) + `"`)
	if err := Decode(long, &v, Limits{}); err != nil {
		t.Errorf("at the default size: %v", err)
	}
	if err := Decode(append(long, ' '), &v, Limits{}); err == nil || !strings.Contains(err.Error(), "limit of 1048576") {
		t.Errorf("beyond the default size: %v", err)
	}
}

func TestDecodeLeavesNothingOfFormerContent(t *testing.T) {
	got := doc{Name: "old", List: []inner{{N: 9}}, Opt: &inner{N: 9}}
	if err := Decode([]byte(`{"u":1}`), &got, Limits{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(doc{U: 1}, got, cmp.AllowUnexported(doc{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeErrorQuotesHostilePointers(t *testing.T) {
	var v doc
	err := Decode([]byte(`{"\u001b[31m\u202e`+strings.Repeat("x", 5000)+`":1}`), &v, Limits{})
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\u202e") || len(err.Error()) > 300 {
		t.Errorf("got %q", err)
	}
}

func TestCanonicalWritesRFC8785(t *testing.T) {
	tests := []struct {
		name string
		in   any
		want string
	}{
		{"keys sorted by UTF-16 units", map[string]int{"\ufb33": 1, "😀": 2, "a": 3, "\r": 4}, `{"\r":4,"a":3,"😀":2,"` + "\ufb33" + `":1}`},
		{"no HTML escapes", "<&>\u2028", "\"<&>\u2028\""},
		{"control characters", "\x00\x1f\b\f\"\\/", `"\u0000\u001f\b\f\"\\/"`},
		{"nil like empty", struct {
			L []string       `json:"l"`
			M map[string]int `json:"m"`
			B []byte         `json:"b"`
		}{}, `{"b":"","l":[],"m":{}}`},
		{"raw JSON is canonicalised", json.RawMessage(` {"b" : 1.50, "a":[ ] } `), `{"a":[],"b":1.5}`},
		{"omitted when empty", doc{base: base{Kind: "k"}, List: []inner{{}}}, `{"a":[0,0],"b":"","f":0,"kind":"k","list":[{"n":0,"on":false}],"name":"","u":0}`},
		{"the largest integer", int64(maxInteger), "9007199254740991"},
		{"nothing", nil, "null"},
		{"bytes", [][]byte{{1}, nil}, `["AQ==",""]`},
		{"methods of values and of pointers", []any{time.Unix(1, 0).UTC(), &struct{ L []loud }{[]loud{3}}, loud(3)}, `["1970-01-01T00:00:01Z",{"L":["LOUD"]},3]`},
		{"floats", []any{1.0, 1e-7, float32(0.5)}, `[1,1e-7,0.5]`},
		{"inside a nil embedded pointer", struct {
			*Part
			A int
		}{A: 1}, `{"A":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Canonical(tt.in)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

type loud int

func (l *loud) MarshalText() ([]byte, error) { return []byte("LOUD"), nil }

// FuzzCanonical: any text is written, as a key and as a value, as jcs writes it.
func FuzzCanonical(f *testing.F) {
	f.Add("a", "b", int64(1))
	f.Add("\u20ac\r\x01", "\U0001f600\"\\", int64(-maxInteger))
	f.Add("\ufb33", "\U0001f600", int64(maxInteger))
	f.Fuzz(func(t *testing.T, a, b string, n int64) {
		v := map[string]any{a: b, b: n, a + b: []string{a, b}, "list": map[string]int64{a: n, "\ufb33" + b: n, "\U0001f600" + b: n}}
		got, err := Canonical(v)
		if !utf8.ValidString(a) || !utf8.ValidString(b) || n > maxInteger || n < -maxInteger {
			if err == nil {
				t.Fatalf("wrote %s", got)
			}
			return
		}
		text, err2 := json.Marshal(v)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		want, err := jcs.Transform(text)
		if err != nil || string(got) != string(want) {
			t.Fatalf("got  %s\nwant %s (%v)", got, want, err)
		}
	})
}

func TestCanonicalRefusesWhatItCannotWriteExactly(t *testing.T) {
	type loop struct{ Next *loop }
	l := &loop{}
	l.Next = l
	for name, in := range map[string]any{
		"integer beyond 2^53":         int64(maxInteger + 1),
		"negative beyond 2^53":        int64(-maxInteger - 1),
		"unsigned beyond 2^53":        uint64(math.MaxUint64),
		"invalid UTF-8":               []string{"\xff"},
		"invalid UTF-8 in a key":      map[string]int{"\xff": 1},
		"duplicate key in raw JSON":   json.RawMessage(`{"a":1,"a":2}`),
		"integer in raw JSON":         json.RawMessage(`9007199254740993`),
		"half a pair in raw JSON":     json.RawMessage(`"\ud800"`),
		"a channel":                   make(chan int),
		"a value that holds itself":   l,
		"not a number":                math.NaN(),
		"a map with keys of integers": map[int]int{1: 1},
	} {
		if got, err := Canonical(in); err == nil {
			t.Errorf("%s: got %s, want an error", name, got)
		}
	}
}

func TestValidDigestAcceptsOnlyLowerHexOf64(t *testing.T) {
	good := SHA256Hex(nil)
	if good != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" || !ValidDigest(good) {
		t.Errorf("SHA256Hex(nil) = %s", good)
	}
	for _, bad := range []string{"", good[1:], good + "0", strings.ToUpper(good), "g" + good[1:], "sha256:" + good} {
		if ValidDigest(bad) {
			t.Errorf("ValidDigest(%q) = true", bad)
		}
	}
}

// strict reads one value token by token. Its error is a duplicate key or a
// number that a float64 does not hold exactly.
func strict(dec *json.Decoder) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	keys := map[string]bool{}
	switch token := token.(type) {
	case json.Number:
		n, err := token.Int64()
		if f, _ := token.Float64(); math.Abs(f) > maxInteger || err == nil && int64(f) != n || token == "-0" {
			return fmt.Errorf("number %s", token)
		}
	case json.Delim:
		for dec.More() {
			if token == '{' {
				key, err := dec.Token()
				if err != nil {
					return err
				}
				if name := key.(string); keys[name] {
					return fmt.Errorf("duplicate key %q", name)
				}
				keys[key.(string)] = true
			}
			if err := strict(dec); err != nil {
				return err
			}
		}
		_, err = dec.Token()
	}
	return err
}

// FuzzDecode: what is accepted is read as encoding/json reads it, breaks no rule
// that encoding/json lacks, and has one canonical form, which decodes to the same
// value and is what jcs makes of it; refused input leaves the target alone.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{goodDoc, `{}`, `{"any":[1e5,-1.5,"\u0000",{}]}`, `{"list":[{"r":[1]}]}`, `{"f":1e20}`, `{"name":"\ud83d\ude00"}`, `{"name":"a","name":"b"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v doc
		if err := Decode(data, &v, Limits{}); err != nil {
			if diff := cmp.Diff(doc{}, v, cmp.AllowUnexported(doc{})); diff != "" {
				t.Errorf("refused input changed the target:\n%s", diff)
			}
			return
		}
		first, err := Canonical(v)
		if err != nil {
			t.Fatalf("accepted %q has no canonical form: %v", data, err)
		}
		var again doc
		if err := Decode(first, &again, Limits{Bytes: 8 << 20}); err != nil {
			t.Fatalf("canonical form %s is refused: %v", first, err)
		}
		second, err := Canonical(again)
		if err != nil || string(second) != string(first) {
			t.Fatalf("canonical forms differ: %s and %s (%v)", first, second, err)
		}
		if fixed, err := jcs.Transform(first); err != nil || string(fixed) != string(first) {
			t.Fatalf("canonical form %s, and of that %s (%v)", first, fixed, err)
		}
		var plain doc
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&plain); err != nil || !json.Valid(data) {
			t.Fatalf("accepted %q, which encoding/json refuses: %v", data, err)
		}
		if diff := cmp.Diff(plain, v, cmp.AllowUnexported(doc{})); diff != "" {
			t.Fatalf("%q is read differently (-encoding/json +Decode):\n%s", data, diff)
		}
		dec = json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if err := strict(dec); err != nil {
			t.Fatalf("accepted %q: %v", data, err)
		}
	})
}

func TestPlainStopsAtEachSpecialByte(t *testing.T) {
	for n := range 20 {
		text := strings.Repeat("\x7f", n)
		if got := plain(text); got != n {
			t.Errorf("of %d plain bytes: %d", n, got)
		}
		for at := range n {
			for c := range 256 {
				b := []byte(text)
				b[at] = byte(c)
				want := n
				if c < 0x20 || c == '"' || c == '\\' {
					want = at
				}
				if got := plain(b); got != want {
					t.Fatalf("%d bytes with %#x at %d: %d, want %d", n, c, at, got, want)
				}
			}
		}
	}
}
