package reach

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	someUID = 61501
	someGID = 61502
)

// folder makes a folder that others pass through, below one that all may write to
// and that is sticky.
func folder(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root takes the identity of others")
	}
	dir, err := os.MkdirTemp("", "reach") //nolint:usetesting // others pass through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	must(t, os.Chmod(dir, 0o755))
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func file(t *testing.T, path string, uid, gid int, mode os.FileMode) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte("secret"), 0o600))
	must(t, os.Chown(path, uid, gid))
	must(t, os.Chmod(path, mode))
	return path
}

func user(groups ...uint32) User {
	return User{Name: "agent", UID: someUID, identities: []identity{{uid: someUID, gid: someUID, groups: groups}}}
}

func codes(all []Finding) []string {
	out := []string{}
	for _, f := range all {
		out = append(out, f.Code+" "+f.What)
	}
	slices.Sort(out)
	return out
}

func examine(t *testing.T, u User, targets Targets) []string {
	t.Helper()
	found, err := Examine([]User{u}, targets)
	must(t, err)
	for _, f := range found {
		if f.User != "agent" || f.Fix == "" {
			t.Errorf("got %+v", f)
		}
	}
	return codes(found)
}

func TestWhatTheKernelAllowsIsFound(t *testing.T) {
	dir := folder(t)
	open := file(t, filepath.Join(dir, "open"), 0, 0, 0o644)
	shut := file(t, filepath.Join(dir, "shut"), 0, 0, 0o600)
	ofGroup := file(t, filepath.Join(dir, "group"), 0, someGID, 0o660)
	own := file(t, filepath.Join(dir, "own"), someUID, 0, 0o400)
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	must(t, os.Chmod(filepath.Join(dir, "folder"), 0o777))
	below := file(t, filepath.Join(dir, "folder", "program"), 0, 0, 0o755)
	must(t, os.Symlink(below, filepath.Join(dir, "link")))
	q := func(code string, path string) string { return code + ` "` + path + `"` }

	for _, tt := range []struct {
		name   string
		groups []uint32
		t      Targets
		want   []string
	}{
		{"a secret that nobody reads", nil, Targets{Secrets: []string{shut, filepath.Join(dir, "absent")}}, []string{}},
		{"a secret that all read", nil, Targets{Secrets: []string{open}}, []string{q(SecretReadable, open)}},
		{"a program that all read", nil, Targets{Programs: []string{open}}, []string{}},
		{"a group that it is not in", nil, Targets{Secrets: []string{ofGroup}}, []string{}},
		{"a group that it is in", []uint32{someGID}, Targets{Secrets: []string{ofGroup}}, []string{q(PathWritable, ofGroup), q(SecretReadable, ofGroup)}},
		{"what it owns, it can make writable", nil, Targets{Programs: []string{own}}, []string{q(PathWritable, own)}},
		{"a folder above", nil, Targets{Programs: []string{below}}, []string{q(PathWritable, filepath.Join(dir, "folder"))}},
		{"a folder behind a link", nil, Targets{Programs: []string{filepath.Join(dir, "link")}}, []string{q(PathWritable, filepath.Join(dir, "folder"))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, examine(t, user(tt.groups...), tt.t)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if data, err := os.ReadFile(ofGroup); err != nil || string(data) != "secret" {
		t.Errorf("the probe changed what it tried: %q, %v", data, err)
	}
}

func TestAnEnginesSocketIsFoundAlsoWhereNobodyListens(t *testing.T) {
	dir := folder(t)
	path := filepath.Join(dir, "s")
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", path)
	must(t, err)
	must(t, os.Chown(path, 0, someGID))
	must(t, os.Chmod(path, 0o660))
	targets := Targets{Sockets: []string{path, filepath.Join(dir, "absent")}}
	if got := examine(t, user(), targets); len(got) != 0 {
		t.Errorf("another's: got %q", got)
	}
	want := []string{EngineReachable + ` "` + path + `"`}
	if diff := cmp.Diff(want, examine(t, user(someGID), targets)); diff != "" {
		t.Error(diff)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, l.Close())
	if diff := cmp.Diff(want, examine(t, user(someGID), targets)); diff != "" {
		t.Error("nobody listens:", diff)
	}
}

func TestWhatIsLookedUp(t *testing.T) {
	folder(t)
	root := User{Name: "agent", UID: 0}
	if got := examine(t, root, Targets{}); len(got) != 1 || !strings.HasPrefix(got[0], UserIsRoot) {
		t.Errorf("got %q", got)
	}
	u := user()
	u.root = []string{"docker"}
	if got := examine(t, u, Targets{UIDs: []uint32{someUID}}); len(got) != 2 || !strings.HasPrefix(got[0], GroupGivesRoot) || !strings.HasPrefix(got[1], SameUser) {
		t.Errorf("got %q", got)
	}
	u = User{Name: "agent", UID: someUID}
	found, err := Examine([]User{u}, Targets{})
	must(t, err)
	if len(found) != 1 || found[0].Code != UserUnknown || !found[0].Untold() {
		t.Errorf("got %+v", found)
	}
	u = user()
	u.identities = slices.Repeat(u.identities, maxIdentities)
	if got := examine(t, u, Targets{}); len(got) != 1 || !strings.HasPrefix(got[0], UserUnknown) {
		t.Errorf("got %q", got)
	}
	found, err = Examine(nil, Targets{})
	must(t, err)
	if len(found) != 1 || found[0].Code != NoUserKnown || !found[0].Untold() {
		t.Errorf("nobody: got %+v", found)
	}
}

func TestAThreadThatIsNotTheUserIsNoEvidence(t *testing.T) {
	folder(t)
	u := user()
	u.identities[0].groups = []uint32{7, 5} // never what the kernel says
	if got := examine(t, u, Targets{}); len(got) != 1 || !strings.HasPrefix(got[0], NotTried) {
		t.Errorf("got %q", got)
	}
	if os.Geteuid() != 0 || syscall.Getuid() != 0 {
		t.Error("this process became the user")
	}
}

func TestSudoersThatNameAUser(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sudoers")
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "d", "rules"), []byte("carol ALL=(root) /usr/bin/apt-get\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "d", "off.bak"), []byte("dave ALL=(ALL) ALL\n"), 0o600))
	must(t, os.WriteFile(path, []byte(`# frank ALL=(ALL) ALL
Defaults env_reset
User_Alias	ADMINS = alice, \
	bob
Cmnd_Alias GRACE = /bin/grace
root ALL=(ALL:ALL) ALL
ADMINS ALL=(ALL) ALL
%ops	HOST=(ALL) NOPASSWD: ALL
#4711 ALL=(ALL) ALL
@includedir d
`), 0o600))
	s, err := readSudoers(path)
	must(t, err)
	for _, tt := range []struct {
		u    User
		gids []uint32
		want string
	}{
		{User{Name: "alice", UID: 1}, nil, "alice"},
		{User{Name: "bob", UID: 1}, nil, "bob"},
		{User{Name: "carol", UID: 1}, nil, "carol"},
		{User{Name: "dave", UID: 1}, nil, ""},
		{User{Name: "erin", UID: 1, groups: []string{"users", "ops"}}, nil, "%ops"},
		{User{Name: "frank", UID: 1}, nil, ""},
		{User{Name: "grace", UID: 1}, nil, ""},
		{User{Name: "heidi", UID: 4711}, nil, "#4711"},
		{User{Name: "HOST", UID: 1}, nil, ""},
	} {
		if got, _ := s.of(tt.u, tt.gids); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.u.Name, got, tt.want)
		}
	}
	must(t, os.WriteFile(path, []byte("ALL ALL=(ALL) ALL\n"), 0o600))
	s, err = readSudoers(path)
	must(t, err)
	if got, _ := s.of(User{Name: "dave", UID: 1}, nil); got != "ALL" {
		t.Errorf("got %q", got)
	}
	must(t, os.WriteFile(path, []byte("@include sudoers\n"), 0o600))
	if _, err := readSudoers(path); err == nil {
		t.Error("a file that includes itself was read")
	}
	rs := filepath.Join(dir, "sudoers-rs")
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.WriteFile(rs, []byte("dave ALL=(ALL) ALL\n"), 0o600))
	s, err = readSudoers(path, rs)
	must(t, err)
	if got, at := s.of(User{Name: "dave", UID: 1}, nil); got != "dave" || at != rs {
		t.Errorf("got %q of %s", got, at)
	}
	if s, err := readSudoers(filepath.Join(dir, "absent")); err != nil || len(s.names) != 0 {
		t.Errorf("got %v, %v", s, err)
	}
}

