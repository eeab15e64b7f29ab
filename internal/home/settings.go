package home

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"striatum/internal/problem"
	"striatum/seal"
)

// SettingsSchemaVersion marks a settings file of this format.
const SettingsSchemaVersion = "striatum.config.v1"

// maxSettingsBytes bounds the settings file.
const maxSettingsBytes = 64 << 10

// Settings are what $STRIATUM_HOME/config.json may set; the file and each field
// may be absent. Nothing of it is ever read from a worktree.
type Settings struct {
	SchemaVersion string `json:"schema_version"`
	// Containerd is the socket of a running containerd, absolute. Default: the
	// lane starts a private one.
	Containerd string `json:"containerd_socket,omitempty"`
	// ContainerdPath, ShimPath and RuncPath are absolute paths of the programs.
	// Default: looked up in /usr/local/sbin, /usr/local/bin, /usr/sbin, /usr/bin.
	ContainerdPath string `json:"containerd_path,omitempty"`
	ShimPath       string `json:"shim_path,omitempty"`
	RuncPath       string `json:"runc_path,omitempty"`
	// Go is the absolute path of the go command. Default: the first in PATH.
	Go string `json:"go,omitempty"`
	// Proxies are the module proxies that dependencies are fetched from, in
	// order; an empty list fetches from the user's download cache only. Default:
	// those of GOPROXY, else those that the lane's go asks by itself.
	Proxies *[]string `json:"proxies,omitempty"`
	// SumDB is the checksum database that says where dependencies come from, as
	// "name+hash+key [https URL]". It learns the names of the modules, but for
	// those of GONOSUMDB, else GOPRIVATE. Default: none is asked.
	SumDB string `json:"sumdb,omitempty"`
	// Images are where toolchain images come from, in order: folders with an OCI
	// image layout, absolute, and registries as images name them, which are asked
	// over HTTPS (plain HTTP to loopback) and without credentials. Default: none.
	Images []string `json:"images,omitempty"`
	// SnapshotFiles and SnapshotBytes bound a worktree. Default: 250,000 files
	// and 4 GiB.
	SnapshotFiles int64 `json:"snapshot_files,omitempty"`
	SnapshotBytes int64 `json:"snapshot_bytes,omitempty"`
}

// Settings reads the home's settings. Errors are problems of kind Invalid.
func (h *Home) Settings() (Settings, error) {
	path := h.ConfigPath()
	what := fmt.Sprintf("read the settings %q", path)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO is not waited for
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{SchemaVersion: SettingsSchemaVersion}, nil
	}
	if err != nil {
		return Settings{}, problem.Wrap(problem.Invalid, err, what, "let its owner read it, or move it away")
	}
	defer func() { _ = f.Close() }() // only read
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return Settings{}, problem.New(problem.Refused, what, "it is not a regular file", "move it away")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSettingsBytes+1))
	if err != nil {
		return Settings{}, problem.Wrap(problem.Invalid, err, what, "")
	}
	var s Settings
	if err := seal.Decode(data, &s, seal.Limits{Bytes: maxSettingsBytes, Depth: 4}); err != nil {
		return Settings{}, problem.Wrap(problem.Invalid, err, what, "docs/formats.md lists the fields")
	}
	if err := s.validate(); err != nil {
		return Settings{}, problem.Wrap(problem.Invalid, err, what, "docs/formats.md lists the fields")
	}
	return s, nil
}

func (s Settings) validate() error {
	if s.SchemaVersion != SettingsSchemaVersion {
		return fmt.Errorf("/schema_version is %q, not %q", s.SchemaVersion, SettingsSchemaVersion)
	}
	for _, p := range []struct{ name, path string }{
		{"containerd_socket", s.Containerd},
		{"containerd_path", s.ContainerdPath},
		{"shim_path", s.ShimPath},
		{"runc_path", s.RuncPath},
		{"go", s.Go},
	} {
		if p.path != "" && (!filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path) {
			return fmt.Errorf("/%s is not an absolute, clean path", p.name)
		}
	}
	if s.SnapshotFiles < 0 || s.SnapshotBytes < 0 {
		return errors.New("/snapshot_files and /snapshot_bytes must not be negative")
	}
	return nil
}
