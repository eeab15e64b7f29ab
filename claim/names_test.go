package claim

import (
	"strings"
	"testing"
)

func TestNamesHaveAtMost200Bytes(t *testing.T) {
	longest := strings.Repeat("a", 200)
	for name, want := range map[string]bool{longest: true, longest + "a": false, "": false, "a b": false, "-a": false, "a\n": false} {
		if validName(name) != want || validAuthor("lane:"+name) != want {
			t.Errorf("%.20q, %d bytes: a name %v, an author %v; want %v", name, len(name), validName(name), validAuthor("lane:"+name), want)
		}
	}
}