// Whoever logs in as one of the names of a uid may do what the others may.
func TestAUserIsAllTheNamesOfItsUID(t *testing.T) {
	a := Accounts{
		users:  map[string]identity{"alice": {uid: 7, gid: 8}, "alias": {uid: 7, gid: 9}},
		groups: []group{{"docker", 20, []string{"alias"}}, {"ops", 9, nil}},
	}
	for _, name := range []string{"alice", "alias", "7"} {
		u, ok := a.User(name)
		if !ok || len(u.identities) != 2 || !slices.Equal(u.root, []string{"docker"}) || !slices.Equal(u.names, []string{"alias", "alice"}) {
			t.Errorf("%s: got %+v, %t", name, u, ok)
		}
		s := sudoers{names: map[string]string{"alias": "/etc/sudoers"}}
		if word, _ := s.of(u, nil); word != "alias" {
			t.Errorf("%s: sudoers name it as %q", name, word)
		}
	}
}

func TestAProcessWithCapabilitiesIsFound(t *testing.T) {
	folder(t)
	command := exec.CommandContext(t.Context(), "sleep", "60")
	command.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: someUID, Gid: someUID}, AmbientCaps: []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_NET_RAW}, Pdeathsig: syscall.SIGKILL,
	}
	must(t, command.Start())
	defer func() {
		must(t, command.Process.Kill())
		_ = command.Wait() // it was killed
	}()
	a, err := ReadAccounts()
	must(t, err)
	u, ok := a.User(strconv.Itoa(someUID))
	if !ok || len(u.capable) != 1 || !strings.Contains(u.capable[0], "0x2004") {
		t.Errorf("got %+v, %t", u, ok)
	}
	found, err := Examine([]User{u}, Targets{})
	must(t, err)
	if len(found) != 1 || found[0].Code != HasCapabilities || found[0].Untold() {
		t.Errorf("got %+v", found)
	}
}

