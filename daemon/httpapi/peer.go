package httpapi

import (
	"context"
	"net"
	"sync"

	"striatum/internal/unixsocket"
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

// listener bounds the connections of a listener, of each user of it, and of all
// users that are not favoured.
type listener struct {
	net.Listener
	favoured func(uid uint32) bool
	mu       sync.Mutex
	open     int
	ofUID    map[uint32]int
}

func newListener(l net.Listener, favoured func(uid uint32) bool) *listener {
	return &listener{Listener: l, favoured: favoured, ofUID: map[uint32]int{}}
}

// Accept waits for a connection. One whose peer the kernel does not name, and one
// too many, is closed: nothing was said on it.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		var p peer
		if u, ok := c.(*net.UnixConn); ok {
			who, err := unixsocket.PeerOf(u)
			if err != nil {
				_ = c.Close()
				continue
			}
			p = peer{known: true, uid: who.UID, pid: who.PID}
		}
		if l.take(p) {
			return &conn{Conn: c, peer: p, from: l}, nil
		}
		_ = c.Close()
	}
}

func (l *listener) take(p peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := MaxConnections
	if p.known && !l.favoured(p.uid) {
		most -= KeptConnections
	}
	if l.open >= most || p.known && l.ofUID[p.uid] >= MaxConnectionsOfUID {
		return false
	}
	l.open++
	l.ofUID[p.uid]++
	return true
}

func (l *listener) give(p peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ofUID[p.uid]--; l.ofUID[p.uid] == 0 {
		delete(l.ofUID, p.uid)
	}
	l.open--
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
