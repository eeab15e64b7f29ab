// Package probe looks, for commands that run as root on a lane's host, whether the
// lane may count as isolated: it tries, as the users of sessions, what they reach
// (package reach).
package probe

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/service"
	"striatum/internal/home"
	"striatum/internal/installation"
	"striatum/internal/problem"
	"striatum/internal/reach"
	"striatum/sandbox/containerdengine"
	"striatum/seal"
	"striatum/store"
)

const what = "probe the lane's host"

// SchemaVersion marks what `striatum lane probe --output json` prints.
const SchemaVersion = "striatum.lane_probe.v1"

// Found is what a probe of a lane's host found. Verdict is "isolated",
// "not_isolated" or "cannot_tell".
type Found struct {
	SchemaVersion string          `json:"schema_version"`
	LaneID        string          `json:"lane_id"`
	Verdict       string          `json:"verdict"`
	Users         []string        `json:"users"`
	Findings      []reach.Finding `json:"findings"`
}

// Examine probes the host of the lane in dir: as the users named, and as those that
// the daemon and its socket know. tokens are files of tokens; those that are empty or
// absent are passed over.
func Examine(ctx context.Context, f *cli.Factory, s *service.Session, dir string, named, tokens []string) (Found, error) {
	host, err := s.Host(ctx)
	if err != nil {
		return Found{}, err
	}
	accounts, err := reach.ReadAccounts()
	if err != nil {
		return Found{}, problem.Wrap(problem.Missing, err, what, "run it as root on the lane's host, which is Linux")
	}
	p := Found{SchemaVersion: SchemaVersion, Users: []string{}, Findings: []reach.Finding{}}
	users, err := p.suspects(accounts, host, named, f.DaemonSocket())
	if err != nil {
		return Found{}, err
	}
	targets, err := targets(f, host, dir, tokens)
	if err != nil {
		return Found{}, err
	}
	findings, err := reach.Examine(users, targets)
	if err != nil {
		return Found{}, problem.Wrap(problem.Missing, err, what, "run it as root on the lane's host")
	}
	for _, u := range users {
		p.Users = append(p.Users, u.Name)
	}
	for _, finding := range findings {
		p.add(finding)
	}
	if s.Is.StoreClass != seal.ClassIsolated {
		p.add(reach.Finding{Code: reach.StoreShared, What: "the daemon's store is shared", Fix: "see why: curl --unix-socket " + f.DaemonSocket() + " http://striatumd/healthz"})
	}
	p.verdict()
	return p, nil
}

// suspects are the users of sessions, each once: those named, those whom the daemon
// has seen, and those whom its socket lets in, but for root, the daemon's own user
// and operators.
func (p *Found) suspects(a reach.Accounts, host daemon.Host, named []string, socket string) ([]reach.User, error) {
	var users []reach.User
	add := func(name string, spared func(reach.User) bool) bool {
		u, ok := a.User(name)
		same := func(o reach.User) bool { return o.UID == u.UID }
		if ok && !spared(u) && !slices.ContainsFunc(users, same) {
			users = append(users, u)
		}
		return ok
	}
	nobody := func(reach.User) bool { return false }
	for _, name := range named {
		if !add(name, nobody) {
			return nil, problem.New(problem.Usage, what, fmt.Sprintf("there is no user %q", name), "--user takes a name that /etc/passwd has, or a uid")
		}
	}
	for _, uid := range host.SessionUIDs {
		add(strconv.FormatUint(uint64(uid), 10), nobody)
	}
	st, err := os.Stat(socket)
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, what, "see that striatumd runs")
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || st.Mode().Perm()&0o002 != 0 {
		p.add(reach.Finding{Code: reach.UserUnknown, What: "every user may connect to " + socket, Fix: "chmod 0660 " + socket})
	}
	if reach.HasACL(socket) {
		p.add(reach.Finding{Code: reach.UserUnknown, What: "an access list says who else may connect to " + socket, Fix: "setfacl --remove-all " + socket})
	}
	if ok {
		for _, name := range a.Members(sys.Gid) {
			add(name, func(u reach.User) bool {
				return u.UID == 0 || u.UID == host.UID || slices.Contains(host.OperatorUIDs, u.UID)
			})
		}
	}
	if more := len(users) - daemon.MaxProbeUsers; more > 0 {
		users = users[:daemon.MaxProbeUsers]
		p.add(reach.Finding{Code: reach.UserUnknown, What: fmt.Sprintf("%d users beyond %d were not tried", more, daemon.MaxProbeUsers), Fix: "let fewer users connect to " + socket})
	}
	return users, nil
}

