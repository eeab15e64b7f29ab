// Package cgroup reads the kernel's control group files, of version 1 and 2,
// to say what is in force for a group and what became of it. It sets nothing:
// the runtime does. Every function reads plain files below the mount points of
// the hierarchies, so that a test can give it a folder.
package cgroup
