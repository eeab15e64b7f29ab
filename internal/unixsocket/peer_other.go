//go:build !linux

package unixsocket

import "net"

// PeerOf is not offered here.
func PeerOf(*net.UnixConn) (Peer, error) { return Peer{}, ErrNoPeer }
