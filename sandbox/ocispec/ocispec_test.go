package ocispec

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"striatum/sandbox"
)

var limits = sandbox.Limits{WallClock: time.Second, MemoryBytes: 1 << 20, Pids: 10, MilliCPUs: 1500, OutputBytes: 1, DiskBytes: 1}

func full() *specs.Spec {
	return New([]string{"/init"}, WithRoot("/root"), WithUserNamespace(1<<20), WithCapabilities("CAP_KILL"),
		WithLimits("/group/x", limits), WithOpenFiles(10, 20), WithReadOnly("/usr", "/usr"), WithWritable("/vol", "/out"), WithGroup("g"))
}

func TestNothingWeakensTheSpecification(t *testing.T) {
	for name, s := range map[string]*specs.Spec{"bare": New([]string{"/init"}), "full": full()} {
		if !s.Root.Readonly || !s.Process.NoNewPrivileges || len(s.Process.Env) != 0 || s.Process.Terminal {
			t.Errorf("%s: root or process is weak: %+v, %+v", name, s.Root, s.Process)
		}
		if d := s.Linux.Resources.Devices; len(d) != 1 || d[0].Allow {
			t.Errorf("%s: devices are allowed: %+v", name, d)
		}
		if len(s.Linux.Devices) != 0 || s.Linux.Seccomp != nil || s.Hooks != nil {
			t.Errorf("%s: there are devices, a profile or hooks", name)
		}
		for _, want := range []specs.LinuxNamespaceType{
			specs.PIDNamespace, specs.NetworkNamespace, specs.MountNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace,
		} {
			i := slices.IndexFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == want })
			if i < 0 || s.Linux.Namespaces[i].Path != "" {
				t.Errorf("%s: namespace %s is missing or somebody's", name, want)
			}
		}
		for _, m := range s.Mounts {
			if strings.HasPrefix(m.Destination, "/sys") || m.Type == "sysfs" || m.Type == "cgroup" {
				t.Errorf("%s: %s is mounted", name, m.Destination)
			}
			if !slices.Contains(m.Options, "nosuid") {
				t.Errorf("%s: %s honours set-user-id", name, m.Destination)
			}
		}
		if !slices.Contains(s.Linux.MaskedPaths, "/proc/kcore") || !slices.Contains(s.Linux.ReadonlyPaths, "/proc/sys") {
			t.Errorf("%s: kernel paths are open", name)
		}
	}
}

func TestLimitsAndIdsAreAsGiven(t *testing.T) {
	s := full()
	r := s.Linux.Resources
	if *r.Memory.Limit != 1<<20 || *r.Memory.Swap != 1<<20 || *r.Pids.Limit != 10+InitPids || *r.CPU.Quota != 150_000 || *r.CPU.Period != 100_000 {
		t.Errorf("resources: %+v %+v %+v", r.Memory, r.Pids, r.CPU)
	}
	m := s.Linux.UIDMappings
	if len(m) != 1 || m[0] != (specs.LinuxIDMapping{ContainerID: 0, HostID: 1 << 20, Size: IDRange}) || len(s.Linux.GIDMappings) != 1 {
		t.Errorf("mappings: %+v", m)
	}
	c := s.Process.Capabilities
	if len(c.Ambient) != 0 || len(c.Inheritable) != 0 || !slices.Equal(c.Bounding, []string{"CAP_KILL"}) {
		t.Errorf("capabilities: %+v", c)
	}
	if s.Linux.CgroupsPath != "/group/x" || s.Annotations["io.containerd.runc.v2.group"] != "g" || s.Root.Path != "/root" {
		t.Errorf("names: %+v", s)
	}
}
