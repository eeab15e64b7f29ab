// Package installation sets up striatumd and a lane on a Linux host: accounts,
// folders, files and systemd units, each of which is made where it is missing and
// left alone where it is there.
//
// What is there is looked at before anything is made. A file whose content is not
// what would be written, a folder of somebody else, a home that a user's striatum
// made, and programs that others than root could change are refused, and nothing is
// changed. A kill at any point leaves what the next run completes. It starts
// useradd, groupadd, usermod and systemctl of the host, and striatumd.
package installation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"striatum/internal/problem"
	"striatum/internal/reach"
	"striatum/seal"
)

// Where things are.
const (
	User          = "striatumd" // of the daemon
	Group         = "striatum"  // of whoever may connect
	ConfigPath    = "/etc/striatumd/config.json"
	OperatorToken = "/etc/striatumd/operator.token" //nolint:gosec // the path of a file
	LaneToken     = "/etc/striatum-lane/lane.token" //nolint:gosec // likewise
	Home          = "/var/lib/striatumd"
	LaneHome      = "/var/lib/striatum-lane"
	Socket        = "/run/striatumd/striatumd.sock"
	LaneSocket    = "/run/striatum-lane/lane.sock"
	DaemonUnit    = "/etc/systemd/system/striatumd.service"
	LaneUnit      = "/etc/systemd/system/striatum-lane.service"
)

const what = "set up the system"

// maxFileBytes bounds a file that is compared.
const maxFileBytes = 64 << 10

// Step makes one thing. Text says what, as a command or a file with its mode and
// owner; Content is the file's.
type Step struct {
	Text    string
	Content string
	// there reports whether it is made already; the error is a refusal.
	there func() (bool, error)
	// make makes it.
	make func() error
}

// There reports whether the step's thing is there, and needs nothing. The error is a
// problem of kind Refused where something else is in its place.
func (s Step) There() (bool, error) { return s.there() }

// Make makes the step's thing.
func (s Step) Make() error { return s.make() }

// Setup is what a host gets.
type Setup struct {
	dir       string // of the programs
	agents    []string
	operators []string
	uids      []uint32 // of operators
}

// New plans a setup whose programs lie beside self. agents are the users of
// sessions, operators those that may call as operators beside root. Errors are
// problems.
func New(self string, agents, operators []string) (*Setup, error) {
	real, err := filepath.EvalSymlinks(self)
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, what, "")
	}
	s := &Setup{dir: filepath.Dir(real), agents: agents, operators: operators}
	accounts, err := reach.ReadAccounts()
	if err != nil {
		return nil, problem.Wrap(problem.Missing, err, what, "run it on Linux")
	}
	seen := map[uint32]string{}
	daemon, there := accounts.User(User)
	for _, list := range [][]string{agents, operators} {
		for _, name := range list {
			u, ok := accounts.User(name)
			switch {
			case !ok || u.Name != name:
				return nil, problem.New(problem.Usage, what, fmt.Sprintf("there is no user %q", name), "name users that /etc/passwd has")
			case u.UID == 0 || name == User:
				return nil, problem.New(problem.Usage, what, fmt.Sprintf("%s needs no mention, and is no agent", name), "give every agent a user of its own")
			case there && u.UID == daemon.UID:
				return nil, problem.New(problem.Usage, what, fmt.Sprintf("%s has the uid of %s, the daemon's user", name, User), "give each a number of its own")
			case seen[u.UID] != "":
				return nil, problem.New(problem.Usage, what, fmt.Sprintf("%s is named twice", name), "an agent's user is no operator's")
			}
			seen[u.UID] = name
		}
	}
	for _, name := range operators {
		u, _ := accounts.User(name)
		s.uids = append(s.uids, u.UID)
	}
	slices.Sort(s.uids)
	return s, nil
}

// program is the path of one of ours.
func (s *Setup) program(name string) string { return filepath.Join(s.dir, name) }

// CheckPrograms refuses programs that others than root could change. Errors are
// problems.
func (s *Setup) CheckPrograms() error {
	for _, name := range []string{"striatum", "striatumd", "striatum-init"} {
		path := s.program(name)
		st, err := os.Lstat(path)
		if err != nil || !st.Mode().IsRegular() {
			return problem.New(problem.Missing, what, fmt.Sprintf("%q is not there", path), "install striatum, striatumd and striatum-init into one folder, such as /usr/local/bin")
		}
		err = reach.RootOnly(path)
		for at := filepath.Dir(path); err == nil; at = filepath.Dir(at) {
			var st fs.FileInfo
			if st, err = os.Lstat(at); err == nil && st.Mode().Perm()&0o022 != 0 {
				err = fmt.Errorf("%q can be written by others than root", at)
			}
			if at == "/" {
				break
			}
		}
		if err != nil {
			return problem.Wrap(problem.Refused, err, what, "an agent could change what runs as root: install the programs into a folder that is root's, and every folder above too, such as /usr/local/bin")
		}
	}
	return nil
}

