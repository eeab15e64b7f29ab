// Package reach tells what a user of this host can reach of what must be out of its
// reach: secrets, programs that run as root, container engines, root itself.
//
// What the kernel decides is tried, on a thread that has taken the user's uid, gid
// and groups and has no capability: opening, writing, connecting. Nothing is written,
// and nothing that was opened is read. What the kernel is not asked is looked up:
// groups that amount to root, sudoers that name the user. What cannot be told is a
// finding too, never an absence of one.
//
// It does not see what needs a program to be run as the user, or a fault to be used:
// setuid programs, polkit, doas, file capabilities, the kernel. Users and groups
// are those of /etc/passwd and /etc/group, and of processes that run.
package reach

// The codes of findings. Those from NoUserKnown on say that something could not be
// told.
const (
	UserIsRoot      = "user_is_root"
	SameUser        = "same_user"
	GroupGivesRoot  = "group_gives_root"
	NamedInSudoers  = "named_in_sudoers"
	SecretReadable  = "secret_readable"
	PathWritable    = "path_writable"
	EngineReachable = "engine_reachable"
	HasCapabilities = "has_capabilities"
	EnrolledShared  = "enrolled_shared"
	StoreShared     = "store_shared"
	NoUserKnown     = "no_user_known"
	UserUnknown     = "user_unknown"
	NotTried        = "not_tried"
	SudoersUnread   = "sudoers_unread"
)

// Codes are all codes.
var Codes = []string{
	UserIsRoot, SameUser, GroupGivesRoot, NamedInSudoers, SecretReadable, PathWritable, EngineReachable,
	HasCapabilities, EnrolledShared, StoreShared, NoUserKnown, UserUnknown, NotTried, SudoersUnread,
}

// Finding is one thing that a user reaches, or that could not be told of it. User is
// empty where it is about the host. Fix is what to do about it.
type Finding struct {
	Code string `json:"code"`
	User string `json:"user"`
	What string `json:"what"`
	Fix  string `json:"fix"`
}

// Untold reports whether the finding says that something could not be told.
func (f Finding) Untold() bool {
	switch f.Code {
	case UserIsRoot, SameUser, GroupGivesRoot, NamedInSudoers, SecretReadable, PathWritable, EngineReachable,
		HasCapabilities, EnrolledShared, StoreShared:
		return false
	}
	return true
}

// Targets are what must be out of reach. What is not there is left out.
type Targets struct {
	// Secrets are files and folders that the users must not read or change.
	Secrets []string
	// Programs are files that they must not change.
	Programs []string
	// Sockets are those of container engines.
	Sockets []string
	// Unknown are targets that could not be named, each with the reason.
	Unknown []string
	// UIDs are those of the processes to protect, beside root.
	UIDs []uint32
}

// rootGroups are groups whose members can become root, or read and write what only
// root may.
var rootGroups = []string{
	"root", "sudo", "wheel", "admin", "docker", "containerd", "lxd", "incus", "incus-admin", "microk8s", "libvirt", "disk", "kmem", "shadow",
}

// RootFiles are files and folders of the host that whoever writes to them becomes
// root by.
var RootFiles = []string{
	"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers-rs", "/etc/sudoers.d", "/etc/doas.conf", "/etc/pam.d",
	"/etc/crontab", "/etc/cron.d", "/etc/ld.so.preload", "/etc/ld.so.conf.d", "/etc/profile.d", "/etc/ssh", "/root/.ssh/authorized_keys", "/root/.profile", "/root/.bashrc",
	"/etc/systemd/system", "/usr/lib/systemd/system", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/usr/lib",
}

// engineNames are the last parts of the paths of engines' sockets.
var engineNames = []string{"containerd.sock", "docker.sock", "podman.sock", "crio.sock", "buildkitd.sock", "unix.socket", "libvirt-sock"}

// EngineSockets are where container engines listen unless they are told otherwise.
var EngineSockets = []string{
	"/run/containerd/containerd.sock", "/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock",
	"/run/crio/crio.sock", "/run/buildkit/buildkitd.sock", "/var/lib/lxd/unix.socket",
	"/var/snap/lxd/common/lxd/unix.socket", "/var/lib/incus/unix.socket", "/run/libvirt/libvirt-sock",
}
