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
	"syscall"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/embedded"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/seal"
)

// maxRead bounds the files that are read whole. It is more than any of them
// may have, so that a file that is too long gets the right message.
const maxRead = 16 << 20

// New returns the command.
func New(f *cli.Factory) *cobra.Command {
	return cli.Parent("receipt", "Show, verify and explain receipts",
		"  striatum receipt show .striatum/receipts/SEAL.receipt.json\n  striatum receipt verify .striatum/receipts/SEAL.receipt.json",
		newShow(f), newVerify(f), newExplain(f))
}

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
