// Package versioncmd is `striatum version`: which build this is.
package versioncmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
)

// version is set by the linker from the tag; a plain `go build` leaves it
// empty, and the module version of the build info counts.
var version string

// Info is what `striatum version --output json` prints.
type Info struct {
	SchemaVersion string `json:"schema_version"` // striatum.version.v1
	Version       string `json:"version"`
	Commit        string `json:"commit"`
	Modified      bool   `json:"modified"`
	Go            string `json:"go"`
	OS            string `json:"os"`
	Arch          string `json:"arch"`
}

// Read returns what this binary knows of itself.
func Read() Info {
	info := Info{SchemaVersion: "striatum.version.v1", Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	bi, ok := debug.ReadBuildInfo()
	if ok {
		if info.Version == "" {
			info.Version = bi.Main.Version
		}
		for _, s := range bi.Settings {
			switch s.Key {
			case "vcs.revision":
				info.Commit = s.Value
			case "vcs.modified":
				info.Modified = s.Value == "true"
			}
		}
	}
	if info.Version == "" {
		info.Version = "devel"
	}
	return info
}

// New returns the command.
func New(f *cli.Factory) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print which build this is",
		Example: "  striatum version\n  striatum version --output json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info := Read()
			if out == cli.JSON {
				return f.Streams.WriteJSON(info)
			}
			_, err := fmt.Fprintf(f.Streams.Out, "striatum %s %s/%s %s\n", info.Version, info.OS, info.Arch, info.Go)
			if err == nil && info.Commit != "" {
				_, err = fmt.Fprintf(f.Streams.Out, "commit %s modified %t\n", info.Commit, info.Modified)
			}
			return err
		},
	}
	cli.AddOutput(cmd, &out)
	return cmd
}
