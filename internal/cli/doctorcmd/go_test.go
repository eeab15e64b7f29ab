package doctorcmd

import (
	"strings"
	"testing"

	"striatum/verifier/gocheck"
	"striatum/verifier/toolchain"
)

// Debian 12 has Go 1.19: there is a go command, and no check can use it.
func TestGoThatIsTooOldIsMissing(t *testing.T) {
	for version, ok := range map[string]bool{"go1.19.8": false, "go1.23.12": false, gocheck.MinGoVersion: true, "go1.26.8": true} {
		c := goUsable(toolchain.Toolchain{Version: version, GOROOT: "/usr/lib/go"}, "/home/x/config.json")
		if c.OK != ok || strings.Contains(c.Fix, "/home/x/config.json") == ok || !strings.HasPrefix(c.Observed, version+" at /usr/lib/go") {
			t.Errorf("%s: got %+v", version, c)
		}
	}
}
