package journal

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"striatum/internal/durable"
	"striatum/seal"
)

const (
	stateMarker   = "striatum.lane_state.v1"
	chainMarker   = "striatum.lane_chain.v1"
	maxStateBytes = 4 << 10
	epochBytes    = 16
	zeroSeal      = "0000000000000000000000000000000000000000000000000000000000000000"
)

// state names the epoch. It is bound to the very file that it is written in:
// a restored or copied state has another inode, another birth time, or lies on
// another machine, and then gets a new epoch.
type state struct {
	SchemaVersion string `json:"schema_version"`
	LaneEpoch     string `json:"lane_epoch"`
	MachineID     string `json:"machine_id_sha256"`
	Inode         string `json:"inode"`
	BornNS        string `json:"born_ns"` // 0 where the file system does not say
}

// chain is the newest finished number of one repository.
type chain struct {
	SchemaVersion string `json:"schema_version"`
	RepositoryID  string `json:"repository_id"`
	LaneEpoch     string `json:"lane_epoch"`
	Sequence      int64  `json:"sequence"`
	Seal          string `json:"seal"`
}

// loadState reads the epoch, minting one where there is none that belongs here.
func (s *Session) loadState() error {
	path := filepath.Join(s.j.dir, "state.json")
	var st state
	err := readJSON(path, maxStateBytes, &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.Renew()
	case err != nil:
		return err
	case st.SchemaVersion != stateMarker || len(st.LaneEpoch) != 2*epochBytes:
		return fmt.Errorf("lane state %q: schema %q, epoch %q", path, st.SchemaVersion, st.LaneEpoch)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("lane state: %w", err)
	}
	defer f.Close()
	inode, born, err := identity(f)
	if err != nil {
		return err
	}
	if st.MachineID != s.machineID() || st.Inode != inode || st.BornNS != born {
		return s.Renew()
	}
	s.epoch = st.LaneEpoch
	return nil
}

// Renew ends the epoch, if there is one, and mints another: for a lane whose
// store knows of numbers that this journal does not, because an older state
// was put back in place. Numbers that are open in the old epoch are put away
// unsealed: whoever the state was copied from may seal them still.
func (s *Session) Renew() error {
	id := make([]byte, epochBytes)
	if _, err := io.ReadFull(s.j.cfg.Rand, id); err != nil {
		return fmt.Errorf("mint lane epoch: %w", err)
	}
	epoch := hex.EncodeToString(id)
	if err := s.writeState(epoch); err != nil {
		return fmt.Errorf("mint lane epoch: %w", err)
	}
	s.epoch = epoch
	return s.putAway()
}

// putAway moves the open numbers of other epochs below epochs/.
func (s *Session) putAway() error {
	open := filepath.Join(s.j.dir, "open")
	names, err := os.ReadDir(open)
	if err != nil {
		return fmt.Errorf("read lane journal: %w", err)
	}
	for _, name := range names {
		e, err := s.readEntry(name.Name())
		if err != nil {
			return err
		}
		if e.Opened.LaneEpoch == s.epoch {
			continue
		}
		if e.sealed != "" {
			if err := e.advance(); err != nil {
				return err
			}
			continue
		}
		to := filepath.Join(s.j.dir, "epochs", e.Opened.LaneEpoch)
		if err := durable.MkdirAll(to, 0o700); err != nil {
			return err
		}
		s.step("put away")
		if err := os.Rename(e.dir, filepath.Join(to, name.Name())); err != nil {
			return fmt.Errorf("put away lane epoch: %w", err)
		}
		if err := errors.Join(durable.SyncDir(to), durable.SyncDir(open)); err != nil {
			return err
		}
	}
	return nil
}

// writeState writes state.json with its own inode in it.
func (s *Session) writeState(epoch string) (err error) {
	tmp := filepath.Join(s.j.dir, durable.TempPrefix+"state")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	inode, born, err := identity(f)
	if err != nil {
		return err
	}
	data, err := seal.Canonical(state{stateMarker, epoch, s.machineID(), inode, born})
	if err != nil {
		return err
	}
	s.step("write state")
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	s.step("rename state")
	if err := os.Rename(tmp, filepath.Join(s.j.dir, "state.json")); err != nil {
		return err
	}
	return durable.SyncDir(s.j.dir)
}

func (s *Session) machineID() string { return seal.SHA256Hex([]byte(s.j.cfg.MachineID)) }

// head returns the newest finished number of a repository in this epoch;
// number 0 with a seal of zeros before the first.
func (s *Session) head(repositoryID string) (chain, error) {
	none := chain{chainMarker, repositoryID, s.epoch, 0, zeroSeal}
	var c chain
	err := readJSON(s.j.chainPath(repositoryID), maxStateBytes, &c)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none, nil
	case err != nil:
		return chain{}, err
	case c.SchemaVersion != chainMarker || c.RepositoryID != repositoryID || c.Sequence < 1 || !seal.ValidDigest(c.Seal):
		return chain{}, fmt.Errorf("lane chain of repository %q is not readable: %+v", repositoryID, c)
	case c.LaneEpoch != s.epoch:
		return none, nil
	}
	return c, nil
}

// readJSON decodes a file of ours strictly.
func readJSON(path string, limit int64, v any) error {
	data, err := readCapped(path, limit)
	if err != nil {
		return err
	}
	if err := seal.Decode(data, v, seal.Limits{Bytes: int(limit)}); err != nil {
		return fmt.Errorf("read lane journal %q: %w", path, err)
	}
	return nil
}

func readCapped(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read lane journal: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read lane journal: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read lane journal: %q has more than %d bytes", path, limit)
	}
	return data, nil
}
