package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Unlimited is the value of a limit that is not set.
const Unlimited = -1

// maxFile bounds what is read of a control file other than a list of ids.
const maxFile = 64 << 10

// Hierarchies are the mount points of the controllers. With version 2 all of
// them are the same folder.
type Hierarchies struct {
	Unified bool
	Dirs    map[string]string // by controller: memory, pids, cpu, cpuacct
	all     []string
}

// Find reads mountinfo text, as in /proc/self/mountinfo, and returns the
// hierarchies that have the controllers memory, pids and cpu. A missing one is
// an error.
func Find(mountinfo string) (Hierarchies, error) {
	h := Hierarchies{Dirs: map[string]string{}}
	unified := ""
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup":
			h.all = append(h.all, f[4])
			for c := range strings.SplitSeq(g[2], ",") {
				if _, have := h.Dirs[c]; !have {
					h.Dirs[c] = f[4]
				}
			}
		case "cgroup2":
			h.all = append(h.all, f[4])
			unified = f[4]
		}
	}
	if _, v1 := h.Dirs["memory"]; !v1 && unified != "" {
		data, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
		if err != nil {
			return Hierarchies{}, fmt.Errorf("read cgroup controllers: %w", err)
		}
		h.Unified = true
		h.Dirs = map[string]string{}
		for c := range strings.FieldsSeq(string(data)) {
			h.Dirs[c] = unified
		}
		h.Dirs["cpuacct"] = h.Dirs["cpu"]
	}
	for _, c := range []string{"memory", "pids", "cpu"} {
		if h.Dirs[c] == "" {
			return Hierarchies{}, fmt.Errorf("cgroup controller %q is not mounted", c)
		}
	}
	return h, nil
}

// Limits are those in force for a group. SwapBytes is of swap alone; it is
// Unlimited also where the kernel does not account for swap.
type Limits struct {
	MemoryBytes, SwapBytes, Pids, MilliCPUs int64
}

// Usage is what a group has come to.
type Usage struct {
	OOMKills       int64
	PidsHit        int64 // refused forks
	MaxMemoryBytes int64
	CPU            time.Duration
}

// Group is one group by its path from the root of every hierarchy.
type Group struct {
	H    Hierarchies
	Path string
}

func (g Group) file(controller, name string) string {
	return filepath.Join(g.H.Dirs[controller], g.Path, name)
}

// Limits reads what is in force.
func (g Group) Limits() (Limits, error) {
	var r reader
	if g.H.Unified {
		l := Limits{
			MemoryBytes: r.value(g.file("memory", "memory.max")),
			SwapBytes:   r.optional(g.file("memory", "memory.swap.max")),
			Pids:        r.value(g.file("pids", "pids.max")),
		}
		l.MilliCPUs = cpuMax(r.text(g.file("cpu", "cpu.max")))
		return l, r.err
	}
	l := Limits{
		MemoryBytes: r.value(g.file("memory", "memory.limit_in_bytes")),
		SwapBytes:   Unlimited,
		Pids:        r.value(g.file("pids", "pids.max")),
		MilliCPUs:   Unlimited,
	}
	if both := r.optional(g.file("memory", "memory.memsw.limit_in_bytes")); both != Unlimited {
		l.SwapBytes = both - l.MemoryBytes
	}
	quota, period := r.value(g.file("cpu", "cpu.cfs_quota_us")), r.value(g.file("cpu", "cpu.cfs_period_us"))
	if quota > 0 && period > 0 {
		l.MilliCPUs = quota * 1000 / period
	}
	return l, r.err
}

// cpuMax reads "QUOTA PERIOD" or "max PERIOD" as thousandths of a CPU.
func cpuMax(text string) int64 {
	q, p, _ := strings.Cut(strings.TrimSpace(text), " ")
	quota, err1 := strconv.ParseInt(q, 10, 64)
	period, err2 := strconv.ParseInt(p, 10, 64)
	if err1 != nil || err2 != nil || period <= 0 {
		return Unlimited
	}
	return quota * 1000 / period
}

// Usage reads the counters. It works as long as the group exists, also when
// nothing is left in it.
func (g Group) Usage() (Usage, error) {
	var r reader
	if g.H.Unified {
		return Usage{
			OOMKills:       r.field(g.file("memory", "memory.events"), "oom_kill"),
			PidsHit:        r.field(g.file("pids", "pids.events"), "max"),
			MaxMemoryBytes: max(r.optional(g.file("memory", "memory.peak")), 0),
			CPU:            time.Duration(r.field(g.file("cpu", "cpu.stat"), "usage_usec")) * time.Microsecond,
		}, r.err
	}
	u := Usage{
		OOMKills:       r.field(g.file("memory", "memory.oom_control"), "oom_kill"),
		PidsHit:        r.field(g.file("pids", "pids.events"), "max"),
		MaxMemoryBytes: r.value(g.file("memory", "memory.max_usage_in_bytes")),
	}
	if g.H.Dirs["cpuacct"] != "" {
		u.CPU = time.Duration(r.value(g.file("cpuacct", "cpuacct.usage")))
	}
	return u, r.err
}

// Processes returns the ids of what runs in the group, as the caller's pid
// namespace knows them.
func (g Group) Processes() ([]int, error) {
	data, err := os.ReadFile(g.file("pids", "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cgroup: %w", err)
	}
	var out []int
	for f := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out, nil
}

// Kill sends SIGKILL to everything in the group and the groups below it.
func (g Group) Kill() error {
	for _, sub := range append([]string{g.Path}, g.below()...) {
		in := Group{H: g.H, Path: sub}
		pids, err := in.Processes()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
		}
	}
	return nil
}

// below returns the paths of the groups below g.
func (g Group) below() []string {
	root := g.H.Dirs["pids"]
	var out []string
	_ = filepath.WalkDir(filepath.Join(root, g.Path), func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && p != filepath.Join(root, g.Path) {
			out = append(out, strings.TrimPrefix(p, root))
		}
		return nil
	})
	return out
}

// Remove removes the group and those below it from every hierarchy. The error
// is the last one where something is still in use.
func (g Group) Remove() error {
	var errs []error
	for _, root := range g.H.all {
		errs = append(errs, removeDirs(filepath.Join(root, g.Path)))
	}
	return errors.Join(errs...)
}

// removeDirs removes dir and the folders in it, deepest first; control files
// go with their folder.
func removeDirs(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeDirs(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove cgroup %q: %w", dir, err)
	}
	return nil
}

// reader reads numbers from control files and keeps the first error.
type reader struct{ err error }

func (r *reader) text(path string) string {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		buf := make([]byte, maxFile)
		n := 0
		for n < len(buf) {
			m, rerr := f.Read(buf[n:])
			n += m
			if rerr != nil || m == 0 {
				break
			}
		}
		return string(buf[:n])
	}
	if r.err == nil {
		r.err = fmt.Errorf("read cgroup file: %w", err)
	}
	return ""
}

func (r *reader) value(path string) int64 {
	return r.number(path, strings.TrimSpace(r.text(path)))
}

// optional is value for a file that some kernels lack.
func (r *reader) optional(path string) int64 {
	if _, err := os.Stat(path); err != nil {
		return Unlimited
	}
	return r.value(path)
}

func (r *reader) field(path, name string) int64 {
	for line := range strings.Lines(r.text(path)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == name {
			return r.number(path, v)
		}
	}
	return 0
}

func (r *reader) number(path, text string) int64 {
	if text == "max" || text == "" {
		return Unlimited
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("read cgroup file %q: %w", path, err)
	}
	return v
}
