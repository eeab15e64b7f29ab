// Package containerdengine runs sandboxes with containerd and runc, with
// daemons of version 1.6 and of 2.x, and with no image and no snapshotter.
//
// Without Config.Socket the engine starts a containerd of its own, in a pid and
// a mount namespace below a small reaper that the kernel kills with the engine's
// process: containerd, shims, runtimes, containers and mounts then vanish at
// once, however the process ended. What is left, cgroup folders and the
// folder RunDir/<id>, the next Open of the same home removes. With
// Config.Socket the host's containerd is used in a namespace of its own, and
// what a kill left there is removed by that name.
//
// Removing containers is deferred until no sandbox is being prepared or run,
// or too many wait; what they used up is free as soon as their first process has
// ended. Where the containerd is the engine's own, Close removes them all by
// ending it.
package containerdengine
