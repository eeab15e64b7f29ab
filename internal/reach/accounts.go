package reach

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The bounds of what is read of the host.
const (
	maxAccountBytes = 8 << 20
	maxIdentities   = 64 // of one user
)

// User is a user of the host: its name, or its uid where it has none.
type User struct {
	Name string
	UID  uint32
	// names are all that /etc/passwd has for its uid.
	names []string
	// identities are what its processes have: as each of its names logs in, and as
	// those that run.
	identities []identity
	root       []string // groups that amount to root
	groups     []string // names of all groups
	capable    []string // what processes have capabilities
}

// identity is what the kernel judges a thread by.
type identity struct {
	uid, gid uint32
	groups   []uint32 // ascending
}

type group struct {
	name    string
	gid     uint32
	members []string
}

// Accounts are the users and groups of the host.
type Accounts struct {
	users     map[string]identity // without groups
	groups    []group
	processes map[uint32][]identity
	capable   map[uint32][]string // processes of a uid that have capabilities
}

// harmless are the capabilities that lead to no file and no process of others:
// net_bind_service, net_broadcast, net_raw, ipc_lock, sys_nice, wake_alarm and
// block_suspend.
const harmless = 1<<10 | 1<<11 | 1<<13 | 1<<14 | 1<<23 | 1<<35 | 1<<36

// maxCapable is how many processes with capabilities are named for one uid.
const maxCapable = 3

// ReadAccounts reads /etc/passwd, /etc/group and what the processes run as.
func ReadAccounts() (Accounts, error) {
	a := Accounts{users: map[string]identity{}, processes: map[uint32][]identity{}, capable: map[uint32][]string{}}
	err := lines("/etc/passwd", 7, func(f []string) {
		uid, uerr := number(f[2])
		gid, gerr := number(f[3])
		if errors.Join(uerr, gerr) == nil {
			a.users[f[0]] = identity{uid: uid, gid: gid}
		}
	})
	if err != nil {
		return Accounts{}, err
	}
	err = lines("/etc/group", 4, func(f []string) {
		if gid, err := number(f[2]); err == nil {
			members := strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
			a.groups = append(a.groups, group{f[0], gid, members})
		}
	})
	if err != nil {
		return Accounts{}, err
	}
	return a, a.readProcesses()
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// lines calls do for each line of a file that has that many fields between colons.
func lines(path string, fields int, do func([]string)) error {
	data, err := readBounded(path)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		if f := strings.Split(strings.TrimRight(string(line), "\n"), ":"); len(f) == fields {
			do(f)
		}
	}
	return nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxAccountBytes+1))
	if err == nil && len(data) > maxAccountBytes {
		err = fmt.Errorf("read %q: it has more than %d bytes", path, maxAccountBytes)
	}
	return data, err
}

// readProcesses notes the identities of processes. One that ends meanwhile is none.
func (a *Accounts) readProcesses() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	ours, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		data, err := readBounded("/proc/" + e.Name() + "/status")
		if err != nil {
			continue
		}
		uids, id, capabilities := process(string(data))
		if capabilities&^harmless != 0 {
			// In a user namespace of its own a process has power over that alone.
			theirs, err := os.Readlink("/proc/" + e.Name() + "/ns/user")
			if err != nil || theirs != ours {
				capabilities = 0
			}
		}
		for _, uid := range uids {
			id.uid = uid
			known := a.processes[uid]
			if capabilities&^harmless != 0 && len(a.capable[uid]) < maxCapable {
				a.capable[uid] = append(a.capable[uid], fmt.Sprintf("process %s has the capabilities %#x", e.Name(), capabilities))
			}
			if uid != 0 && len(known) < maxIdentities && !slices.ContainsFunc(known, id.equal) {
				a.processes[uid] = append(known, id)
			}
		}
	}
	return nil
}