func TestEnginesAreFoundWhereverRootListens(t *testing.T) {
	dir := folder(t)
	var lc net.ListenConfig
	for _, name := range []string{"docker.sock", "another.sock"} {
		l, err := lc.Listen(t.Context(), "unix", filepath.Join(dir, name))
		must(t, err)
		defer l.Close()
	}
	got, err := ListeningEngines()
	must(t, err)
	if !slices.Contains(got, filepath.Join(dir, "docker.sock")) || slices.Contains(got, filepath.Join(dir, "another.sock")) {
		t.Errorf("got %q", got)
	}
	if HasACL(filepath.Join(dir, "docker.sock")) {
		t.Error("it has no access list")
	}
}

func TestWhatIsReachedIsNotCut(t *testing.T) {
	dir := folder(t)
	open := file(t, filepath.Join(dir, "open"), 0, 0, 0o644)
	targets := Targets{Secrets: []string{open}, Unknown: []string{"why"}}
	u := user()
	u.identities = slices.Repeat([]identity{{uid: someUID, gid: someUID, groups: []uint32{7, 5}}}, maxIdentities) // none can be tried
	for i := range u.identities {
		u.identities[i].gid += uint32(i)
	}
	u.identities = append(u.identities, identity{uid: someUID, gid: someUID})
	found, err := Examine([]User{u}, targets)
	must(t, err)
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.Code == SecretReadable }) || len(found) != maxFindings+1 {
		t.Errorf("%d findings: %+v", len(found), found)
	}
}

func TestAUserIsWhatItsProcessesAreToo(t *testing.T) {
	a := Accounts{
		users:  map[string]identity{"alice": {uid: 7, gid: 8}, "bob": {uid: 9, gid: 8}},
		groups: []group{{"users", 8, nil}, {"docker", 20, []string{"bob"}}, {"striatum", 30, []string{"alice"}}},
		processes: map[uint32][]identity{
			7:  {{7, 8, []uint32{30}}, {7, 8, []uint32{20, 30}}}, // the second began before alice left the group
			11: {{11, 30, nil}},
		},
	}
	alice, ok := a.User("alice")
	if !ok || len(alice.identities) != 2 || !slices.Equal(alice.root, []string{"docker"}) {
		t.Errorf("got %+v, %t", alice, ok)
	}
	if byUID, ok := a.User("7"); !ok || byUID.Name != "alice" || len(byUID.identities) != 2 {
		t.Errorf("got %+v, %t", byUID, ok)
	}
	if got := a.Members(30); !slices.Equal(got, []string{"11", "7", "alice"}) {
		t.Errorf("got %q", got)
	}
	if u, ok := a.User("11"); !ok || len(u.identities) != 1 || u.UID != 11 {
		t.Errorf("got %+v, %t", u, ok)
	}
	if u, ok := a.User("12"); !ok || len(u.identities) != 0 {
		t.Errorf("got %+v, %t", u, ok)
	}
	if _, ok := a.User("nobody-of-that-name"); ok {
		t.Error("a name that no user has was found")
	}
	uids, id, capabilities := process("Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t30\t8\t8\nGroups:\t30 4 \nCapInh:\tffff\nCapPrm:\t0000000000000002\nCapEff:\t0\n")
	if capabilities != 2 || !slices.Equal(uids, []uint32{7}) || id.gid != 8 || !slices.Equal(id.groups, []uint32{4, 30}) {
		t.Errorf("got %v, %+v", uids, id)
	}
	if _, err := ReadAccounts(); err != nil {
		t.Error(err)
	}
}
