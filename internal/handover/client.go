package handover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"striatum/internal/problem"
	"striatum/internal/unixsocket"
	"striatum/seal"
)

const dialTimeout = 5 * time.Second

// Client is a connection to a lane. It is used by one goroutine, except Cancel and
// Close.
type Client struct {
	c     *net.UnixConn
	lines *bufio.Reader
}

// Dial connects to the lane that listens on socket, whose process must be root's. A
// lane that cannot be reached is a problem of kind Missing.
func Dial(ctx context.Context, socket string) (*Client, error) {
	what := fmt.Sprintf("call the lane on %q", socket)
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, what, "see that `striatum lane serve` runs and that its group may connect; nothing was asked for")
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(problem.New(problem.Internal, what, "it is no unix socket", ""), conn.Close())
	}
	who, err := unixsocket.PeerOf(c)
	if err == nil && who.UID != 0 {
		err = fmt.Errorf("uid %d answers there, which is not root", who.UID)
	}
	if err != nil {
		return nil, errors.Join(problem.Wrap(problem.Refused, err, what, "name the socket of a lane with --lane or STRIATUM_LANE_SOCKET"), c.Close())
	}
	return &Client{c: c, lines: bufio.NewReaderSize(c, 64<<10)}, nil
}

// Offer hands over the open folder for a request.
func (c *Client) Offer(requestID string, folder *os.File) error {
	line, err := json.Marshal(Offer{RequestID: requestID})
	if err != nil {
		return err
	}
	if err := c.c.SetWriteDeadline(time.Now().Add(WriteTimeout)); err != nil { //nolint:forbidigo // a deadline is by the system's clock
		return err
	}
	return unixsocket.Send(c.c, line, folder)
}

// Next returns the next message.
func (c *Client) Next() (m Message, err error) {
	var line []byte
	for {
		part, err := c.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > MaxMessageBytes:
			return Message{}, fmt.Errorf("the lane says more than %d bytes at once", MaxMessageBytes)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return Message{}, fmt.Errorf("read what the lane says: %w", err)
		}
		break
	}
	if err := seal.Decode(line[:len(line)-1], &m, seal.Limits{Bytes: MaxMessageBytes, Depth: 8}); err != nil {
		return Message{}, fmt.Errorf("read what the lane says: %w", err)
	}
	return m, nil
}

// Cancel gives up; what the lane still says until then can be read.
func (c *Client) Cancel() { _ = c.c.CloseWrite() } // a connection that is gone has given up

// Close ends the connection.
func (c *Client) Close() error { return c.c.Close() }
