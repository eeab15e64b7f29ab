package shellquote_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/internal/shellquote"
)

// words are what a line may have to carry.
var words = []string{
	"go", "-count=1", "", "a b", "it's", `back\slash`, `"`, "$HOME", "`id`", "a;b", "*", "~", "\x1b[31m", "line\nbreak", "\u202eevil", "\xff", "{target}/x", "-",
}

func TestAShellReadsALineBack(t *testing.T) {
	line := shellquote.Line(words)
	for i := range len(line) {
		if line[i] < ' ' || line[i] >= 0x7f {
			t.Fatalf("the line holds %q", line[i])
		}
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf '%s\\0' "+line).Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Join(words, "\x00")+"\x00", string(out)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlainWordsStayAsTheyAre(t *testing.T) {
	if got := shellquote.Line([]string{"go", "test", "-json", "-count=1", "./..."}); got != "go test -json -count=1 ./..." {
		t.Errorf("got %s", got)
	}
	for word, want := range map[string]string{"builtin:go-test": "builtin:go-test", "--run": "'--run'", "": "''"} {
		if got := shellquote.Word(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}
