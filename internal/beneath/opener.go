package beneath

// Caller is whose rights count: a user with a group and further groups.
type Caller struct {
	UID, GID uint32
	Groups   []uint32
}
