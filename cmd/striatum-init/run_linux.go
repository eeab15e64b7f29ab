package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"striatum/internal/anchors"
	"striatum/internal/collector"
	"striatum/internal/execpath"
	"striatum/internal/launcher"
	"striatum/internal/reaper"
)

// run dispatches to the part that args name.
func run(args []string) error {
	if len(args) == 0 {
		return launcher.Run(os.Stdin, os.Stdout)
	}
	switch args[0] {
	case "daemon":
		return reaper.Run(args[1:])
	case "anchors":
		if len(args) != 3 {
			return errors.New("usage: striatum-init anchors ANCHORS_FILE ROOT")
		}
		if anchors.Run(args[1], args[2], os.Stdout) != 0 {
			return errors.New("not every anchor holds")
		}
		return nil
	case "collect":
		if collector.Main(args[1:], os.Stderr) != 0 {
			return errors.New("the test binary was not collected")
		}
		return nil
	case "fresh":
		if len(args) != 3 {
			return errors.New("usage: striatum-init fresh CACHE OUTDIR")
		}
		return collector.Fresh(args[1], args[2])
	case "resolve":
		if len(args) != 4 {
			return errors.New("usage: striatum-init resolve WORD FOLDER SEARCH_PATH")
		}
		return execpath.Write(os.Stdout, args[1], args[2], args[3])
	case "idle":
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	return fmt.Errorf("unknown command %q", args[0])
}
