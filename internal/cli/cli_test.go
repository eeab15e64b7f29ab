package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"striatum/internal/cli"
)

func TestWriteJSONPrintsNothingThatATerminalActsOn(t *testing.T) {
	hostile := "a\x1b[2Jb\u009bc\u202ed\nénd"
	var out strings.Builder
	if err := (cli.Streams{Out: &out}).WriteJSON(map[string]string{"k": hostile}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\u009b\u202e") {
		t.Errorf("printed as it is: %q", out.String())
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back["k"] != hostile {
		t.Errorf("read back %q, %v; want %q", back["k"], err, hostile)
	}
}