// process reads the uids of a process, the rest of its identity, and the
// capabilities that it may use.
func process(status string) (uids []uint32, id identity, capabilities uint64) {
	for line := range strings.Lines(status) {
		key, rest, _ := strings.Cut(line, ":")
		if key == "CapPrm" {
			var err error
			if capabilities, err = strconv.ParseUint(strings.TrimSpace(rest), 16, 64); err != nil {
				capabilities = ^uint64(0)
			}
			continue
		}
		var all []uint32
		if key != "Uid" && key != "Gid" && key != "Groups" {
			continue
		}
		for word := range strings.FieldsSeq(rest) {
			if n, err := number(word); err == nil {
				all = append(all, n)
			}
		}
		slices.Sort(all)
		all = slices.Compact(all)
		switch {
		case key == "Uid":
			uids = all
		case key == "Gid" && len(all) > 0:
			id.gid, id.groups = all[0], append(id.groups, all[1:]...)
		case key == "Groups":
			id.groups = append(id.groups, all...)
		}
	}
	slices.Sort(id.groups)
	id.groups = slices.Compact(id.groups)
	return uids, id, capabilities
}

func (id identity) equal(o identity) bool {
	return id.uid == o.uid && id.gid == o.gid && slices.Equal(id.groups, o.groups)
}

// User returns the user that a name or a uid names; false for a name that no user
// has. One without identities is known by its uid alone.
func (a Accounts) User(nameOrUID string) (User, bool) {
	login, named := a.users[nameOrUID]
	u := User{Name: nameOrUID, UID: login.uid}
	if !named {
		uid, err := number(nameOrUID)
		if err != nil {
			return User{}, false
		}
		u.UID = uid
	}
	for name, id := range a.users { // several names may have one uid, and other groups
		if id.uid == u.UID {
			u.names = append(u.names, name)
		}
	}
	slices.Sort(u.names)
	if !named && len(u.names) > 0 {
		u.Name = u.names[0]
	}
	for _, name := range u.names {
		if id := a.login(name, a.users[name]); !slices.ContainsFunc(u.identities, id.equal) {
			u.identities = append(u.identities, id)
		}
	}
	u.capable = a.capable[u.UID]
	for _, id := range a.processes[u.UID] {
		if !slices.ContainsFunc(u.identities, id.equal) {
			u.identities = append(u.identities, id)
		}
	}
	for _, g := range a.groups {
		held := slices.ContainsFunc(u.identities, func(id identity) bool { return id.gid == g.gid || slices.Contains(id.groups, g.gid) })
		if !held {
			continue
		}
		u.groups = append(u.groups, g.name)
		if slices.Contains(rootGroups, g.name) || g.gid == 0 {
			u.root = append(u.root, g.name)
		}
	}
	return u, true
}

// login is the identity of a user that logs in.
func (a Accounts) login(name string, id identity) identity {
	for _, g := range a.groups {
		if slices.Contains(g.members, name) {
			id.groups = append(id.groups, g.gid)
		}
	}
	slices.Sort(id.groups)
	id.groups = slices.Compact(id.groups)
	return id
}

// Members returns the names, or uids, of the users that have a group: those that
// log in with it, and those of processes.
func (a Accounts) Members(gid uint32) []string {
	var out []string
	for name, id := range a.users {
		if login := a.login(name, id); login.gid == gid || slices.Contains(login.groups, gid) {
			out = append(out, name)
		}
	}
	for uid, ids := range a.processes {
		if slices.ContainsFunc(ids, func(id identity) bool { return id.gid == gid || slices.Contains(id.groups, gid) }) {
			out = append(out, strconv.FormatUint(uint64(uid), 10))
		}
	}
	slices.Sort(out)
	return out
}

// Group returns the gid of a group.
func (a Accounts) Group(name string) (gid uint32, ok bool) {
	i := slices.IndexFunc(a.groups, func(g group) bool { return g.name == name })
	if i < 0 {
		return 0, false
	}
	return a.groups[i].gid, true
}
