// Package ocispec builds the OCI runtime specification of a sandbox from small
// options. Without any option it already has everything that is never left
// out: its own namespaces, a read-only root, no_new_privs, no device but the
// pseudo devices, masked and read-only parts of /proc, no /sys, and no
// environment. No option takes any of that away.
//
// The seccomp profile is not here: striatum-init puts it on each program, see
// package seccompfilter.
package ocispec

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"striatum/sandbox"
)

// IDRange is how many ids a sandbox's user namespace maps, from 0 up.
const IDRange = 65536

// InitPids is how many tasks striatum-init may have beside those that
// sandbox.Limits.Pids allows.
const InitPids = 24

// cpuPeriod is the accounting period of the CPU limit in microseconds.
const cpuPeriod = 100_000

// Option edits a specification.
type Option func(*specs.Spec)

// New returns the specification of a sandbox whose first process is args.
func New(args []string, options ...Option) *specs.Spec {
	s := &specs.Spec{
		Version:  "1.0.2",
		Root:     &specs.Root{Readonly: true},
		Hostname: "check",
		Process: &specs.Process{
			Args: args, Cwd: "/", NoNewPrivileges: true, Capabilities: &specs.LinuxCapabilities{},
			// One byte: no core file is that small, and a kernel that pipes
			// cores to a program of the host takes it for "not at all".
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: 1, Hard: 1}},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "ro"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "noexec", "mode=755", "size=4k"}},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.CgroupNamespace},
			},
			Resources:         &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}}},
			RootfsPropagation: "private",
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
				"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/proc/kpagecount",
				"/proc/kpageflags", "/proc/kpagecgroup", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/config.gz",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// WithRoot sets the folder, an absolute host path, that is the root.
func WithRoot(path string) Option {
	return func(s *specs.Spec) { s.Root.Path = path }
}

// WithUserNamespace maps the ids from 0 up to those from base up.
func WithUserNamespace(base uint32) Option {
	return func(s *specs.Spec) {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		m := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: IDRange}}
		s.Linux.UIDMappings, s.Linux.GIDMappings = m, m
	}
}

// WithCapabilities gives the first process caps in its user namespace.
func WithCapabilities(caps ...string) Option {
	return func(s *specs.Spec) {
		s.Process.Capabilities.Bounding = caps
		s.Process.Capabilities.Effective = caps
		s.Process.Capabilities.Permitted = caps
	}
}

// WithLimits sets the limits that cgroups keep, below the cgroup path.
func WithLimits(path string, l sandbox.Limits) Option {
	return func(s *specs.Spec) {
		memory, pids := l.MemoryBytes, l.Pids+InitPids
		quota, period := l.MilliCPUs*cpuPeriod/1000, uint64(cpuPeriod)
		s.Linux.CgroupsPath = path
		s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &memory, Swap: &memory}
		s.Linux.Resources.Pids = &specs.LinuxPids{Limit: &pids}
		s.Linux.Resources.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
}

// WithOpenFiles limits descriptors.
func WithOpenFiles(soft, hard uint64) Option {
	return func(s *specs.Spec) {
		s.Process.Rlimits = append(s.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Soft: soft, Hard: hard})
	}
}

// WithReadOnly shows source, with all that is mounted below it, unchangeable
// at target.
func WithReadOnly(source, target string) Option {
	return WithMount(source, target, "rbind", "rro", "nosuid", "nodev", "rnosuid", "rnodev", "rprivate")
}

// WithWritable shows source writable at target.
func WithWritable(source, target string) Option {
	return WithMount(source, target, "bind", "rw", "nosuid", "nodev", "private")
}

// WithMount binds source at target.
func WithMount(source, target string, options ...string) Option {
	return func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: target, Type: "bind", Source: source, Options: options})
	}
}

// WithGroup lets the container share a shim with others of the same group.
func WithGroup(group string) Option {
	return func(s *specs.Spec) {
		s.Annotations = map[string]string{"io.containerd.runc.v2.group": group}
	}
}
