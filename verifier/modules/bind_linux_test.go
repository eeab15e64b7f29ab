package modules

import (
	"testing"

	"golang.org/x/sys/unix"
)

// bindReadOnly mounts dir read-only elsewhere.
func bindReadOnly(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := unix.Mount(dir, to, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return to
}
