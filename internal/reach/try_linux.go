package reach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"striatum/internal/osthread"
)

// maxFindings is how many findings one user has at most; more are counted.
const maxFindings = 40

// Examine tries, as each user, what the targets are, and looks up the rest. It takes
// root. Without a finding no user reaches a target.
func Examine(users []User, t Targets) (findings []Finding, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root takes the identity of others")
	}
	if len(users) == 0 {
		return []Finding{{Code: NoUserKnown, What: "no user of a session is known", Fix: "name it: striatum lane probe --user NAME"}}, nil
	}
	places, err := t.places()
	if err != nil {
		return nil, err
	}
	sudo, sudoErr := readSudoers(sudoersPaths...)
	if sudoErr != nil {
		findings = append(findings, Finding{Code: SudoersUnread, What: sudoErr.Error(), Fix: "mend that file"})
	}
	for _, why := range t.Unknown {
		findings = append(findings, Finding{Code: NotTried, What: why, Fix: "see why, and probe again"})
	}
	for _, u := range users {
		own := u.look(t, sudo)
		if u.UID != 0 {
			own = append(own, u.try(places)...)
		}
		slices.SortStableFunc(own, func(a, b Finding) int { // what is cut is what could not be told
			switch {
			case a.Untold() == b.Untold():
				return 0
			case b.Untold():
				return -1
			}
			return 1
		})
		if more := len(own) - maxFindings; more > 0 {
			last := own[maxFindings-1]
			last.What += fmt.Sprintf("; and %d more", more)
			own = append(own[:maxFindings-1], last)
		}
		findings = append(findings, own...)
	}
	return findings, nil
}

// look finds what the kernel is not asked.
func (u User) look(t Targets, sudo sudoers) (out []Finding) {
	add := func(code, fix, format string, args ...any) {
		out = append(out, Finding{code, u.Name, fmt.Sprintf(format, args...), fix})
	}
	other := "run its sessions as another user, and start the daemon again"
	switch {
	case u.UID == 0:
		add(UserIsRoot, other, "it is root")
		return out
	case slices.Contains(t.UIDs, u.UID):
		add(SameUser, other, "the daemon or the lane runs as uid %d too: it may trace it (ptrace_scope is %s) and owns its files", u.UID, ptraceScope())
	}
	for _, g := range u.root {
		add(GroupGivesRoot, "gpasswd --delete "+u.Name+" "+g+", and end its sessions", "it is in the group %s", g)
	}
	var gids []uint32
	for _, id := range u.identities {
		gids = append(gids, id.gid)
		gids = append(gids, id.groups...)
	}
	if word, path := sudo.of(u, gids); word != "" {
		add(NamedInSudoers, "take it out of "+path, "%s names it, as %s", path, word)
	}
	for _, process := range u.capable {
		add(HasCapabilities, "end it, and see what gave it those", "%s", process)
	}
	if len(u.identities) >= maxIdentities {
		add(UserUnknown, "end some of its processes, and probe again", "its processes have more identities than are tried")
	}
	if len(u.identities) == 0 {
		add(UserUnknown, "make an account for it, or probe while one of its processes runs", "/etc/passwd does not have uid %d, and no process runs as it: its groups are not known", u.UID)
	}
	return out
}

func ptraceScope() string {
	data, err := readBounded("/proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		return "not set"
	}
	return strings.TrimSpace(string(data))
}

// place is what a thread tries.
type place struct {
	step
	secret, engine bool
}

// places are the targets with all that leads to them, each once.
func (t Targets) places() (out []place, err error) {
	at := map[string]int{}
	for _, list := range []struct {
		paths          []string
		secret, engine bool
	}{{t.Secrets, true, false}, {t.Programs, false, false}, {t.Sockets, false, true}} {
		for _, path := range list.paths {
			steps, err := way(path)
			if err != nil {
				return nil, err
			}
			for i, s := range steps {
				target := i == len(steps)-1 && sameFile(path, s)
				if list.engine && !target {
					continue // whoever could put another socket there reaches nothing
				}
				n, known := at[s.path]
				if !known {
					n, at[s.path] = len(out), len(out)
					out = append(out, place{step: s})
				}
				out[n].secret = out[n].secret || target && list.secret
				out[n].engine = out[n].engine || target && list.engine
			}
		}
	}
	return out, nil
}

// sameFile reports whether a path leads to a step.
func sameFile(path string, s step) bool {
	st, err := os.Stat(path)
	return err == nil && os.SameFile(st, s.st)
}

