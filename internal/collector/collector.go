// Package collector keeps what the go command made in a sandbox: the new entries
// of its cache, see Fresh, and what `go test -exec` would run. The go command starts
//
//	striatum-init collect OUTDIR -- BINARY ARG...
//
// once for each test binary, in the package's folder. The collector copies the
// binary into OUTDIR and writes a record of folder, arguments and file name
// beside it; it runs nothing and prints nothing, and its status 0 lets the go
// command go on. Afterwards the lane reads each package's record by its name.
//
// A record is the file NAME.json of one JSON object
//
//	{"schema_version":"striatum.collected.v1","dir":"/workspace/a","args":["-test.v"],"binary":"NAME.test"}
//
// and a newline, where NAME is the hex SHA-256 of dir. There is exactly one way
// to write a record; ParseRecord refuses any other bytes.
package collector

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const schemaVersion = "striatum.collected.v1"

// The bounds of a record.
const (
	MaxRecordBytes = 64 << 10
	MaxArgs        = 64
	maxBinaryBytes = 4 << 30
)

// Record says where and with which arguments the go command would have started
// a test binary. A Record that ParseRecord returned is valid.
type Record struct {
	SchemaVersion string   `json:"schema_version"`
	Dir           string   `json:"dir"` // absolute and clean
	Args          []string `json:"args"`
	Binary        string   `json:"binary"` // name of the copy, beside the record
}

// RecordName returns the name of the record that Collect writes for the folder dir.
func RecordName(dir string) string { return name(dir) + ".json" }

func name(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:])
}

// Collect copies the binary argv[0] into outDir and records that it would have
// been started in dir with the rest of argv. Two binaries for one folder are an
// error.
func Collect(outDir, dir string, argv []string) error {
	if len(argv) == 0 {
		return errors.New("collect a test binary: no binary is named")
	}
	base := name(dir)
	rec := Record{SchemaVersion: schemaVersion, Dir: dir, Args: append([]string{}, argv[1:]...), Binary: base + ".test"}
	if err := rec.validate(); err != nil {
		return fmt.Errorf("collect a test binary: %w", err)
	}
	data, err := rec.encode()
	if err != nil {
		return fmt.Errorf("collect a test binary: %w", err)
	}
	if err := copyFile(filepath.Join(outDir, rec.Binary), argv[0]); err != nil {
		return fmt.Errorf("collect a test binary: %w", err)
	}
	// The record is written last: a copy without one does not count.
	f, err := os.OpenFile(filepath.Join(outDir, RecordName(dir)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // read by a run, as another user
	if err != nil {
		return fmt.Errorf("collect a test binary: %w", err)
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func copyFile(dst, src string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBinaryBytes {
		return fmt.Errorf("copy %q: it is no regular file of at most %d bytes", src, int64(maxBinaryBytes))
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755) //nolint:gosec // executed by a run, as another user
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Chmod(0o755) // whatever the umask is
}

func (r Record) encode() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if data = append(data, '\n'); len(data) > MaxRecordBytes {
		return nil, fmt.Errorf("the record is over %d bytes", MaxRecordBytes)
	}
	return data, nil
}

func (r Record) validate() error {
	switch {
	case r.SchemaVersion != schemaVersion:
		return fmt.Errorf("schema_version %q is not %q", r.SchemaVersion, schemaVersion)
	case !path.IsAbs(r.Dir) || path.Clean(r.Dir) != r.Dir:
		return fmt.Errorf("folder %q is not absolute and clean", r.Dir)
	case r.Binary != name(r.Dir)+".test":
		return fmt.Errorf("binary %q is not named after folder %q", r.Binary, r.Dir)
	case r.Args == nil:
		return errors.New("there is no list of arguments")
	case len(r.Args) > MaxArgs:
		return fmt.Errorf("there are over %d arguments", MaxArgs)
	}
	for _, s := range append([]string{r.Dir}, r.Args...) {
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return fmt.Errorf("%q is not text", s)
		}
	}
	return nil
}

// ParseRecord reads the bytes of one record. It accepts only what Collect writes.
func ParseRecord(data []byte) (Record, error) {
	if len(data) > MaxRecordBytes {
		return Record{}, fmt.Errorf("read record: it is over %d bytes", MaxRecordBytes)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("read record: %w", err)
	}
	if err := r.validate(); err != nil {
		return Record{}, fmt.Errorf("read record: %w", err)
	}
	if again, err := r.encode(); err != nil || !bytes.Equal(again, data) {
		return Record{}, errors.New("read record: it is not written as a collector writes it")
	}
	return r, nil
}
