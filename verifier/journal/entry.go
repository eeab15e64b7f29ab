package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"striatum/internal/durable"
	"striatum/receipt"
	"striatum/seal"
)

// AbortedCode is the incident of a receipt that Aborted built.
const AbortedCode = "aborted"

// ErrStillOpen says that the newest number of a repository has no receipt yet:
// finish it, or seal what Leftovers lists.
var ErrStillOpen = errors.New("the repository's newest number is still open")

// entryFile is entry.json.
type entryFile struct {
	SchemaVersion string          `json:"schema_version"`
	Opened        receipt.Opened  `json:"opened"`
	Envelope      string          `json:"envelope"` // the signed opened record
	Draft         receipt.Receipt `json:"draft"`
}

// Entry is one opened number.
type Entry struct {
	Opened   receipt.Opened
	Envelope []byte // the signed opened record, for the store
	// Draft is the receipt as far as it was known when it was last noted.
	Draft receipt.Receipt

	s      *Session
	dir    string
	sealed string // set once the receipt is in the folder
}

// Begin takes the next number of draft.RepositoryID. Before it returns, the
// signed opened record and the draft are on disk, and so is the space for the
// receipt and one note. It sets the draft's schema, lane epoch, number,
// previous seal and, where they are empty, receipt id and lane id.
//
// The draft names everything that is known before untrusted code runs: the
// check, its inputs and tools, the limits. ErrStillOpen: see there.
func (s *Session) Begin(draft receipt.Receipt, requester string) (*Entry, error) {
	e, err := s.begin(draft, requester)
	if err != nil {
		return nil, fmt.Errorf("open a number of repository %q: %w", draft.RepositoryID, err)
	}
	return e, nil
}

func (s *Session) begin(draft receipt.Receipt, requester string) (*Entry, error) {
	dir := filepath.Join(s.j.dir, "open", key(draft.RepositoryID))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(ErrStillOpen, err)
	}
	head, err := s.head(draft.RepositoryID)
	if err != nil {
		return nil, err
	}
	draft.SchemaVersion = receipt.SchemaVersion
	draft.LaneEpoch, draft.Sequence, draft.PrevSeal = s.epoch, head.Sequence+1, head.Seal
	if draft.ReceiptID == "" {
		draft.ReceiptID = fmt.Sprintf("%s-%d", s.epoch[:8], draft.Sequence)
	}
	if draft.Lane.LaneID == "" {
		draft.Lane.LaneID = s.j.cfg.LaneID
	}
	if draft, err = s.presentable(draft); err != nil {
		return nil, err
	}
	opened := receipt.Opened{
		SchemaVersion: receipt.OpenedSchemaVersion,
		LaneID:        draft.Lane.LaneID, LaneEpoch: draft.LaneEpoch, Sequence: draft.Sequence, PrevSeal: draft.PrevSeal,
		RepositoryID: draft.RepositoryID, RunID: draft.RunID, JobID: draft.JobID, Nonce: draft.Nonce,
		CheckID: draft.Check.ID, CheckDigest: draft.Check.Digest, TreeSHA256: draft.Inputs.TreeSHA256,
		Requester: receipt.Text(requester), OpenedAt: s.j.cfg.Now().UTC().Format(time.RFC3339),
	}
	envelope, err := receipt.SignOpened(opened, s.j.cfg.Key)
	if err != nil {
		return nil, err
	}
	e := &Entry{Opened: opened, Envelope: envelope, Draft: draft, s: s, dir: dir}
	return e, e.make()
}

// presentable returns draft as a receipt could be signed from it this moment,
// with its lists cut. That it can be is what keeps a leftover from wedging the
// lane; the signature is thrown away.
func (s *Session) presentable(draft receipt.Receipt) (receipt.Receipt, error) {
	draft.CreatedAt = s.j.cfg.Now().UTC().Format(time.RFC3339)
	_, draft, err := receipt.Sign(notReached(draft), s.j.cfg.Key)
	return draft, err
}

// make writes the entry's folder beside its place and moves it there.
func (e *Entry) make() (err error) {
	open, name := filepath.Split(e.dir)
	tmp := filepath.Join(open, durable.TempPrefix+name)
	e.s.step("make entry")
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	for _, name := range []string{"reserved", "reserved-note"} {
		if err := reserveFile(filepath.Join(tmp, name)); err != nil {
			return err
		}
	}
	data, err := seal.Canonical(entryFile{entryMarker, e.Opened, string(e.Envelope), e.Draft})
	if err != nil {
		return err
	}
	e.s.step("write entry")
	if err := durable.WriteFile(filepath.Join(tmp, "entry.json"), data, 0o600); err != nil {
		return err
	}
	e.s.step("rename entry")
	if err := os.Rename(tmp, e.dir); err != nil {
		return err
	}
	return durable.SyncDir(open)
}

func reserveFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(reserve(f, ReserveBytes), f.Close())
}

// Note makes draft what Aborted starts from, durably: the lane notes at least
// an execution that failed, so that no kill can turn it into something milder.
// The first note needs no free space.
func (e *Entry) Note(draft receipt.Receipt) error {
	if got := openedBy(draft, e.Opened); got != e.Opened {
		return fmt.Errorf("note: the draft is for another place: %+v", got)
	}
	draft, err := e.s.presentable(draft)
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	data, err := seal.Canonical(draft)
	if err != nil {
		return fmt.Errorf("note: %w", err)
	}
	e.Draft = draft
	e.s.step("write note")
	if err := e.put(data, "reserved-note", "note.json"); err != nil {
		return fmt.Errorf("note: %w", err)
	}
	return nil
}

