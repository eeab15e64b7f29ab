package gitrepo

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
)

// resolveDelta puts the object at e together from its chain of differences.
func (r *Repo) resolveDelta(ctx context.Context, p *pack, e packEntry) (Kind, []byte, error) {
	var chain []packEntry
	var kind Kind
	var body []byte
	for {
		if hit, ok := r.bases.get(p, e.off); ok {
			kind, body = hit.kind, hit.body
			break
		}
		if e.size > MaxDeltaBytes {
			return 0, nil, fmt.Errorf("%w: %d bytes in a chain of differences, at most %d are read", ErrObjectSize, e.size, int64(MaxDeltaBytes))
		}
		if e.kind <= uint8(KindTag) {
			whole, err := r.inflate(&e)
			if err != nil {
				return 0, nil, err
			}
			kind, body = Kind(e.kind), whole
			r.bases.put(p, e.off, kind, body)
			break
		}
		if chain = append(chain, e); len(chain) > maxChain {
			return 0, nil, fmt.Errorf("%w: a chain of more than %d differences", ErrObject, maxChain)
		}
		base := e.base
		if e.kind == refDelta {
			var err error
			if base, err = p.find(e.ref); err != nil {
				return 0, nil, fmt.Errorf("%w: base %s: %v", ErrObject, e.ref, err) //nolint:errorlint // absence of the base is not the object's
			}
		}
		next, err := p.entry(base)
		if err != nil {
			return 0, nil, fmt.Errorf("%w: %w", ErrObject, err)
		}
		e = next
	}
	for i := len(chain) - 1; i >= 0; i-- {
		if err := context.Cause(ctx); err != nil {
			return 0, nil, err
		}
		delta, err := r.inflate(&chain[i])
		if err == nil {
			body, err = r.applyDelta(body, delta)
		}
		if err != nil {
			return 0, nil, err
		}
		r.bases.put(p, chain[i].off, kind, body)
	}
	return kind, body, nil
}

// inflate returns what is compressed in e. Memory grows with what is there, not
// with what e says.
func (r *Repo) inflate(e *packEntry) ([]byte, error) {
	if err := r.spend(e.size); err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(e.stream)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrObject, err)
	}
	out := bytes.NewBuffer(make([]byte, 0, min(e.size, 1<<20)))
	n, err := io.Copy(out, io.LimitReader(z, e.size+1))
	if err == nil && n != e.size {
		err = errors.New("its size is not what its header says")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrObject, err)
	}
	return out.Bytes(), nil
}

// applyDelta makes the result of delta upon base. delta: the sizes of both (7
// bits a byte, lowest first), then instructions: 1xxxxxxx copies from base, with
// the bytes of offset and size that are not zero following; 0xxxxxxx takes that
// many bytes from delta.
func (r *Repo) applyDelta(base, delta []byte) ([]byte, error) {
	bad := fmt.Errorf("%w: a difference is malformed", ErrObject)
	from, delta, ok1 := deltaSize(delta)
	to, delta, ok2 := deltaSize(delta)
	if !ok1 || !ok2 || from != int64(len(base)) {
		return nil, bad
	}
	if to > MaxDeltaBytes {
		return nil, fmt.Errorf("%w: %d bytes made of differences, at most %d are read", ErrObjectSize, to, int64(MaxDeltaBytes))
	}
	if err := r.spend(to); err != nil {
		return nil, err
	}
	out := make([]byte, 0, min(to, 1<<20))
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var part []byte
		if op&0x80 == 0 {
			if op == 0 || int(op) > len(delta) {
				return nil, bad
			}
			part, delta = delta[:op], delta[op:]
		} else {
			var args [7]int64
			for i := range args {
				if op&(1<<i) == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, bad
				}
				args[i], delta = int64(delta[0]), delta[1:]
			}
			off := args[0] | args[1]<<8 | args[2]<<16 | args[3]<<24
			size := args[4] | args[5]<<8 | args[6]<<16
			if size == 0 {
				size = 1 << 16
			}
			if off+size > int64(len(base)) {
				return nil, bad
			}
			part = base[off : off+size]
		}
		if int64(len(out)+len(part)) > to {
			return nil, bad
		}
		out = append(out, part...)
	}
	if int64(len(out)) != to {
		return nil, bad
	}
	return out, nil
}

func deltaSize(b []byte) (v int64, rest []byte, ok bool) {
	for shift := 0; shift < 56 && len(b) > 0; shift += 7 {
		c := b[0]
		b = b[1:]
		v |= int64(c&0x7f) << shift
		if c&0x80 == 0 {
			return v, b, true
		}
	}
	return 0, nil, false
}

// bases keeps the last few objects that others may be based on.
type bases struct {
	at    map[baseKey]baseObject
	order []baseKey
	bytes int
}

type baseKey struct {
	pack *pack
	off  int64
}

type baseObject struct {
	kind Kind
	body []byte
}

func (b *bases) get(p *pack, off int64) (baseObject, bool) {
	o, ok := b.at[baseKey{p, off}]
	return o, ok
}

func (b *bases) put(p *pack, off int64, kind Kind, body []byte) {
	key := baseKey{p, off}
	if _, have := b.at[key]; have || len(body) > cacheBytes/4 {
		return
	}
	if b.at == nil {
		b.at = map[baseKey]baseObject{}
	}
	b.at[key] = baseObject{kind, body}
	b.order = append(b.order, key)
	b.bytes += len(body)
	for b.bytes > cacheBytes {
		b.bytes -= len(b.at[b.order[0]].body)
		delete(b.at, b.order[0])
		b.order = b.order[1:]
	}
}
