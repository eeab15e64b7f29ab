package initproto

import (
	"encoding/binary"
	"fmt"
)

type encoder struct{ b []byte }

func (e *encoder) int(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
		return
	}
	e.b = append(e.b, 0)
}

func (e *encoder) bytes(v []byte) {
	e.b = binary.BigEndian.AppendUint32(e.b, uint32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) string(v string) {
	e.b = binary.BigEndian.AppendUint32(e.b, uint32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) strings(v []string) {
	e.int(int64(len(v)))
	for _, s := range v {
		e.string(s)
	}
}

// decoder reads what encoder wrote; after the first error it yields zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrFrame, what)
	}
	d.b = nil
}

func (d *decoder) int() int64 {
	if len(d.b) < 8 {
		d.fail("integer is missing")
		return 0
	}
	v := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return int64(v)
}

func (d *decoder) bool() bool {
	if len(d.b) < 1 || d.b[0] > 1 {
		d.fail("boolean is missing")
		return false
	}
	v := d.b[0] == 1
	d.b = d.b[1:]
	return v
}

// bytes returns a part of the payload itself.
func (d *decoder) bytes() []byte {
	if len(d.b) < 4 {
		d.fail("length is missing")
		return nil
	}
	n := binary.BigEndian.Uint32(d.b)
	if int64(n) > int64(len(d.b)-4) {
		d.fail("string is cut short")
		return nil
	}
	v := d.b[4 : 4+n]
	d.b = d.b[4+n:]
	return v
}

func (d *decoder) string() string { return string(d.bytes()) }

// count reads the length of a list whose elements take at least size bytes.
func (d *decoder) count(size int) int {
	n := d.int()
	if n < 0 || n > int64(len(d.b)/size) {
		d.fail("list is cut short")
		return 0
	}
	return int(n)
}

func (d *decoder) strings() []string {
	n := d.count(4)
	if n == 0 {
		return nil
	}
	v := make([]string, n)
	for i := range v {
		v[i] = d.string()
	}
	return v
}

// end returns the first error, or one if something is left over.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) != 0 {
		d.fail("something is left over")
	}
	return d.err
}
