package initproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	setup = Setup{
		Seccomp: []byte{1, 2, 3}, SharedBytes: 4, FreshBytes: 5, CopyLayers: true,
		Mounts: []Mount{{Layer, "/a", "/b", true}, {Scratch, "", "/c", false}},
		Hide:   []string{"/h"}, ReadOnly: []string{"/r", ""}, Writable: []string{"/w"}, DiskBytes: 6, IDMap: "0 1 2",
		Host: []Namespace{{"pid", "pid:[1]"}},
	}
	program = Program{
		Path: "/p", Args: []string{"a", "b c"}, Dir: "/d", Env: []string{"A=1"},
		Files: []File{{"/f", 0o755, []byte("data")}}, Collect: []string{"/x"}, CollectBytes: 7, WallClockNS: 8,
	}
	facets    = []Facet{{"n", "r", "o", true}, {"m", "", "", false}}
	exited    = Exited{137, 9, true, 2, 3, 4, 5, true}
	collected = Collected{1, true, false, true, []byte("part")}
)

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	gotSetup, err1 := DecodeSetup(setup.Encode())
	gotProgram, err2 := DecodeProgram(program.Encode())
	gotFacets, err3 := DecodeFacets(EncodeFacets(facets))
	gotExited, err4 := DecodeExited(exited.Encode())
	gotCollected, err5 := DecodeCollected(collected.Encode())
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	diff := cmp.Diff(gotSetup, setup) + cmp.Diff(gotProgram, program) + cmp.Diff(gotFacets, facets) +
		cmp.Diff(gotExited, exited) + cmp.Diff(gotCollected, collected)
	if diff != "" {
		t.Error(diff)
	}
}

func TestEveryCutOrLongerPayloadIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		payload []byte
		decode  func([]byte) error
	}{
		"setup":     {setup.Encode(), func(b []byte) error { _, err := DecodeSetup(b); return err }},
		"program":   {program.Encode(), func(b []byte) error { _, err := DecodeProgram(b); return err }},
		"facets":    {EncodeFacets(facets), func(b []byte) error { _, err := DecodeFacets(b); return err }},
		"exited":    {exited.Encode(), func(b []byte) error { _, err := DecodeExited(b); return err }},
		"collected": {collected.Encode(), func(b []byte) error { _, err := DecodeCollected(b); return err }},
	} {
		for n := range c.payload {
			if err := c.decode(c.payload[:n]); !errors.Is(err, ErrFrame) {
				t.Errorf("%s cut to %d bytes: %v", name, n, err)
			}
		}
		if err := c.decode(append(bytes.Clone(c.payload), 0)); !errors.Is(err, ErrFrame) {
			t.Errorf("%s with a byte more: %v", name, err)
		}
	}
}

func TestFramesOfAnotherNonceOrSizeAreRefused(t *testing.T) {
	var stream bytes.Buffer
	w := Conn{Nonce: Nonce{1}, W: &stream}
	for _, p := range []string{"one", ""} {
		if err := w.Write(TypeStdout, []byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	frames := stream.Bytes()
	r := Conn{Nonce: Nonce{1}, R: bytes.NewReader(frames), Max: 3}
	for _, want := range []string{"one", ""} {
		typ, p, err := r.Read()
		if err != nil || typ != TypeStdout || string(p) != want {
			t.Errorf("got %d, %q, %v, want %q", typ, p, err, want)
		}
	}
	if _, _, err := r.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if _, _, err := (&Conn{Nonce: Nonce{2}, R: bytes.NewReader(frames), Max: 3}).Read(); !errors.Is(err, ErrFrame) {
		t.Errorf("foreign nonce: %v", err)
	}
	if _, _, err := (&Conn{Nonce: Nonce{1}, R: bytes.NewReader(frames), Max: 2}).Read(); !errors.Is(err, ErrFrame) {
		t.Errorf("too long: %v", err)
	}
	for n := 1; n < headerSize+3; n++ {
		if _, _, err := (&Conn{Nonce: Nonce{1}, R: bytes.NewReader(frames[:n]), Max: 3}).Read(); !errors.Is(err, ErrFrame) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

// FuzzReply holds what a launcher may send against crashes, and against two
// forms of one value.
func FuzzReply(f *testing.F) {
	f.Add(byte(TypePosture), EncodeFacets(facets))
	f.Add(byte(TypeExited), exited.Encode())
	f.Add(byte(TypeCollected), collected.Encode())
	f.Add(byte(TypeSetup), setup.Encode())
	f.Add(byte(TypeProgram), program.Encode())
	f.Fuzz(func(t *testing.T, typ byte, payload []byte) {
		var again []byte
		switch Type(typ) { //nolint:exhaustive // the types that have a payload to decode
		case TypePosture:
			v, err := DecodeFacets(payload)
			if err != nil {
				return
			}
			again = EncodeFacets(v)
		case TypeExited:
			v, err := DecodeExited(payload)
			if err != nil {
				return
			}
			again = v.Encode()
		case TypeCollected:
			v, err := DecodeCollected(payload)
			if err != nil {
				return
			}
			again = v.Encode()
		case TypeSetup:
			v, err := DecodeSetup(payload)
			if err != nil {
				return
			}
			again = v.Encode()
		case TypeProgram:
			v, err := DecodeProgram(payload)
			if err != nil {
				return
			}
			again = v.Encode()
		default:
			return
		}
		if !bytes.Equal(again, payload) {
			t.Errorf("%x reads as %x", payload, again)
		}
	})
}

// FuzzFrame reads any stream to its end.
func FuzzFrame(f *testing.F) {
	head := binary.BigEndian.AppendUint32(nil, 3)
	f.Add(append(append(head, byte(TypeStdout)), make([]byte, NonceSize+3)...))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := Conn{R: bytes.NewReader(stream), Max: MaxReply}
		for {
			_, p, err := c.Read()
			if err != nil {
				return
			}
			if len(p) > len(stream) {
				t.Errorf("%d bytes from %d", len(p), len(stream))
			}
		}
	})
}
