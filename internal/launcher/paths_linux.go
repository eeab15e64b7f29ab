package launcher

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one line of mountinfo.
type mount struct {
	target  string
	options []string
}

func readMounts() ([]mount, error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []mount
	for line := range bytes.Lines(data) {
		f := strings.Fields(string(line))
		if len(f) < 6 {
			return nil, errors.New("mountinfo has a short line")
		}
		out = append(out, mount{target: f[4], options: strings.Split(f[5], ",")})
	}
	return out, nil
}

// knownDevices are the only device files that a program may find, each bound
// from the host where a user namespace cannot make one.
const knownDevices = "null zero full random urandom tty"

// setuidMounts returns the mounts that honour set-user-id bits. The empty
// masks over parts of /proc have no files, and the devices are none.
func setuidMounts(mounts []mount) []string {
	var faults []string
	for _, m := range mounts {
		device, ok := strings.CutPrefix(m.target, "/dev/")
		if ok && slices.Contains(strings.Fields(knownDevices), device) {
			continue
		}
		if !slices.Contains(m.options, "nosuid") && !strings.HasPrefix(m.target, "/proc/") {
			faults = append(faults, m.target)
		}
	}
	return faults
}

// kernelPaths returns the parts of /proc that can be written or read although
// they must not, and any sight of /sys.
func kernelPaths(mounts []mount) []string {
	var faults []string
	for _, p := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/pressure"} {
		if _, err := os.Lstat(p); errors.Is(err, os.ErrNotExist) {
			continue
		}
		i := slices.IndexFunc(mounts, func(m mount) bool { return m.target == p })
		if i < 0 || !slices.Contains(mounts[i].options, "ro") {
			faults = append(faults, p+" is writable")
		}
	}
	for _, p := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"} {
		if readable(p) {
			faults = append(faults, p+" is readable")
		}
	}
	for _, p := range []string{"/proc/acpi", "/proc/scsi", "/proc/asound", "/sys"} {
		if entries, err := os.ReadDir(p); err == nil && len(entries) > 0 {
			faults = append(faults, p+" has content")
		}
	}
	return faults
}

// readable says whether a byte can be read.
func readable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	n, err := f.Read(make([]byte, 1))
	return n > 0 || (err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrPermission))
}

// devices returns those that a program must not find.
func devices() []string {
	known := strings.Fields(knownDevices)
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	for _, e := range entries {
		if e.Type()&os.ModeDevice != 0 && !slices.Contains(known, e.Name()) {
			faults = append(faults, "/dev/"+e.Name())
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/dev/null", &st); err != nil || st.Rdev != unix.Mkdev(1, 3) {
		faults = append(faults, "/dev/null is something else")
	}
	return faults
}