// try makes the attempts, once for each identity.
func (u User) try(places []place) (out []Finding) {
	for _, id := range u.identities {
		var found []Finding
		err := osthread.Do(func() error {
			if err := id.become(); err != nil {
				return err
			}
			for _, p := range places {
				found = append(found, id.attempt(p)...)
			}
			return id.verify()
		})
		if err != nil {
			found = append(found, Finding{Code: NotTried, What: fmt.Sprintf("a thread could not be it: %v", err), Fix: "run it as root, with all capabilities"})
		}
		for _, f := range found {
			f.User = u.Name
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// become gives the calling thread, and it alone, an identity without privileges.
func (id identity) become() error {
	groups := make([]int, 0, len(id.groups))
	for _, g := range id.groups {
		groups = append(groups, int(g))
	}
	if err := unix.Setgroups(groups); err != nil {
		return fmt.Errorf("take its groups: %w", err)
	}
	gid, uid := uintptr(id.gid), uintptr(id.uid)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("take gid %d: %w", id.gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("take uid %d: %w", id.uid, errno)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return id.verify()
}

// verify sees that the calling thread is what become makes it.
func (id identity) verify() error {
	r, e, f := unix.Getresuid()
	rg, eg, fg := unix.Getresgid()
	fs, err := unix.SetfsuidRetUid(-1)
	if err != nil {
		return err
	}
	fsg, err := unix.SetfsgidRetGid(-1)
	if err != nil {
		return err
	}
	held, err := unix.Getgroups()
	if err != nil {
		return err
	}
	var groups []uint32
	for _, g := range held {
		groups = append(groups, uint32(g))
	}
	slices.Sort(groups)
	uids, gids := [4]int{r, e, f, fs}, [4]int{rg, eg, fg, fsg}
	uid, gid := int(id.uid), int(id.gid)
	if uids != [4]int{uid, uid, uid, uid} || gids != [4]int{gid, gid, gid, gid} || !slices.Equal(slices.Compact(groups), id.groups) {
		return fmt.Errorf("it is %v, %v, %v", uids, gids, groups)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return err
	}
	if caps != ([2]unix.CapUserData{}) {
		return errors.New("it has capabilities")
	}
	return nil
}

// attempt tries one place, on a thread that is id.
func (id identity) attempt(p place) (out []Finding) {
	quoted := fmt.Sprintf("%q", p.path)
	add := func(code, what, fix string) { out = append(out, Finding{Code: code, What: what, Fix: fix}) }
	untold := func(doing string, err error) {
		add(NotTried, fmt.Sprintf("%s %s: %v", doing, quoted, err), "see why, and probe again")
	}
	if p.engine {
		switch err := connect(p.path); {
		case err == nil:
			add(EngineReachable, quoted, "take it out of the socket's group, or change the socket's mode")
		case !refused(err):
			untold("connect to", err)
		}
		return out
	}
	if p.st.Mode().Type() == fs.ModeSymlink {
		if owner(p.st) == id.uid { // a link cannot be written, but its folder is a place too
			add(PathWritable, quoted, "chown --no-dereference root "+p.path)
		}
		return out
	}
	if p.secret {
		switch err := open(p.path, unix.O_RDONLY); {
		case err == nil:
			add(SecretReadable, quoted, "chmod go= "+p.path)
		case !refused(err):
			untold("read", err)
		}
	}
	var err error
	if p.st.IsDir() {
		err = unix.Faccessat(unix.AT_FDCWD, p.path, unix.W_OK|unix.X_OK, 0)
		if err == nil && p.st.Mode()&fs.ModeSticky != 0 && owner(p.st) != id.uid {
			return out // what others own in it stays
		}
	} else {
		err = open(p.path, unix.O_WRONLY)
	}
	switch {
	case err == nil, owner(p.st) == id.uid: // its owner could make it writable
		add(PathWritable, quoted, "chown root "+p.path+" && chmod go-w "+p.path)
	case errors.Is(err, unix.ETXTBSY): // a program that runs: the permission was there
		add(PathWritable, quoted, "chmod go-w "+p.path)
	case !refused(err) && !errors.Is(err, unix.EROFS):
		untold("write", err)
	}
	return out
}

// refused reports whether the kernel said no for want of permission.
func refused(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) }

func owner(st fs.FileInfo) uint32 {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return sys.Uid
}

// open opens and closes; it waits for nobody.
func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// connect tries to connect to a socket. It is nil also where nobody listens, which
// the kernel says only to those who may.
func connect(path string) error {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET, unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if cerr := unix.Close(fd); cerr != nil {
			return cerr
		}
		switch {
		case errors.Is(err, unix.EPROTOTYPE):
			continue
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINPROGRESS):
			return nil
		}
		return err
	}
	return unix.EPROTOTYPE
}

// HasACL reports whether an access list says who else than its owner and group may
// use a file.
func HasACL(path string) bool {
	_, err := unix.Getxattr(path, "system.posix_acl_access", nil)
	return !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP)
}

// ListeningEngines are the sockets on which programs of root listen, wherever they
// are, and whose names are those of engines' sockets.
func ListeningEngines() (out []string, err error) {
	data, err := readBounded("/proc/net/unix")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		// number, references, protocol, flags, type, state, inode, path
		at := strings.Index(line, " /")
		if at < 0 {
			continue
		}
		path := strings.TrimSuffix(line[at+1:], "\n")
		if f := strings.Fields(line[:at]); len(f) != 7 || f[3] != "00010000" || !slices.Contains(engineNames, filepath.Base(path)) || slices.Contains(out, path) {
			continue
		}
		st, err := os.Lstat(path)
		if err != nil {
			continue // of another mount namespace, or gone
		}
		if _, uid, err := Listener(path); err == nil && uid != 0 || err != nil && owner(st) != 0 {
			continue
		}
		out = append(out, path)
	}
	return out, nil
}

// OnDockersPort reports whether a program of root listens on the TCP port on which
// Docker does not ask who calls.
func OnDockersPort() (bool, error) {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := readBounded(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // without IPv6
		}
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(string(data)) {
			// number, address:port, remote address, state, queues, timer, retransmits, uid
			f := strings.Fields(line)
			if len(f) > 7 && strings.HasSuffix(f[1], ":0947") && f[3] == "0A" && f[7] == "0" {
				return true, nil
			}
		}
	}
	return false, nil
}

// Listener returns the program that listens on a socket, and its uid.
func Listener(socket string) (program string, uid uint32, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return "", 0, err
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return "", 0, err
	}
	program, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", peer.Pid))
	return program, peer.Uid, err
}
