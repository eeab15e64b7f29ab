package containerdengine

import (
	"errors"
	"fmt"
	"os"

	"striatum/internal/cgroup"
	"striatum/internal/initproto"
	"striatum/sandbox"
	"striatum/sandbox/ocispec"
)

// initFacets are what the launcher must report of every program.
var initFacets = []string{
	"namespace_pid", "namespace_net", "namespace_mnt", "namespace_ipc", "namespace_uts", "namespace_cgroup",
	"namespace_user", "id_map", "user", "no_new_privs", "capabilities", "seccomp", "read_only", "kernel_paths",
	"no_setuid", "disk", "network", "descriptors", "devices",
}

// posture gathers what was observed of one sandbox.
type posture struct {
	seccomp string
	lane    []sandbox.Facet
	init    map[string]sandbox.Facet
	seen    bool
}

// observe reads the lane's facets from the kernel's files.
func (b *box) observe() (*posture, error) {
	got, err := b.group.Limits()
	if err != nil {
		return nil, err
	}
	p := &posture{seccomp: b.e.filter.SHA256, init: map[string]sandbox.Facet{}}
	add := func(name, required, observed string, ok bool) {
		p.lane = append(p.lane, sandbox.Facet{Name: name, Required: required, Observed: observed, Observer: "lane", OK: ok})
	}
	l := b.limits
	page := int64(os.Getpagesize())
	add("memory", fmt.Sprintf("%d bytes", l.MemoryBytes), amount(got.MemoryBytes, "bytes"),
		got.MemoryBytes <= l.MemoryBytes && got.MemoryBytes > l.MemoryBytes-page)
	swap := amount(got.SwapBytes, "bytes")
	if got.SwapBytes == cgroup.Unlimited && !hostSwaps() {
		swap, got.SwapBytes = "the host has none", 0
	}
	add("swap", "none", swap, got.SwapBytes == 0)
	pids := l.Pids + ocispec.InitPids
	add("pids", fmt.Sprintf("%d, %d of them for init", pids, ocispec.InitPids), amount(got.Pids, ""), got.Pids == pids)
	add("cpu", fmt.Sprintf("%d thousandths", l.MilliCPUs), amount(got.MilliCPUs, "thousandths"), got.MilliCPUs == l.MilliCPUs)
	add("wall_clock", "limited", fmt.Sprintf("%v, kept by the lane", l.WallClock), true)
	add("output", "limited", fmt.Sprintf("%d bytes, counted by the lane", l.OutputBytes), true)
	add("id_range", "nobody's, one sandbox's", fmt.Sprintf("%d ids from %d, locked", ocispec.IDRange, b.ids.Base), true)
	trust := "root's alone"
	if b.e.trust != nil {
		trust = b.e.trust.Error()
	}
	add("engine_binaries", "root's alone", trust, b.e.trust == nil)
	return p, nil
}

func amount(n int64, unit string) string {
	if n == cgroup.Unlimited {
		return "unlimited"
	}
	if unit == "" {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// hostSwaps says whether the host has any swap space.
func hostSwaps() bool {
	data, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return true
	}
	lines := 0
	for _, c := range data {
		if c == '\n' {
			lines++
		}
	}
	return lines > 1
}

// add takes the launcher's report of one program. What was not OK once stays
// so. A report of anything unknown, or twice, is refused.
func (p *posture) add(facets []initproto.Facet) error {
	seen := map[string]bool{}
	for _, f := range facets {
		if seen[f.Name] {
			return fmt.Errorf("%w: facet %q is reported twice", initproto.ErrFrame, f.Name)
		}
		seen[f.Name] = true
		if old, ok := p.init[f.Name]; !ok || old.OK {
			p.init[f.Name] = sandbox.Facet{Name: f.Name, Required: f.Required, Observed: f.Observed, Observer: "init", OK: f.OK}
		}
	}
	p.seen = true
	for _, name := range initFacets {
		if !seen[name] {
			p.init[name] = missing(name)
			return errors.New("facet " + name + " was not observed")
		}
	}
	if len(seen) != len(initFacets) {
		return fmt.Errorf("%w: unknown facets", initproto.ErrFrame)
	}
	return nil
}

func missing(name string) sandbox.Facet {
	return sandbox.Facet{Name: name, Required: "observed", Observed: sandbox.NotObserved, Observer: "init"}
}

// merged returns every facet, in a fixed order.
func (p *posture) merged() sandbox.Posture {
	out := sandbox.Posture{SeccompSHA256: p.seccomp}
	for _, name := range initFacets {
		f, ok := p.init[name]
		if !ok {
			f = missing(name)
		}
		out.Facets = append(out.Facets, f)
	}
	out.Facets = append(out.Facets, p.lane...)
	return out
}
