package httpapi

import (
	"context"
	"errors"
	"net"
	"sync"
)

// peer is who is at the other end of a connection, as the kernel says; known is
// false for one that is not of a unix socket.
type peer struct {
	known bool
	uid   uint32
	pid   int32
}

type peerKey struct{}

func peerOf(ctx context.Context) peer {
	p, _ := ctx.Value(peerKey{}).(peer)
	return p
}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, peerKey{}, c.peer)
	}
	return ctx
}

// listener bounds the connections of a listener, and of each user of it.
type listener struct {
	net.Listener
	slots chan struct{}
	mu    sync.Mutex
	ofUID map[uint32]int
	done  chan struct{}
	once  sync.Once
}

func newListener(l net.Listener) *listener {
	return &listener{Listener: l, slots: make(chan struct{}, MaxConnections), ofUID: map[uint32]int{}, done: make(chan struct{})}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// Accept waits for a place, then for a connection. One whose peer the kernel does
// not name, and one too many of a user, is closed.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		var p peer
		if u, ok := c.(*net.UnixConn); ok {
			if p, err = readPeer(u); err != nil {
				_ = c.Close() // nothing was said on it
				continue
			}
		}
		if l.take(p) {
			return &conn{Conn: c, peer: p, from: l}, nil
		}
		_ = c.Close() // likewise
	}
}

func (l *listener) take(p peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.known && l.ofUID[p.uid] >= MaxConnectionsOfUID {
		return false
	}
	l.ofUID[p.uid]++
	return true
}

func (l *listener) give(p peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ofUID[p.uid]--; l.ofUID[p.uid] == 0 {
		delete(l.ofUID, p.uid)
	}
	<-l.slots
}

// conn is a connection that gives its place back when it is closed.
type conn struct {
	net.Conn
	peer peer
	from *listener
	once sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { c.from.give(c.peer) })
	return c.Conn.Close()
}

var errNoPeer = errors.New("the kernel names no peer")