// put writes data into the reserved file, or a new one, and renames it to name.
func (e *Entry) put(data []byte, reserved, name string) error {
	path := filepath.Join(e.dir, reserved)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	e.s.step("rename " + reserved)
	if err := os.Rename(path, filepath.Join(e.dir, name)); err != nil {
		return err
	}
	return durable.SyncDir(e.dir)
}

// Finish stores the number's signed receipt durably, in the space reserved for
// it, and advances the chain. It returns the seal. An envelope for another
// number, or a second receipt for this one, is refused; the same one again
// finishes what failed before.
func (e *Entry) Finish(envelope []byte) (sealed string, err error) {
	sealed, err = e.finish(envelope)
	if err != nil {
		return "", fmt.Errorf("finish number %d of repository %q: %w", e.Opened.Sequence, e.Opened.RepositoryID, err)
	}
	return sealed, nil
}

func (e *Entry) finish(envelope []byte) (string, error) {
	r, err := receipt.Parse(envelope)
	if err != nil {
		return "", err
	}
	if got := openedBy(r, e.Opened); got != e.Opened {
		return "", fmt.Errorf("the receipt is for another place: %+v", got)
	}
	if e.sealed != "" && e.sealed != r.SealDigest {
		return "", fmt.Errorf("it already has the receipt %s", e.sealed)
	}
	if e.sealed == "" {
		e.s.step("write receipt")
		if err := e.put(envelope, "reserved", r.SealDigest+suffix); err != nil {
			return "", err
		}
		e.sealed = r.SealDigest
	}
	return e.sealed, e.advance()
}

// openedBy is o with everything that a receipt repeats taken from r.
func openedBy(r receipt.Receipt, o receipt.Opened) receipt.Opened {
	o.LaneID, o.LaneEpoch, o.Sequence, o.PrevSeal = r.Lane.LaneID, r.LaneEpoch, r.Sequence, r.PrevSeal
	o.RepositoryID, o.RunID, o.JobID, o.Nonce = r.RepositoryID, r.RunID, r.JobID, r.Nonce
	o.CheckID, o.CheckDigest, o.TreeSHA256 = r.Check.ID, r.Check.Digest, r.Inputs.TreeSHA256
	return o
}

// advance moves the head of the chain to a finished entry, and the entry to
// pending. Done twice it changes nothing. The move is not synced: if a power
// cut undoes it, the next holder of the lock does it again.
func (e *Entry) advance() error {
	data, err := seal.Canonical(chain{chainMarker, e.Opened.RepositoryID, e.Opened.LaneEpoch, e.Opened.Sequence, e.sealed})
	if err != nil {
		return err
	}
	for _, name := range []string{"reserved", "reserved-note"} {
		if err := os.Remove(filepath.Join(e.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	e.s.step("write chain")
	if err := durable.WriteFile(e.s.j.chainPath(e.Opened.RepositoryID), data, 0o600); err != nil {
		return err
	}
	e.s.step("move to pending")
	to := e.s.j.pendingPath(e.sealed)
	if err := os.Rename(e.dir, to); err != nil {
		return err
	}
	e.dir = to
	return nil
}

// entries lists the open numbers of this epoch.
func (s *Session) entries() ([]*Entry, error) {
	names, err := os.ReadDir(filepath.Join(s.j.dir, "open"))
	if err != nil {
		return nil, fmt.Errorf("list open numbers: %w", err)
	}
	var out []*Entry
	for _, n := range names {
		e, err := s.readEntry(n.Name())
		if err != nil {
			return nil, fmt.Errorf("list open numbers: %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}

func (s *Session) readEntry(name string) (*Entry, error) {
	dir := filepath.Join(s.j.dir, "open", name)
	var ef entryFile
	if err := readJSON(filepath.Join(dir, "entry.json"), maxEntryBytes, &ef); err != nil {
		return nil, err
	}
	if ef.SchemaVersion != entryMarker || key(ef.Opened.RepositoryID) != name {
		return nil, fmt.Errorf("entry %q: schema %q, repository %q", dir, ef.SchemaVersion, ef.Opened.RepositoryID)
	}
	e := &Entry{Opened: ef.Opened, Envelope: []byte(ef.Envelope), Draft: ef.Draft, s: s, dir: dir}
	if err := readJSON(filepath.Join(dir, "note.json"), maxEntryBytes, &e.Draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if sealed, ok := strings.CutSuffix(f.Name(), suffix); ok && seal.ValidDigest(sealed) {
			e.sealed = sealed
		}
	}
	return e, nil
}

// Leftovers lists the numbers that a kill, a cancel or a full disk left open.
// The lane signs Aborted of each and finishes it, before it begins another.
func (s *Session) Leftovers() ([]*Entry, error) { return s.entries() }

// Aborted is the receipt body of a number that nobody will finish: the draft
// as last noted, with the incident "aborted". It is indeterminate unless an
// execution that was noted had already failed. Call it in the session that
// holds the number; at is when, and why completes "the lane stopped: ".
func (e *Entry) Aborted(at time.Time, why string) receipt.Receipt {
	r := notReached(e.Draft)
	r.CreatedAt = at.UTC().Format(time.RFC3339)
	r.Incidents = append(slices.Clone(r.Incidents), receipt.Incident{
		Code: AbortedCode, Effect: receipt.MakesIndeterminate, Detail: "the lane stopped: " + why,
	})
	return r
}

// notReached fills in what a draft leaves open about its control.
func notReached(r receipt.Receipt) receipt.Receipt {
	if r.Control.Kind == "" {
		r.Control.Kind = receipt.ControlNone
	}
	if r.Control.Outcome == "" {
		r.Control.Outcome, r.Control.Why = receipt.NotReached, AbortedCode
	}
	return r
}
