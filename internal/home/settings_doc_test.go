package home

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestFormatsPageHasEverySetting(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "formats.md"))
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[Settings]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/formats.md does not name %q", name)
		}
	}
}
