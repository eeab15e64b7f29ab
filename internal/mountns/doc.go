// Package mountns mounts in a mount namespace other than the program's own.
// One thread enters that namespace and does all the work there, so that no
// mount of a lane is ever seen on its host.
package mountns
