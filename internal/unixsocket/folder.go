package unixsocket

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// The errors of Receive.
var (
	ErrDescriptors = errors.New("one descriptor was to come with the line")
	ErrLine        = errors.New("it is not one line that ends there")
)

// maxDescriptors is how many a message may bring; the kernel closes what is more.
const maxDescriptors = 8

// Send sends a line, which it ends, with the descriptor of an open folder.
func Send(c *net.UnixConn, line []byte, folder *os.File) error {
	raw, err := folder.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		message := append(bytes.Clone(line), '\n')
		var n int
		if n, _, err = c.WriteMsgUnix(message, syscall.UnixRights(int(fd)), nil); err == nil && n < len(message) {
			_, err = c.Write(message[n:])
		}
	})
	return errors.Join(cerr, err)
}

// Receive reads one line of at most limit bytes, with exactly one descriptor, which
// the caller must close. It closes all that came where the error is not nil. How long
// it waits is the connection's deadline.
func Receive(c *net.UnixConn, limit int) (line []byte, fd int, err error) {
	var came []int
	defer func() {
		if err != nil {
			for _, fd := range came {
				err = errors.Join(err, syscall.Close(fd))
			}
		}
	}()
	buf, control := make([]byte, limit+1), make([]byte, syscall.CmsgSpace(4*maxDescriptors))
	for !bytes.HasSuffix(line, []byte("\n")) {
		n, oob, flags, _, err := c.ReadMsgUnix(buf[:limit+1-len(line)], control)
		fds, perr := descriptors(control[:oob])
		came = append(came, fds...)
		switch {
		case err != nil:
			return nil, -1, fmt.Errorf("read the line: %w", err)
		case perr != nil:
			return nil, -1, perr
		case flags&syscall.MSG_CTRUNC != 0 || len(came) > 1:
			return nil, -1, ErrDescriptors
		}
		line = append(line, buf[:n]...)
		if i := bytes.IndexByte(line, '\n'); len(line) > limit || i >= 0 && i < len(line)-1 {
			return nil, -1, ErrLine
		}
	}
	if len(came) != 1 {
		return nil, -1, ErrDescriptors
	}
	return line[:len(line)-1], came[0], nil
}

func descriptors(control []byte) (fds []int, err error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("read the descriptors: %w", err)
	}
	for _, m := range messages {
		more, merr := syscall.ParseUnixRights(&m)
		if merr != nil {
			err = errors.Join(err, fmt.Errorf("read the descriptors: %w", merr))
		}
		fds = append(fds, more...)
	}
	return fds, err
}