// targets are what the users must not reach.
func targets(f *cli.Factory, host daemon.Host, dir string, tokens []string) (t reach.Targets, err error) {
	h := &home.Home{Dir: dir}
	settings, err := h.Settings()
	if err != nil {
		return t, err
	}
	self, err := os.Executable()
	if err != nil {
		return t, problem.Wrap(problem.Missing, err, what, "")
	}
	for _, path := range append([]string{"/etc/shadow", "/etc/gshadow", installation.OperatorToken, installation.LaneToken, h.Dir, h.KeyPath("lane"), h.KeyPath("report"), h.ConfigPath()}, append(tokens, host.Files...)...) {
		if path == "" {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return t, problem.Wrap(problem.Missing, err, what, "")
		}
		t.Secrets = append(t.Secrets, path)
	}
	if len(host.Files) > 0 { // the first is the daemon's home
		t.Secrets = append(t.Secrets, (&home.Home{Dir: host.Files[0]}).KeyPath("report"))
	} else {
		t.Unknown = append(t.Unknown, "the daemon does not say where its files are")
	}
	engine := containerdengine.Config{
		ContainerdPath: settings.ContainerdPath, ShimPath: settings.ShimPath, RuncPath: settings.RuncPath,
		InitPath: filepath.Join(filepath.Dir(self), "striatum-init"),
	}
	socket := f.DaemonSocket()
	t.UIDs = []uint32{host.UID}
	t.Programs = append(containerdengine.Programs(engine), self, filepath.Dir(socket))
	program, uid, err := reach.Listener(socket)
	switch {
	case err != nil:
		t.Unknown = append(t.Unknown, fmt.Sprintf("which program the daemon is: %v", err))
	case uid != host.UID:
		t.Unknown = append(t.Unknown, fmt.Sprintf("the daemon says that it is uid %d, and the kernel %d", host.UID, uid))
	default:
		t.Programs = append(t.Programs, strings.TrimSuffix(program, " (deleted)"))
	}
	t.Programs = append(t.Programs, filepath.Dir(installation.LaneSocket), installation.DaemonUnit, installation.LaneUnit)
	t.Programs = append(t.Programs, reach.RootFiles...)
	listening, err := reach.ListeningEngines()
	if err != nil {
		t.Unknown = append(t.Unknown, fmt.Sprintf("on which sockets engines listen: %v", err))
	}
	switch docker, err := reach.OnDockersPort(); {
	case err != nil:
		t.Unknown = append(t.Unknown, fmt.Sprintf("whether Docker listens on TCP: %v", err))
	case docker:
		t.Unknown = append(t.Unknown, "a program of root listens on TCP port 2375, where Docker lets everybody in")
	}
	t.Sockets = append(append(t.Sockets, reach.EngineSockets...), listening...)
	if settings.Containerd != "" {
		t.Sockets = append(t.Sockets, settings.Containerd)
	}
	private, err := filepath.Glob("/run/striatum/*/containerd.sock")
	t.Sockets = append(t.Sockets, private...)
	return t, err
}

// Shared adds that the lane is enrolled as shared.
func (p *Found) Shared() {
	p.add(reach.Finding{Code: reach.EnrolledShared, What: "the lane is enrolled as shared, which no probe raises", Fix: "give the lane a new key, and enrol that as isolated"})
}

// add adds a finding and says what follows from all.
func (p *Found) add(f reach.Finding) {
	p.Findings = append(p.Findings, f)
	p.verdict()
}

func (p *Found) verdict() {
	switch {
	case slices.ContainsFunc(p.Findings, func(f reach.Finding) bool { return !f.Untold() }):
		p.Verdict = "not_isolated"
	case len(p.Findings) > 0 || len(p.Users) == 0:
		p.Verdict = "cannot_tell"
	default:
		p.Verdict = "isolated"
	}
}

// Record is what the daemon keeps of it.
func (p Found) Record() daemon.Probe {
	out := daemon.Probe{}
	for _, u := range p.Users {
		out.Users = append(out.Users, cut(u))
	}
	findings := slices.Clone(p.Findings)
	slices.SortStableFunc(findings, func(a, b reach.Finding) int { return cmp.Compare(untold(a), untold(b)) })
	for i, f := range findings {
		if left := len(findings) - i; i == daemon.MaxProbeFindings-1 && left > 1 {
			out.Findings = append(out.Findings, store.ProbeFinding{Code: f.Code, What: fmt.Sprintf("and %d more findings", left-1)})
			break
		}
		out.Findings = append(out.Findings, store.ProbeFinding{Code: f.Code, User: cut(f.User), What: cut(f.What), Reach: untold(f) == 0})
	}
	return out
}

// untold is 0 for what a user reaches, and 1 for what could not be told, or what is
// shared anyway.
func untold(f reach.Finding) int {
	if f.Untold() || f.Code == reach.EnrolledShared || f.Code == reach.StoreShared {
		return 1
	}
	return 0
}

// cut makes a text what the daemon keeps.
func cut(s string) string {
	if len(s) > daemon.MaxProbeTextBytes {
		s = s[:daemon.MaxProbeTextBytes]
	}
	return strings.ToValidUTF8(s, "")
}

// Exit is how a command ends that found this.
func (p Found) Exit() error {
	switch p.Verdict {
	case "isolated":
		return nil
	case "not_isolated":
		return cli.SilentError{Kind: problem.No}
	}
	return cli.SilentError{Kind: problem.Missing}
}

// Show prints it.
func (p Found) Show(s cli.Streams, out cli.Output) error {
	if out == cli.JSON {
		return s.WriteJSON(p)
	}
	var b strings.Builder
	words := map[string]string{"isolated": "isolated", "not_isolated": "not isolated", "cannot_tell": "whether it is isolated cannot be told"}
	users := "nobody"
	if len(p.Users) > 0 {
		users = strings.Join(p.Users, ", ")
	}
	fmt.Fprintf(&b, "lane %s: %s; tried: %s\n", cli.Escape(p.LaneID), words[p.Verdict], cli.Escape(users))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, f := range p.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n\t\tfix: %s\n", f.Code, cli.Escape(f.User), cli.Escape(f.What), cli.Escape(f.Fix))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(s.Out, b.String())
	return err
}
