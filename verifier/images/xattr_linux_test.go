package images

import (
	"testing"

	"golang.org/x/sys/unix"
)

// xattrs lists the extended attributes of a file, but for those that a security
// module gives every file.
func xattrs(t *testing.T, path string) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := unix.Listxattr(path, buf)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(buf[:n]); s != "security.selinux\x00" {
		return s
	}
	return ""
}
