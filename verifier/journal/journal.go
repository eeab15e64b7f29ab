package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"striatum/internal/durable"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/seal"
)

// ReserveBytes is the space that Begin reserves for a receipt, and again for
// one note.
const ReserveBytes = receipt.MaxBytes

const (
	entryMarker   = "striatum.lane_entry.v1"
	maxEntryBytes = 4 << 20
	suffix        = ".receipt.json"
)

// Config is what a journal needs from its lane. All fields but MachineID are
// required.
type Config struct {
	Now       func() time.Time
	Rand      io.Reader
	Key       *seal.PrivateKey // signs opened records
	LaneID    string
	MachineID string // of this host; a state from another one gets a new epoch
	PID       int    // written into the lock for those who wait

	// crash, in tests, is called before every write and may not return.
	crash func(step string)
}

// Journal is a lane's journal. It holds no lock; several processes may have
// it open.
type Journal struct {
	dir string
	cfg Config
}

// Open makes the folders of a journal below dir, with mode 0700, where they
// are missing.
func Open(dir string, cfg Config) (*Journal, error) {
	if cfg.Now == nil || cfg.Rand == nil || cfg.Key == nil || cfg.LaneID == "" {
		return nil, errors.New("open lane journal: the configuration lacks a clock, randomness, a key or a lane id")
	}
	for _, name := range []string{"chains", "open", "pending", "receipts", "epochs"} {
		if err := durable.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("open lane journal: %w", err)
		}
	}
	return &Journal{dir: dir, cfg: cfg}, nil
}

// Session is the right to write: it holds the lane's lock. Its methods are not
// for several goroutines at once, except Note of different entries.
type Session struct {
	j     *Journal
	file  *os.File
	epoch string
}

// Lock waits until no other process holds the lane, for at most wait, telling
// onWait for whom. Then it finishes what a crash prevented. The error is a
// problem.Indeterminate around a *BusyError when the time is up, or ctx's
// cause. what says what the lane is about to do, for those who wait. The
// caller must Release the session.
func (j *Journal) Lock(ctx context.Context, what string, wait time.Duration, onWait func(Holder)) (*Session, error) {
	me := Holder{lockMarker, j.cfg.PID, what, j.cfg.Now().UTC().Format(time.RFC3339)}
	f, err := lock(ctx, j.dir, me, wait, onWait)
	if err != nil {
		return nil, err
	}
	s := &Session{j: j, file: f}
	if err := s.recover(); err != nil {
		return nil, errors.Join(problem.Wrap(problem.Internal, err, "the lane's journal cannot be recovered",
			fmt.Sprintf("if no disk is full or broken, move %q away: the next run begins a new chain, and what was recorded is in the store", j.dir)), f.Close())
	}
	return s, nil
}

// Release lets the next one have the lane.
func (s *Session) Release() error {
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("release lane: %w", err)
	}
	return nil
}

// Epoch returns the lane's epoch, 32 hex digits.
func (s *Session) Epoch() string { return s.epoch }

// Head returns the newest finished number of a repository in this epoch and
// its seal: 0 and 64 zeros before the first.
func (s *Session) Head(repositoryID string) (sequence int64, sealed string, err error) {
	c, err := s.head(repositoryID)
	return c.Sequence, c.Seal, err
}

func (s *Session) step(name string) {
	if s.j.cfg.crash != nil {
		s.j.cfg.crash(name)
	}
}

// recover does again what follows from steps that were taken.
func (s *Session) recover() error {
	if err := errors.Join(durable.SweepTemp(s.j.dir), durable.SweepTemp(filepath.Join(s.j.dir, "chains"))); err != nil {
		return err
	}
	open := filepath.Join(s.j.dir, "open")
	names, err := os.ReadDir(open)
	if err != nil {
		return err
	}
	for _, name := range names {
		dir := filepath.Join(open, name.Name())
		if strings.HasPrefix(name.Name(), durable.TempPrefix) {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		} else if err := durable.SweepTemp(dir); err != nil {
			return err
		}
	}
	if err := s.loadState(); err != nil {
		return err
	}
	if err := s.putAway(); err != nil {
		return err
	}
	entries, err := s.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.sealed == "" {
			continue
		}
		if err := e.advance(); err != nil {
			return err
		}
	}
	return nil
}

// Pending lists the seals of finished receipts that were not marked as
// recorded, in no order that matters: Load each and sort by its number.
func (j *Journal) Pending() ([]string, error) {
	names, err := os.ReadDir(filepath.Join(j.dir, "pending"))
	if err != nil {
		return nil, fmt.Errorf("list pending receipts: %w", err)
	}
	var seals []string
	for _, n := range names {
		if seal.ValidDigest(n.Name()) {
			seals = append(seals, n.Name())
		}
	}
	return seals, nil
}

// Load returns the envelopes of a finished receipt and of its opened record.
// The error is fs.ErrNotExist when the journal has none of that seal.
func (j *Journal) Load(sealed string) (opened, envelope []byte, err error) {
	if !seal.ValidDigest(sealed) {
		return nil, nil, fmt.Errorf("load receipt: %q is no seal", sealed)
	}
	// A receipt moves from pending to receipts, never back: look there last.
	for _, dir := range []string{j.pendingPath(sealed), j.receiptPath(sealed)} {
		opened, envelope, err = load(dir, sealed)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("load receipt %s: %w", sealed, err)
	}
	return opened, envelope, nil
}

func load(dir, sealed string) (opened, envelope []byte, err error) {
	envelope, err = readCapped(filepath.Join(dir, sealed+suffix), receipt.MaxBytes)
	if err != nil {
		return nil, nil, err
	}
	var e entryFile
	if err := readJSON(filepath.Join(dir, "entry.json"), maxEntryBytes, &e); err != nil {
		return nil, nil, err
	}
	return []byte(e.Envelope), envelope, nil
}

// MarkRecorded says that the store has the receipt and its opened record. It
// is idempotent, and not synced: at worst the receipt is pending again.
func (s *Session) MarkRecorded(sealed string) error {
	if !seal.ValidDigest(sealed) {
		return fmt.Errorf("mark receipt as recorded: %q is no seal", sealed)
	}
	to := s.j.receiptPath(sealed)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("mark receipt as recorded: %w", err)
	}
	s.step("move to receipts")
	err := os.Rename(s.j.pendingPath(sealed), to)
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(to); serr == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("mark receipt as recorded: %w", err)
	}
	return nil
}

func (j *Journal) pendingPath(sealed string) string { return filepath.Join(j.dir, "pending", sealed) }

func (j *Journal) receiptPath(sealed string) string {
	return filepath.Join(j.dir, "receipts", sealed[:2], sealed)
}

func (j *Journal) chainPath(repositoryID string) string {
	return filepath.Join(j.dir, "chains", key(repositoryID)+".json")
}

// key is a repository id as a file name.
func key(repositoryID string) string { return seal.SHA256Hex([]byte(repositoryID)) }
