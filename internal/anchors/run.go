package anchors

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

const resultMarker = "striatum.anchors_result.v1"

// state is what became of one anchor.
type state string

const (
	ok         state = "ok"
	differs    state = "differs"
	absent     state = "absent"
	irregular  state = "irregular"
	unreadable state = "unreadable"
)

// Run compares the anchors in the file with the tree at root and prints the
// lines of the package comment to out. It returns the exit code.
func Run(anchorsFile, root string, out io.Writer) int {
	w := bufio.NewWriter(out)
	code := run(anchorsFile, root, w)
	if w.Flush() != nil {
		return 1
	}
	return code
}

func run(anchorsFile, root string, w io.Writer) int {
	list, err := readFile(anchorsFile)
	if err == nil && len(list) == 0 {
		err = errors.New("it names no file")
	}
	if err != nil {
		fmt.Fprintf(w, "invalid %q\n", err.Error())
		return 1
	}
	top, err := os.OpenRoot(root)
	if err != nil {
		fmt.Fprintf(w, "invalid %q\n", "tree cannot be opened")
		return 1
	}
	defer top.Close()
	code := 0
	fmt.Fprintf(w, "%s %d\n", resultMarker, len(list))
	for _, a := range list {
		st, sum := look(top, a)
		if st != ok {
			code = 1
		}
		fmt.Fprintf(w, "%s %s %q\n", st, sum, a.Path)
	}
	fmt.Fprintf(w, "end %d\n", len(list))
	return code
}

func readFile(path string) ([]Anchor, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.New("it cannot be opened as a plain file")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	return Parse(data)
}

// look reads the anchored file without following any link.
func look(top *os.Root, a Anchor) (state, string) {
	for end := 0; end <= len(a.Path); end++ {
		if end != len(a.Path) && a.Path[end] != '/' {
			continue
		}
		info, err := top.Lstat(a.Path[:end])
		last := end == len(a.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return absent, "-"
		case err != nil:
			return unreadable, "-"
		case info.Mode()&fs.ModeSymlink != 0, last && !info.Mode().IsRegular():
			return irregular, "-"
		case !last && !info.IsDir():
			return absent, "-"
		}
	}
	f, err := top.OpenFile(a.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return unreadable, "-"
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return unreadable, "-"
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if sum != a.SHA256 {
		return differs, sum
	}
	return ok, sum
}
