package gitrepo

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

var (
	// ErrUnknownRevision means that a name leads to no commit here.
	ErrUnknownRevision = errors.New("no such revision")
	// ErrAmbiguous means that a name leads to several commits.
	ErrAmbiguous = errors.New("several refs have this name")
)

const (
	maxRefBytes        = 4 << 10
	maxPackedRefsBytes = 64 << 20
	maxRefSteps        = 5 // symbolic refs, one leading to the next
	maxTagSteps        = 5 // tags of tags
	maxCommitBytes     = 16 << 20
)

// ID is the raw id of an object, of 20 (SHA-1) or 32 (SHA-256) bytes.
type ID string

func (id ID) String() string { return hex.EncodeToString([]byte(id)) }

func parseID(s string) (ID, bool) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != 20 && len(raw) != 32 {
		return "", false
	}
	return ID(raw), true
}

// Commit finds the commit that rev names: a full id, HEAD, or the name of a ref
// with or without refs/, refs/tags/, refs/heads/ or refs/remotes/ in front. A
// name that fits two refs that differ is ambiguous, a shortened id is unknown.
// Replacements (refs/replace) are not applied. tree is the id of the commit's
// tree.
func (r *Repo) Commit(ctx context.Context, rev string) (commit, tree ID, err error) {
	id, err := r.resolve(rev)
	if err != nil {
		return "", "", err
	}
	for range maxTagSteps {
		kind, body, err := r.read(ctx, id, maxCommitBytes)
		if err != nil {
			return "", "", err
		}
		if kind == KindCommit {
			tree, err := headerID(body, "tree ", id)
			return id, tree, err
		}
		if kind != KindTag {
			break
		}
		if id, err = headerID(body, "object ", id); err != nil {
			return "", "", err
		}
	}
	return "", "", fmt.Errorf("%w: %q leads to no commit", ErrUnknownRevision, rev)
}

// headerID reads the id in the first line of the commit or tag id.
func headerID(body []byte, key string, id ID) (ID, error) {
	line, _, _ := bytes.Cut(body, []byte("\n"))
	text, found := bytes.CutPrefix(line, []byte(key))
	out, ok := parseID(string(text))
	if !found || !ok || len(out) != len(id) {
		return "", fmt.Errorf("%w: object %s has no line %q", ErrObject, id, strings.TrimSpace(key))
	}
	return out, nil
}

func (r *Repo) resolve(rev string) (ID, error) {
	if id, ok := parseID(strings.ToLower(rev)); ok {
		return id, nil
	}
	if rev == "HEAD" {
		return r.ref("HEAD")
	}
	if !fs.ValidPath(rev) || strings.ContainsAny(rev, "\x00\n:^~?*[\\ ") {
		return "", fmt.Errorf("%w: %q is no full id and no name of a ref", ErrUnknownRevision, rev)
	}
	candidates := []string{"refs/tags/" + rev, "refs/heads/" + rev, "refs/remotes/" + rev}
	if strings.HasPrefix(rev, "refs/") {
		candidates = []string{rev}
	}
	var found []ID
	for _, name := range candidates {
		id, err := r.ref(name)
		switch {
		case err == nil:
			found = append(found, id)
		case !errors.Is(err, ErrUnknownRevision):
			return "", err
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: %q is no full id and no name of a ref", ErrUnknownRevision, rev)
	}
	for _, id := range found[1:] {
		if id != found[0] {
			return "", fmt.Errorf("%w: %q", ErrAmbiguous, rev)
		}
	}
	return found[0], nil
}

var errReftable = fmt.Errorf("%w: its refs are in a reftable", ErrFormat)

// ref follows the ref name. HEAD is the worktree's own, all else is common.
func (r *Repo) ref(name string) (ID, error) {
	for range maxRefSteps {
		dir := r.common
		if name == "HEAD" {
			dir = r.own
		}
		data, err := dir.ReadFile(name, maxRefBytes)
		if errors.Is(err, fs.ErrNotExist) || isFolder(err) {
			return r.packedRef(name)
		}
		if err != nil {
			return "", err
		}
		text := strings.TrimRight(string(data), "\r\n\t ")
		if id, ok := parseID(text); ok {
			return id, nil
		}
		to, found := strings.CutPrefix(text, "ref:")
		to = strings.TrimLeft(to, " \t")
		if !found || !fs.ValidPath(to) || !strings.HasPrefix(to, "refs/") {
			return "", fmt.Errorf("%w: the ref %q is malformed", ErrObject, name)
		}
		if to == "refs/heads/.invalid" {
			return "", errReftable
		}
		name = to
	}
	return "", fmt.Errorf("%w: its refs lead in a circle", ErrObject)
}

func (r *Repo) packedRef(name string) (ID, error) {
	if d, err := r.common.Dir("reftable"); err == nil {
		return "", errors.Join(errReftable, d.Close())
	}
	data, err := r.common.ReadFile("packed-refs", maxPackedRefsBytes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for line := range bytes.Lines(data) {
		text, at, found := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		if !found || at != name {
			continue
		}
		if id, ok := parseID(text); ok {
			return id, nil
		}
	}
	return "", fmt.Errorf("%w: there is no ref %q", ErrUnknownRevision, name)
}
