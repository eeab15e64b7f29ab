package home_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"striatum/internal/home"
	"striatum/internal/problem"
)

func TestSettingsAreStrict(t *testing.T) {
	h := &home.Home{Dir: t.TempDir()}
	if s, err := h.Settings(); err != nil || s.Go != "" || s.Proxies != nil {
		t.Fatalf("without a file: %+v, %v", s, err)
	}
	for name, text := range map[string]string{
		"unknown key":    `{"schema_version":"striatum.config.v1","gopath":"/x"}`,
		"duplicate key":  `{"schema_version":"striatum.config.v1","go":"/a","go":"/b"}`,
		"relative path":  `{"schema_version":"striatum.config.v1","go":"bin/go"}`,
		"unclean path":   `{"schema_version":"striatum.config.v1","runc_path":"/usr/../tmp/runc"}`,
		"other version":  `{"schema_version":"striatum.config.v2"}`,
		"no version":     `{}`,
		"negative bound": `{"schema_version":"striatum.config.v1","snapshot_files":-1}`,
		"not JSON":       `go: /usr/bin/go`,
	} {
		if err := os.WriteFile(filepath.Join(h.Dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := h.Settings()
		if p := problem.Of(err); p == nil || p.Kind != problem.Invalid {
			t.Errorf("%s: error %v, want an invalid document", name, err)
		}
	}
	good := `{"schema_version":"striatum.config.v1","go":"/opt/go/bin/go","proxies":[],"sumdb":"k","snapshot_files":7}`
	if err := os.WriteFile(filepath.Join(h.Dir, "config.json"), []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := h.Settings()
	if err != nil || s.Go != "/opt/go/bin/go" || s.Proxies == nil || len(*s.Proxies) != 0 || s.SumDB != "k" || s.SnapshotFiles != 7 {
		t.Errorf("Settings() = %+v, %v", s, err)
	}
}

func TestSettingsThatAreNoFileAreRefused(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"FIFO":   func(path string) error { return syscall.Mkfifo(path, 0o600) }, // and not waited for
	} {
		h := &home.Home{Dir: t.TempDir()}
		if err := plant(h.ConfigPath()); err != nil {
			t.Fatal(err)
		}
		_, err := h.Settings()
		if p := problem.Of(err); p == nil || p.Kind != problem.Refused || p.Hint == "" {
			t.Errorf("%s: got %v, want kind Refused with a hint", name, err)
		}
	}
}
