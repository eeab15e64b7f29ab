package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxCopy bounds each file that is copied from the host's /etc.
const maxCopy = 4 << 20

// etc is the generated part of /etc.
var etc = []struct{ name, text string }{
	{"passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\ncheck:x:1000:1000:check:/home/check:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
	{"group", "root:x:0:\ncheck:x:1000:\nnogroup:x:65534:\n"},
	{"hosts", "127.0.0.1 localhost check\n::1 localhost\n"},
	{"hostname", "check\n"},
	{"resolv.conf", ""},
	{"nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n"},
	{"protocols", "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6 41 IPv6\nipv6-icmp 58 IPv6-ICMP\n"},
	{"services", "ftp 21/tcp\nssh 22/tcp\nsmtp 25/tcp\ndomain 53/tcp\ndomain 53/udp\nhttp 80/tcp\npop3 110/tcp\nntp 123/udp\nimap2 143/tcp\nldap 389/tcp\nhttps 443/tcp\nhttps 443/udp\n"},
	{"os-release", "ID=striatum\nNAME=striatum\nPRETTY_NAME=striatum\n"},
	{"timezone", "Etc/UTC\n"},
	{"shells", "/bin/sh\n"},
}

// copied are the files of the host's /etc that tools in /usr need.
var copied = []string{"ld.so.cache", "ssl/certs/ca-certificates.crt", "ssl/openssl.cnf"}

// Point is a mount point: a folder, or an empty file.
type Point struct {
	Path string // absolute and clean
	File bool
}

// Make makes a root folder at dir, which must not exist. usr is the host's
// /usr, hostEtc its /etc.
func Make(dir, usr, hostEtc string, points []Point) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make root folder: %w", err)
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if st, err := os.Stat(filepath.Join(usr, name)); err != nil || !st.IsDir() {
			continue
		}
		if err := os.Symlink("usr/"+name, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("make root folder: %w", err)
		}
	}
	if err := makeEtc(filepath.Join(dir, "etc"), hostEtc); err != nil {
		return err
	}
	for _, p := range append([]Point{{Path: "/usr"}, {Path: "/proc"}, {Path: "/dev"}, {Path: "/tmp"}, {Path: "/var/tmp"}, {Path: "/run"}}, points...) {
		if err := p.make(dir); err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
	}
	return nil
}

func (p Point) make(dir string) error {
	path := filepath.Join(dir, p.Path)
	if !p.File {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// generate makes the part of /etc that is the same everywhere.
func generate(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make /etc: %w", err)
	}
	for _, f := range etc {
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.text), 0o644); err != nil {
			return fmt.Errorf("make /etc: %w", err)
		}
	}
	for link, to := range map[string]string{"localtime": "/usr/share/zoneinfo/Etc/UTC", "mtab": "../proc/self/mounts"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			return fmt.Errorf("make /etc: %w", err)
		}
	}
	return nil
}

func makeEtc(dir, host string) error {
	if err := generate(dir); err != nil {
		return err
	}
	for _, name := range copied {
		if err := copyFile(filepath.Join(host, name), filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("make /etc: %w", err)
		}
	}
	return copyLinks(filepath.Join(host, "alternatives"), filepath.Join(dir, "alternatives"))
}

// copyFile copies a file that may be absent.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxCopy+1))
	if err != nil {
		return err
	}
	if len(data) > maxCopy {
		return fmt.Errorf("%q is larger than %d bytes", from, maxCopy)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// copyLinks copies the links into /usr of a folder that may be absent.
func copyLinks(from, to string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make /etc: %w", err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return fmt.Errorf("make /etc: %w", err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(from, e.Name()))
		if err != nil || !strings.HasPrefix(target, "/usr/") && !strings.HasPrefix(target, "/bin/") {
			continue
		}
		if err := os.Symlink(target, filepath.Join(to, e.Name())); err != nil {
			return fmt.Errorf("make /etc: %w", err)
		}
	}
	return nil
}
