// Command badinit is a striatum-init that lies, as its mode says.
package main

import (
	"io"
	"os"

	"striatum/internal/initproto"
	"striatum/internal/reaper"
)

// mode is set when the program is linked.
var mode string

// names are the facets of an honest report.
var names = []string{
	"namespace_pid", "namespace_net", "namespace_mnt", "namespace_ipc", "namespace_uts", "namespace_cgroup",
	"namespace_user", "id_map", "user", "no_new_privs", "capabilities", "seccomp", "read_only", "kernel_paths",
	"no_setuid", "disk", "network", "descriptors", "devices",
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "daemon" {
		_ = reaper.Run(os.Args[2:])
		return
	}
	if len(os.Args) > 1 {
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	in := &initproto.Conn{R: os.Stdin, Max: initproto.MaxPayload}
	if _, _, err := in.ReadFirst(); err != nil {
		return
	}
	out := &initproto.Conn{Nonce: in.Nonce, W: os.Stdout}
	if _, _, err := in.Read(); err != nil {
		return
	}
	switch mode {
	case "silent":
		return
	case "late":
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "garbage":
		_, _ = os.Stdout.WriteString("this is no frame of any kind, is it?")
		return
	case "nonce":
		out.Nonce[0]++
	case "turn":
		_ = out.Write(initproto.TypeExited, initproto.Exited{}.Encode())
	}
	report := make([]initproto.Facet, len(names))
	for i, n := range names {
		report[i] = initproto.Facet{Name: n, Required: "r", Observed: "o", OK: true}
	}
	switch mode {
	case "missing":
		report = report[1:]
	case "unknown":
		report = append(report, initproto.Facet{Name: "more", OK: true})
	case "twice":
		report = append(report, report[0])
	}
	_ = out.Write(initproto.TypePosture, initproto.EncodeFacets(report))
	_ = out.Write(initproto.TypeStarted, nil)
	switch mode {
	case "collected":
		_ = out.Write(initproto.TypeCollected, initproto.Collected{}.Encode())
	case "noend":
		_ = out.Write(initproto.TypeExited, initproto.Exited{}.Encode())
		return
	}
	_ = out.Write(initproto.TypeExited, initproto.Exited{}.Encode())
	_ = out.Write(initproto.TypeProgramEnd, nil)
	_, _, _ = in.Read()
	if mode == "more" {
		_ = out.Write(initproto.TypeStdout, []byte("more"))
	}
	_ = out.Write(initproto.TypeEnd, nil)
}
