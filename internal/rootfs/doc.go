// Package rootfs makes the folder that becomes a sandbox's root: links into
// /usr, a generated /etc, and an empty mount point for everything else. It
// holds no program and nothing of the host but the loader's cache, the
// alternatives links and the public certificates, which are copied; or, for
// tools from a tree of their own, nothing of the host at all.
package rootfs
