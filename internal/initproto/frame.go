// Package initproto is the language between a lane and striatum-init, the
// first process of a sandbox: frames on the init's standard input and output.
//
// A frame is, in this order:
//
//	4 bytes  length of the payload, big endian, at most MaxPayload
//	1 byte   type
//	16 bytes nonce, drawn by the lane for each sandbox
//	n bytes  payload
//
// Payloads are made of 8-byte big-endian integers, one-byte booleans, and byte
// strings with a 4-byte length. Each payload has exactly one form: a reader
// refuses what is left over, what is missing, and a boolean other than 0 or 1.
//
// The lane sends one Setup, any number of Programs, one at a time, each after
// the ProgramEnd of the last, and Done. The init answers a Program with
// Posture, then Started (or NotStarted), Stdout and Stderr, Exited, Collected, and
// ProgramEnd, and Done with End. A frame of another nonce, an unknown type, or
// one out of turn ends the sandbox: what it said is worth nothing.
package initproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// NonceSize is the length of a nonce.
const NonceSize = 16

// MaxPayload bounds what the lane sends in one frame (a Program with its
// files), MaxReply what the init sends in one.
const (
	MaxPayload = 64 << 20
	MaxReply   = 1 << 20
)

// MaxChunk is the most output or collected data in one frame.
const MaxChunk = 64 << 10

const headerSize = 4 + 1 + NonceSize

// Type names a frame.
type Type uint8

// The types: lane to init below 16, init to lane from 16.
const (
	_           Type = 0
	TypeSetup   Type = 1
	TypeProgram Type = 2
	TypeDone    Type = 3

	TypePosture    Type = 16
	TypeStarted    Type = 17
	TypeNotStarted Type = 18
	TypeStdout     Type = 19
	TypeStderr     Type = 20
	TypeExited     Type = 21
	TypeCollected  Type = 22
	TypeProgramEnd Type = 23
	TypeEnd        Type = 24
	TypeFatal      Type = 25
)

// ErrFrame is the error of every frame that is not what it should be.
var ErrFrame = errors.New("malformed frame")

// Nonce ties frames to one sandbox.
type Nonce [NonceSize]byte

// Conn reads and writes frames of one nonce. Reading and writing may happen at
// the same time, two reads or two writes may not.
type Conn struct {
	Nonce Nonce
	R     io.Reader
	W     io.Writer
	// Max is the largest payload that Read accepts.
	Max int

	head [headerSize]byte
	out  [headerSize]byte
	buf  []byte
}

// Read returns the next frame. The payload is valid until the next Read.
// At the end of the stream the error is io.EOF, within a frame ErrFrame.
func (c *Conn) Read() (Type, []byte, error) {
	t, nonce, payload, err := c.read()
	if err != nil {
		return 0, nil, err
	}
	if nonce != c.Nonce {
		return 0, nil, fmt.Errorf("%w: foreign nonce", ErrFrame)
	}
	return t, payload, nil
}

// ReadFirst is Read for the side that learns the nonce from the first frame.
func (c *Conn) ReadFirst() (Type, []byte, error) {
	t, nonce, payload, err := c.read()
	c.Nonce = nonce
	return t, payload, err
}

func (c *Conn) read() (t Type, nonce Nonce, payload []byte, err error) {
	if _, err := io.ReadFull(c.R, c.head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: cut short", ErrFrame)
		}
		return 0, nonce, nil, err
	}
	n := binary.BigEndian.Uint32(c.head[:4])
	if int64(n) > int64(c.Max) {
		return 0, nonce, nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrFrame, n, c.Max)
	}
	t = Type(c.head[4])
	copy(nonce[:], c.head[5:])
	if cap(c.buf) < int(n) {
		c.buf = make([]byte, n)
	}
	c.buf = c.buf[:n]
	if _, err := io.ReadFull(c.R, c.buf); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: cut short", ErrFrame)
		}
		return 0, nonce, nil, err
	}
	return t, nonce, c.buf, nil
}

// Write sends one frame.
func (c *Conn) Write(t Type, payload []byte) error {
	binary.BigEndian.PutUint32(c.out[:4], uint32(len(payload)))
	c.out[4] = byte(t)
	copy(c.out[5:], c.Nonce[:])
	if _, err := c.W.Write(c.out[:]); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	if len(payload) == 0 {
		return nil
	}
	if _, err := c.W.Write(payload); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}
