package handover

import (
	"encoding/json"
	"net"
	"sync"
	"time"
)

// outbox writes messages to a client without letting anybody wait for it: of steps
// it keeps the newest, of results all, which it cuts where they are too many bytes.
type outbox struct {
	c     net.Conn
	gone  func() // told when nothing can be written any more
	wake  chan struct{}
	ended chan struct{}

	mu     sync.Mutex
	step   []byte
	others [][]byte
	held   int
	closed bool
}

func newOutbox(c net.Conn, gone func()) *outbox {
	o := &outbox{c: c, gone: gone, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go o.write()
	return o
}

// add keeps a message until it can be written.
func (o *outbox) add(m Message) {
	if m.Step != nil {
		m.Step = &Step{CheckID: cut(m.Step.CheckID), Text: cut(m.Step.Text)}
	}
	line := encode(m)
	o.mu.Lock()
	switch {
	case o.closed:
	case m.Step != nil:
		o.step = line
	default:
		if x := m.Outcome; x != nil && o.held+len(line) > maxHeldBytes {
			line = encode(Message{Outcome: &Outcome{Seal: x.Seal}})
		}
		o.step = nil // it is over
		o.others = append(o.others, line)
		o.held += len(line)
	}
	o.mu.Unlock()
	o.signal()
}

func cut(s string) string {
	if len(s) > maxText {
		return s[:maxText]
	}
	return s
}

func encode(m Message) []byte {
	data, err := json.Marshal(m)
	if err != nil {
		data = []byte("{}") // texts and bytes always encode
	}
	return append(data, '\n')
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close waits until what was added is written, or cannot be.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
	<-o.ended
}

// take returns what is to be written next; more is false when nothing will come.
func (o *outbox) take() (line []byte, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case len(o.others) > 0:
		line, o.others = o.others[0], o.others[1:]
		o.held -= len(line)
	case o.step != nil:
		line, o.step = o.step, nil
	case o.closed:
		return nil, false
	}
	return line, true
}

func (o *outbox) write() {
	defer close(o.ended)
	for {
		line, more := o.take()
		if !more {
			return
		}
		if line == nil {
			<-o.wake
			continue
		}
		err := o.c.SetWriteDeadline(time.Now().Add(WriteTimeout)) //nolint:forbidigo // a deadline is by the system's clock
		if err == nil {
			_, err = o.c.Write(line)
		}
		if err != nil {
			o.gone()
			o.mu.Lock()
			o.step, o.others, o.held, o.closed = nil, nil, 0, true
			o.mu.Unlock()
			return
		}
	}
}