// config is the daemon's configuration, of which all other fields keep their
// defaults.
type config struct {
	SchemaVersion string   `json:"schema_version"`
	SocketGroup   string   `json:"socket_group"`
	OperatorUIDs  []uint32 `json:"operator_uids"`
	StoreClass    string   `json:"store_class"`
}

func configOf(uids []uint32) string {
	c := config{"striatum.striatumd.v1", Group, append([]uint32{}, uids...), string(seal.ClassIsolated)}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		panic(err) // a struct of strings and numbers always encodes
	}
	return string(data) + "\n"
}

// configThere reports whether the configuration is one that this package wrote, with
// all operators that are asked for.
func (s *Setup) configThere(data []byte) error {
	var c config
	if err := seal.Decode(data, &c, seal.Limits{Bytes: maxFileBytes, Depth: 4}); err != nil || string(data) != configOf(c.OperatorUIDs) {
		return edited(ConfigPath)
	}
	accounts, err := reach.ReadAccounts()
	if err != nil {
		return err
	}
	for _, uid := range s.uids {
		if !slices.Contains(c.OperatorUIDs, uid) {
			return problem.New(problem.Refused, what, fmt.Sprintf("%s does not name uid %d as an operator's", ConfigPath, uid),
				fmt.Sprintf("add %d to its operator_uids, and start striatumd again", uid))
		}
	}
	for _, name := range s.agents {
		if u, _ := accounts.User(name); slices.Contains(c.OperatorUIDs, u.UID) {
			return problem.New(problem.Refused, what, fmt.Sprintf("%s names %s as an operator", ConfigPath, name), "an agent's user is no operator's")
		}
	}
	return nil
}

func edited(path string) error {
	return problem.New(problem.Refused, what, fmt.Sprintf("%q is there with another content, and was left alone", path),
		"compare it with what `striatum init --system --print` shows; move it away to have it written again")
}

// Steps are all, in their order.
func (s *Setup) Steps() []Step {
	steps := []Step{
		{
			Text:  "groupadd --system " + Group,
			there: func() (bool, error) { return groupThere(Group) },
			make:  func() error { return run("groupadd", "--system", Group) },
		},
		{
			Text:  "groupadd --system " + User,
			there: func() (bool, error) { return groupThere(User) },
			make:  func() error { return run("groupadd", "--system", User) },
		},
		{
			Text:  "useradd " + strings.Join(userArgs, " "),
			there: userThere,
			make:  func() error { return run("useradd", userArgs...) },
		},
	}
	for _, name := range slices.Concat([]string{User}, s.agents, s.operators) {
		steps = append(steps, Step{
			Text:  fmt.Sprintf("usermod --append --groups %s %s", Group, name),
			there: func() (bool, error) { return member(name) },
			make:  func() error { return run("usermod", "--append", "--groups", Group, name) },
		})
	}
	return append(steps,
		folder("/etc/striatumd", "root", 0o755, ""),
		folder("/etc/striatum-lane", "root", 0o700, ""),
		folder(Home, User, 0o700, "keys/lane.pem"),
		folder(LaneHome, "root", 0o700, "store.db"),
		file(ConfigPath, configOf(s.uids), User, 0o640, s.configThere),
		file(DaemonUnit, s.daemonUnit(), "root", 0o644, nil),
		file(LaneUnit, s.laneUnit(), "root", 0o644, nil),
	)
}

var userArgs = []string{
	"--system", "--gid", User, "--groups", Group, "--home-dir", Home, "--no-create-home", "--shell", "/usr/sbin/nologin", User,
}

func groupThere(name string) (bool, error) {
	gid, ok, err := gidOf(name)
	if ok && gid == 0 {
		return false, problem.New(problem.Refused, what, fmt.Sprintf("the group %s is root's", name), "give it another number")
	}
	return ok, err
}

func userThere() (bool, error) {
	uid, ok, err := uidOf(User)
	if ok && uid == 0 {
		return false, problem.New(problem.Refused, what, "the user "+User+" is root", "give it a number of its own")
	}
	return ok, err
}

// uidOf returns the uid of a user.
func uidOf(name string) (uint32, bool, error) {
	accounts, err := reach.ReadAccounts()
	if err != nil {
		return 0, false, err
	}
	u, ok := accounts.User(name)
	return u.UID, ok && u.Name == name, nil
}

// gidOf returns the gid of a group.
func gidOf(name string) (uint32, bool, error) {
	accounts, err := reach.ReadAccounts()
	if err != nil {
		return 0, false, err
	}
	gid, ok := accounts.Group(name)
	return gid, ok, nil
}

// member reports whether a user logs in with the group.
func member(name string) (bool, error) {
	accounts, err := reach.ReadAccounts()
	if err != nil {
		return false, err
	}
	gid, ok := accounts.Group(Group)
	return ok && slices.Contains(accounts.Members(gid), name), nil
}

