// Package receiptcmd is `striatum receipt`: show, verify and explain.
//
// What can be wrong with a receipt, told apart by message and exit code:
//
//	exit 2  there is no such file, or it cannot be opened
//	exit 3  it was changed after it was signed; it contradicts itself; its key
//	        is unknown, revoked, or signs for something else; the manifest is
//	        another one
//	exit 6  the bytes are not a receipt
//
// Everything in a receipt may have been chosen by code under test: it is shown
// with control and bidirectional characters quoted.
package receiptcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/seal"
	"striatum/snapshot"
)

// maxRead bounds the files that are read whole. It is more than any of them
// may have, so that a file that is too long gets the right message.
const maxRead = 16 << 20

// New returns the command.
func New(f *cli.Factory) *cobra.Command {
	return cli.Parent("receipt", "Show, verify and explain receipts",
		"  striatum receipt show SEAL\n  striatum receipt verify SEAL",
		newShow(f), newVerify(f), newExplain(f))
}

// sealPrefix matches the beginning of a seal, as `verifier run` prints it, or all of it.
var sealPrefix = regexp.MustCompile(`^[0-9a-f]{8,64}$`)

// tooShort matches what is the beginning of many seals.
var tooShort = regexp.MustCompile(`^[0-9a-f]{1,7}$`)

// find returns the path of a receipt, which the user names by its file or by the
// beginning of its seal: then of the copy in the worktree, if there is one.
func find(f *cli.Factory, what, name string) (string, error) {
	if !sealPrefix.MatchString(name) && !tooShort.MatchString(name) {
		return name, nil
	}
	if _, err := os.Lstat(name); err == nil {
		return name, nil
	}
	if tooShort.MatchString(name) {
		return "", problem.New(problem.Usage, what, fmt.Sprintf("there is no file %q, and a seal takes its first 8 digits or more", name), "`striatum gate read -v` names the receipts of claims")
	}
	dir, err := f.Getwd()
	if err != nil {
		return "", problem.Wrap(problem.Usage, err, what, "name the receipt's file")
	}
	if dir, err = snapshot.FindTop(dir); err != nil {
		return "", err
	}
	dir = filepath.Join(dir, ".striatum", "receipts")
	copies, err := filepath.Glob(filepath.Join(globbing.Replace(dir), name+"*"+suffix))
	if err != nil {
		return "", fmt.Errorf("look for receipts in %q: %w", dir, err)
	}
	switch len(copies) {
	case 0:
		return "", problem.New(problem.Usage, what, fmt.Sprintf("there is no file %q, and no receipt in %q whose seal begins so", name, dir), "`striatum gate read -v` names the receipts of claims")
	case 1:
		return copies[0], nil
	}
	return "", problem.New(problem.Usage, what, fmt.Sprintf("%d receipts in %q have a seal that begins with %s", len(copies), dir, name), "give more of its digits")
}

// suffix ends the name of a receipt's copy, after its seal.
const suffix = ".receipt.json"

// globbing escapes what filepath.Glob does not take literally.
var globbing = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// readFile reads a file that the user named.
func readFile(what, path string) ([]byte, error) {
	data, err := embedded.ReadFile(path, maxRead)
	_, system := errors.AsType[syscall.Errno](err)
	const named = "receipts lie in .striatum/receipts of the worktree; `striatum gate read -v` names them"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, problem.New(problem.Usage, what, fmt.Sprintf("there is no file %q", path), named)
	case system || errors.Is(err, embedded.ErrNotRegular):
		return nil, problem.Wrap(problem.Usage, err, what, named)
	case err != nil:
		return nil, problem.Wrap(problem.Invalid, err, what, named)
	}
	return data, nil
}

// refused turns an error of package receipt into what the user reads.
func refused(err error, what, path string) error {
	again := "do not rely on it; get the receipt again from the lane or the store"
	switch {
	case errors.Is(err, seal.ErrBadSignature):
		return problem.Wrap(problem.Refused, err, fmt.Sprintf("%s: %q was changed after it was signed", what, path), again)
	case errors.Is(err, seal.ErrUnknownKey):
		return problem.Wrap(problem.Refused, err, fmt.Sprintf("%s: nobody here knows the key of %q", what, path),
			"name the lane's public key with --key, or a trust file with --trust")
	case errors.Is(err, seal.ErrWrongRole):
		return problem.Wrap(problem.Refused, err, fmt.Sprintf("%s: the key of %q may not sign it", what, path), again)
	case errors.Is(err, receipt.ErrSealMismatch):
		return problem.Wrap(problem.Refused, err, fmt.Sprintf("%s: %q contradicts itself", what, path), again)
	}
	return problem.Wrap(problem.Invalid, err, fmt.Sprintf("%s: %q is not a receipt", what, path), "")
}
