package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// write makes files below dir, by relative path.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestVersion1IsRead(t *testing.T) {
	dir := t.TempDir()
	info := ""
	for i, c := range []string{"memory", "pids", "cpu,cpuacct", "freezer"} {
		info += fmt.Sprintf("%d 20 0:%d / %s/%s rw - cgroup cgroup rw,%s\n", i, i, dir, c, c)
	}
	info += "9 20 0:9 / " + dir + "/unified rw - cgroup2 cgroup2 rw\nnonsense\n"
	h, err := Find(info)
	if err != nil {
		t.Fatal(err)
	}
	g := Group{H: h, Path: "/a/b"}
	write(t, dir, map[string]string{
		"memory/a/b/memory.limit_in_bytes":       "1048576\n",
		"memory/a/b/memory.memsw.limit_in_bytes": "1048576\n",
		"memory/a/b/memory.oom_control":          "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
		"memory/a/b/memory.max_usage_in_bytes":   "777\n",
		"pids/a/b/pids.max":                      "64\n",
		"pids/a/b/pids.events":                   "max 5\n",
		"cpu,cpuacct/a/b/cpu.cfs_quota_us":       "150000\n",
		"cpu,cpuacct/a/b/cpu.cfs_period_us":      "100000\n",
		"cpu,cpuacct/a/b/cpuacct.usage":          "1000000\n",
	})
	limits, err := g.Limits()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(limits, Limits{MemoryBytes: 1048576, Pids: 64, MilliCPUs: 1500}); diff != "" {
		t.Error(diff)
	}
	usage, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(usage, Usage{OOMKills: 3, PidsHit: 5, MaxMemoryBytes: 777, CPU: time.Millisecond}); diff != "" {
		t.Error(diff)
	}
	write(t, dir, map[string]string{"cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1\n"})
	if limits, err = g.Limits(); err != nil || limits.MilliCPUs != Unlimited {
		t.Errorf("no quota: got %+v, %v", limits, err)
	}
	if err := os.Remove(filepath.Join(dir, "memory/a/b/memory.memsw.limit_in_bytes")); err != nil {
		t.Fatal(err)
	}
	if limits, err = g.Limits(); err != nil || limits.SwapBytes != Unlimited {
		t.Errorf("no swap accounting: got %+v, %v", limits, err)
	}
}

func TestVersion2IsRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"cgroup.controllers":  "cpuset cpu io memory hugetlb pids\n",
		"a/memory.max":        "4096\n",
		"a/memory.swap.max":   "0\n",
		"a/memory.events":     "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n",
		"a/memory.peak":       "123\n",
		"a/pids.max":          "max\n",
		"a/pids.events":       "max 0\n",
		"a/cpu.max":           "50000 100000\n",
		"a/cpu.stat":          "usage_usec 2000\nuser_usec 1\n",
		"a/cgroup.procs":      "12\n0\n13\n",
		"a/sub/cgroup.procs":  "",
		"other/cgroup.procs":  "1\n",
		"a/cgroup.controller": "",
	})
	h, err := Find("30 20 0:26 / " + dir + " rw shared:4 - cgroup2 cgroup2 rw\n")
	if err != nil {
		t.Fatal(err)
	}
	g := Group{H: h, Path: "/a"}
	limits, err := g.Limits()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(limits, Limits{MemoryBytes: 4096, Pids: Unlimited, MilliCPUs: 500}); diff != "" {
		t.Error(diff)
	}
	usage, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(usage, Usage{OOMKills: 2, MaxMemoryBytes: 123, CPU: 2 * time.Millisecond}); diff != "" {
		t.Error(diff)
	}
	pids, err := g.Processes()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pids, []int{12, 13}); diff != "" {
		t.Error(diff)
	}
}

func TestMissingControllersAndFilesAreErrors(t *testing.T) {
	if _, err := Find("1 20 0:1 / /x rw - cgroup cgroup rw,memory\n"); err == nil {
		t.Error("hierarchies without pids were found")
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"cgroup.controllers": "memory pids cpu\n", "a/memory.max": "much\n"})
	h, err := Find("30 20 0:26 / " + dir + " rw - cgroup2 cgroup2 rw\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Group{H: h, Path: "/a"}).Limits(); err == nil {
		t.Error("limits of nonsense were read")
	}
	if _, err := (Group{H: h, Path: "/none"}).Usage(); err == nil {
		t.Error("usage of no group was read")
	}
	if err := (Group{H: h, Path: "/none"}).Remove(); err != nil {
		t.Errorf("removing no group: %v", err)
	}
}