// folder is a folder of a user. One that has the file never is another's home.
func folder(path, owner string, mode fs.FileMode, never string) Step {
	refuse := func(why, hint string) (bool, error) {
		return false, problem.New(problem.Refused, what, fmt.Sprintf("%q %s", path, why), hint)
	}
	check := func() (there bool, err error) {
		if err := reach.RootOnly(existing(filepath.Dir(path))); err != nil {
			return refuse(fmt.Sprintf("lies where others may write: %v", err), "make every folder above it root's alone")
		}
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !st.IsDir() {
			return refuse("is no folder, and was left alone", "move it away")
		}
		if never != "" {
			if _, err := os.Lstat(filepath.Join(path, never)); err == nil {
				return refuse("is the home of a user's striatum, and was left alone", "move it away")
			}
		}
		uid, known, err := uidOf(owner)
		if err != nil {
			return false, err
		}
		has := ownerOf(st)
		entries, err := os.ReadDir(path)
		if err != nil {
			return false, err
		}
		switch {
		case known && has == uid && st.Mode().Perm() == mode:
			return true, nil
		case has == 0 && len(entries) == 0, known && has == uid && len(entries) == 0:
			return false, nil // begun, and not finished
		case known && has == uid:
			return refuse(fmt.Sprintf("has mode %04o", st.Mode().Perm()), fmt.Sprintf("chmod %04o %s", mode, path))
		}
		return refuse(fmt.Sprintf("belongs to uid %d, and was left alone", has), "move it away")
	}
	return Step{
		Text: fmt.Sprintf("install --directory --owner=%s --mode=%04o %s", owner, mode, path), there: check,
		make: func() error {
			if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			return own(path, owner, mode)
		},
	}
}

// existing is path, or the nearest folder above it that is there.
func existing(path string) string {
	for path != "/" {
		if _, err := os.Lstat(path); err == nil {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}

// file is a file of root, and of a group of that name, with a content. like says
// whether another content will do; nil where none does.
func file(path, content, group string, mode fs.FileMode, like func([]byte) error) Step {
	return Step{
		Text: fmt.Sprintf("%s, root:%s, mode %04o:", path, group, mode), Content: content,
		there: func() (bool, error) {
			st, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			if err != nil || !st.Mode().IsRegular() || st.Size() > maxFileBytes {
				return false, errors.Join(edited(path), err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return false, err
			}
			if !bytes.Equal(data, []byte(content)) {
				if like == nil {
					return false, edited(path)
				}
				if err := like(data); err != nil {
					return false, err
				}
			}
			if ownerOf(st) != 0 {
				return false, edited(path)
			}
			gid, known, err := gidOf(group)
			return known && groupOf(st) == gid && st.Mode().Perm() == mode, err
		},
		make: func() error { return write(path, content, group, mode) },
	}
}

// StartCommands are the commands that start daemon and lane where systemd does not.
func (s *Setup) StartCommands() []string {
	return []string{
		fmt.Sprintf("install --directory --owner=%s --group=%s --mode=0755 %s && setpriv --reuid=%s --regid=%s --init-groups --no-new-privs %s",
			User, User, filepath.Dir(Socket), User, User, s.serve()),
		fmt.Sprintf("install --directory --mode=0755 %s && env STRIATUM_SOCKET=%s STRIATUM_HOME=%s %s", filepath.Dir(LaneSocket), Socket, LaneHome, s.serveLane()),
	}
}

func (s *Setup) serve() string { return s.program("striatumd") + " serve --config " + ConfigPath }

func (s *Setup) serveLane() string {
	return fmt.Sprintf("%s lane serve --listen %s --group %s --token-file %s", s.program("striatum"), LaneSocket, Group, LaneToken)
}

func (s *Setup) daemonUnit() string {
	return `[Unit]
Description=Striatum's daemon: keeps the store of evidence

[Service]
ExecStart=` + s.serve() + `
User=` + User + `
Group=` + User + `
SupplementaryGroups=` + Group + `
RuntimeDirectory=striatumd
RuntimeDirectoryMode=0755
ReadWritePaths=` + Home + `
Restart=on-failure
UMask=0077
LimitCORE=0
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
`
}

// laneUnit has no PrivateTmp, no ProtectHome=yes and no namespaces taken away:
// worktrees lie anywhere, and sandboxes are made of what root may do.
func (s *Setup) laneUnit() string {
	return `[Unit]
Description=Striatum's lane: runs checks in sandboxes and signs receipts
Wants=striatumd.service
After=striatumd.service

[Service]
ExecStart=` + s.serveLane() + `
Environment=STRIATUM_SOCKET=` + Socket + `
Environment=STRIATUM_HOME=` + LaneHome + `
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/usr/local/go/bin
RuntimeDirectory=striatum-lane
RuntimeDirectoryMode=0755
ReadWritePaths=` + LaneHome + ` /run
Delegate=yes
KillMode=mixed
Restart=on-failure
UMask=0077
LimitCORE=0
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
`
}

// ids returns the uid of a user and the gid of the group of its name.
func ids(name string) (uid, gid int, err error) {
	u, okUser, err := uidOf(name)
	if err != nil {
		return 0, 0, err
	}
	g, okGroup, err := gidOf(name)
	if err == nil && (!okUser || !okGroup) {
		err = errors.New("no user or group " + strconv.Quote(name) + " is there")
	}
	return int(u), int(g), err
}
