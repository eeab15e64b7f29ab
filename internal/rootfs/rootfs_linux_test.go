package rootfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestRootHoldsLinksGeneratedFilesAndPointsOnly(t *testing.T) {
	host, dir := t.TempDir(), filepath.Join(t.TempDir(), "root")
	for _, d := range []string{"usr/bin", "usr/lib", "usr/lib64", "etc/alternatives", "etc/ssl/certs"} {
		if err := os.MkdirAll(filepath.Join(host, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "secret:x:0:0", "etc/shadow": "secret", "etc/ld.so.cache": "cache", "etc/ssl/certs/ca-certificates.crt": "certs",
	} {
		if err := os.WriteFile(filepath.Join(host, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"awk": "/usr/bin/mawk", "odd": "/home/somebody/awk"} {
		if err := os.Symlink(to, filepath.Join(host, "etc/alternatives", link)); err != nil {
			t.Fatal(err)
		}
	}
	points := []Point{{Path: "/workspace"}, {Path: "/opt/a/file", File: true}}
	if err := Make(dir, filepath.Join(host, "usr"), filepath.Join(host, "etc"), points); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o022 != 0 && d.Type() != fs.ModeSymlink {
			t.Errorf("%s can be written by others: %v", rel, info.Mode())
		}
		switch d.Type() { //nolint:exhaustive // other types have no content
		case fs.ModeSymlink:
			got[rel], err = os.Readlink(p)
		case 0:
			var data []byte
			data, err = os.ReadFile(p)
			got[rel] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "etc/ld.so.cache": "cache", "etc/ssl/certs/ca-certificates.crt": "certs",
		"etc/alternatives/awk": "/usr/bin/mawk", "opt/a/file": "", "etc/localtime": "/usr/share/zoneinfo/Etc/UTC", "etc/resolv.conf": "",
	} {
		if have, ok := got[name]; !ok || have != want {
			t.Errorf("%s is %q (%v), want %q", name, have, ok, want)
		}
	}
	for _, name := range []string{"sbin", "etc/shadow", "etc/alternatives/odd"} {
		if _, ok := got[name]; ok {
			t.Errorf("%s is there", name)
		}
	}
	if got["etc/passwd"] == "secret:x:0:0" {
		t.Error("the host's accounts are there")
	}
	if err := Make(dir, filepath.Join(host, "usr"), filepath.Join(host, "etc"), nil); err == nil {
		t.Error("a root was made twice in one place")
	}
}

// TestATreesOwnEtcIsBounded: what of a tree's /etc is copied, and that too much
// of it is an error.
func TestATreesOwnEtcIsBounded(t *testing.T) {
	tree := t.TempDir()
	etc := filepath.Join(tree, "etc")
	outside := filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(etc, "d/e"), 0o755), os.WriteFile(filepath.Join(etc, "d/e/f"), []byte("f"), 0o400),
		os.WriteFile(filepath.Join(etc, "passwd"), []byte("evil"), 0o600), os.MkdirAll(filepath.Join(etc, "hosts/d"), 0o755),
		os.WriteFile(outside, []byte("secret"), 0o600), os.Symlink(outside, filepath.Join(etc, "link")), os.Symlink("/", filepath.Join(etc, "d/up")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "root")
	if err := MakeTree(dir, tree, nil); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "etc/d/e/f")); err != nil || string(data) != "f" {
		t.Errorf("a file: %q, %v", data, err)
	}
	for link, want := range map[string]string{"link": outside, "d/up": "/"} {
		if to, err := os.Readlink(filepath.Join(dir, "etc", link)); err != nil || to != want {
			t.Errorf("%s leads to %q, %v", link, to, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "etc/passwd")); err != nil || string(data) == "evil" {
		t.Errorf("passwd: %q, %v", data, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "etc/hosts")); err != nil || len(data) == 0 {
		t.Errorf("hosts: %q, %v", data, err)
	}
	big := filepath.Join(etc, "big")
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, maxEtcBytes+1); err != nil {
		t.Fatal(err)
	}
	if err := MakeTree(filepath.Join(t.TempDir(), "root"), tree, nil); err == nil {
		t.Error("too large an /etc was copied")
	}
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	for i := range maxEtcEntries {
		if err := os.Symlink("x", filepath.Join(etc, "d", "l"+strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := MakeTree(filepath.Join(t.TempDir(), "root"), tree, nil); err == nil {
		t.Error("too many entries of /etc were copied")
	}
	for _, linked := range []string{outside, "/etc"} {
		tree := t.TempDir()
		if err := os.Symlink(linked, filepath.Join(tree, "etc")); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "root")
		if err := MakeTree(dir, tree, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "etc/ssl")); err == nil {
			t.Error("a link was followed")
		}
	}
}
