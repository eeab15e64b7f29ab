package servecmd

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"striatum/internal/cli/embedded"
	"striatum/internal/problem"
	"striatum/seal"
)

// ConfigSchemaVersion marks a configuration of this format.
const ConfigSchemaVersion = "striatum.striatumd.v1"

// The bounds of a configuration.
const (
	maxConfigBytes  = 64 << 10
	maxOperatorUIDs = 100
	maxDSNBytes     = 4096
	maxSocketPath   = 107 // bytes; the kernel's limit for a socket's path
)

// Config is what `striatumd serve` is told by its one file, of which every field
// but the first may be absent, and by flags, which count before it. Secrets stand
// in files of their own, so that all of it may be shown. Paths are absolute.
type Config struct {
	SchemaVersion string `json:"schema_version"`
	// Home is the folder of the report key and, where no other store is named, of
	// the store. Default: /var/lib/striatumd.
	Home string `json:"home"`
	// SQLitePath is the SQLite store. Default: store.db in the home.
	SQLitePath string `json:"sqlite_path"`
	// PostgresDSNFile is a file, readable by its owner alone, that names a
	// PostgreSQL database to keep the store in, instead of SQLite. At most 4,096
	// bytes. Default: none.
	PostgresDSNFile string `json:"postgres_dsn_file"`
	// Socket is the unix socket, of mode 0660; at most 107 bytes. Default:
	// /run/striatumd/striatumd.sock.
	Socket string `json:"socket"`
	// SocketGroup is the group, by name, whose members may connect. Default: the
	// daemon's own.
	SocketGroup string `json:"socket_group"`
	// TCP is a loopback address with its port, such as 127.0.0.1:7417, to answer
	// on as well. Default: none.
	TCP string `json:"tcp"`
	// OperatorUIDs are the uids, beside root, that may call as an operator. At
	// most 100. Default: none.
	OperatorUIDs []uint32 `json:"operator_uids"`
	// StoreClass is the operator's word that no agent can reach the store:
	// "isolated", which also has to be seen, or "shared", the default.
	StoreClass seal.Class `json:"store_class"`
}

// defaults are what counts where nothing is said.
func defaults() Config {
	return Config{
		SchemaVersion: ConfigSchemaVersion, Home: "/var/lib/striatumd", Socket: "/run/striatumd/striatumd.sock",
		OperatorUIDs: []uint32{}, StoreClass: seal.ClassShared,
	}
}

// readConfig reads the file at path; the defaults where path is empty.
func readConfig(path string) (Config, error) {
	if path == "" {
		return defaults(), nil
	}
	what := fmt.Sprintf("read the configuration %q", path)
	data, err := embedded.ReadFile(path, maxConfigBytes)
	if err != nil {
		return Config{}, problem.Wrap(problem.Usage, err, what, "--config names a file that the daemon can read")
	}
	var said Config
	if err := seal.Decode(data, &said, seal.Limits{Bytes: maxConfigBytes, Depth: 4}); err != nil {
		return Config{}, problem.Wrap(problem.Invalid, err, what, "docs/striatumd.md lists the fields")
	}
	if said.SchemaVersion != ConfigSchemaVersion {
		return Config{}, problem.New(problem.Invalid, what, fmt.Sprintf("/schema_version is not %q", ConfigSchemaVersion), "docs/striatumd.md lists the fields")
	}
	c := defaults()
	for _, f := range []struct{ to, from *string }{
		{&c.Home, &said.Home},
		{&c.SQLitePath, &said.SQLitePath},
		{&c.PostgresDSNFile, &said.PostgresDSNFile},
		{&c.Socket, &said.Socket},
		{&c.SocketGroup, &said.SocketGroup},
		{&c.TCP, &said.TCP},
		{(*string)(&c.StoreClass), (*string)(&said.StoreClass)},
	} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	c.OperatorUIDs = append(c.OperatorUIDs, said.OperatorUIDs...)
	return c, nil
}

// complete checks c and fills in what follows from it. The error is a problem of
// kind Invalid.
func (c *Config) complete() error {
	bad := func(pointer, why string) error {
		return problem.New(problem.Invalid, "read the configuration", pointer+" "+why, "docs/striatumd.md lists the fields")
	}
	if c.SQLitePath != "" && c.PostgresDSNFile != "" {
		return bad("/sqlite_path", "and /postgres_dsn_file name two stores")
	}
	if c.SQLitePath == "" && c.PostgresDSNFile == "" {
		c.SQLitePath = filepath.Join(c.Home, "store.db")
	}
	for _, p := range []struct{ pointer, path string }{
		{"/home", c.Home},
		{"/sqlite_path", c.SQLitePath},
		{"/postgres_dsn_file", c.PostgresDSNFile},
		{"/socket", c.Socket},
	} {
		if p.path != "" && (!filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path) {
			return bad(p.pointer, "is not an absolute, clean path")
		}
	}
	if len(c.Socket) > maxSocketPath {
		return bad("/socket", fmt.Sprintf("has more than %d bytes", maxSocketPath))
	}
	if c.TCP != "" {
		at, err := netip.ParseAddrPort(c.TCP)
		if err != nil || !at.Addr().IsLoopback() || at.Addr().Zone() != "" {
			return bad("/tcp", "is not a loopback address with a port, such as 127.0.0.1:7417")
		}
	}
	if len(c.OperatorUIDs) > maxOperatorUIDs {
		return bad("/operator_uids", fmt.Sprintf("has more than %d", maxOperatorUIDs))
	}
	slices.Sort(c.OperatorUIDs)
	c.OperatorUIDs = slices.Compact(c.OperatorUIDs)
	if c.StoreClass != seal.ClassShared && c.StoreClass != seal.ClassIsolated {
		return bad("/store_class", "is neither shared nor isolated")
	}
	return nil
}

// dsn reads the name of the database. It never stands in an error.
func (c Config) dsn() (string, error) {
	what := fmt.Sprintf("read the database's name from %q", c.PostgresDSNFile)
	st, err := os.Lstat(c.PostgresDSNFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", problem.New(problem.Missing, what, "there is no such file", "write postgres://USER:PASSWORD@HOST/DATABASE into it, and run chmod 0600")
	case err != nil:
		return "", problem.Wrap(problem.Missing, err, what, "let the daemon read it")
	case !st.Mode().IsRegular():
		return "", problem.New(problem.Refused, what, "it is not a regular file", "name the file itself")
	case st.Mode().Perm()&0o077 != 0:
		return "", problem.New(problem.Refused, what, fmt.Sprintf("its mode %04o lets others in", st.Mode().Perm()), "run: chmod 0600 "+c.PostgresDSNFile)
	}
	data, err := embedded.ReadFile(c.PostgresDSNFile, maxDSNBytes)
	if err != nil {
		return "", problem.Wrap(problem.Missing, err, what, "let the daemon read it")
	}
	return strings.TrimSpace(string(data)), nil
}
