// Package tokenfile writes a token that is shown once to the file that its holder
// named.
package tokenfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"striatum/internal/durable"
	"striatum/internal/problem"
)

// Write makes the file at path, 0600, with the token alone; file and folder
// are on disk when it returns nil, and there is no file when it does not. What is
// there already, also a link, is refused and left alone. The error is a problem.
func Write(path, token string) (err error) {
	what := fmt.Sprintf("write the token to %q", path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return problem.New(problem.Refused, what, "something is there already, and was left alone",
			"name a file that does not exist; if a command that was killed left this one, its token is good nowhere: remove it")
	case err != nil:
		return problem.Wrap(problem.Usage, err, what, "name a new file in a folder that exists and can be written")
	}
	defer func() {
		if err != nil {
			err = problem.Wrap(problem.Indeterminate, errors.Join(err, os.Remove(path)), what, "no token was minted; run the command again")
		}
	}()
	_, err = f.WriteString(token + "\n")
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
