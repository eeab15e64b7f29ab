package initcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"striatum/daemon"
	"striatum/internal/cli"
	"striatum/internal/cli/probe"
	"striatum/internal/cli/service"
	"striatum/internal/cli/tokenfile"
	"striatum/internal/home"
	"striatum/internal/installation"
	"striatum/internal/problem"
	"striatum/seal"
)

const setUp = "set up the system"

// laneTokenTTL is how long the token of a system's lane is good.
const laneTokenTTL = 366 * 24 * time.Hour

// SystemResult is what `striatum init --system --output json` prints. Steps are in
// their order; Start has the commands that start daemon and lane, in that order, and
// is empty where systemd does.
type SystemResult struct {
	SchemaVersion string       `json:"schema_version"` // striatum.init_system.v1
	Steps         []SystemStep `json:"steps"`
	Lane          probe.Found  `json:"lane"`
	Start         []string     `json:"start"`
}

// SystemStep is one thing that a system has. State is "there", "made" or, with
// --print, "planned". Content is that of a file, with --print.
type SystemStep struct {
	Step    string `json:"step"`
	State   string `json:"state"`
	Content string `json:"content"`
}

// systemSetup is a host that is being set up.
type systemSetup struct {
	*installation.Setup
	f      *cli.Factory // whose daemon and home are the system's
	o      Options
	result SystemResult
	// reached is what an earlier probe found that a user reached, while that stands.
	reached string
}

func system(ctx context.Context, f *cli.Factory, o Options) (err error) {
	if socket := f.DaemonSocket(); socket != "" && socket != installation.Socket {
		return problem.New(problem.Usage, setUp, fmt.Sprintf("the daemon on %q was named", socket), "run it without --socket and STRIATUM_SOCKET")
	}
	self, err := os.Executable()
	if err != nil {
		return problem.Wrap(problem.Missing, err, setUp, "")
	}
	setup, err := installation.New(self, o.Agents, o.Operators)
	if err != nil {
		return err
	}
	own := *f
	own.Socket = installation.Socket
	own.Getenv = func(name string) string {
		switch name {
		case "STRIATUM_HOME":
			return installation.LaneHome
		case "STRIATUM_TOKEN_FILE":
			return ""
		}
		return f.Getenv(name)
	}
	s := &systemSetup{Setup: setup, f: &own, o: o, result: SystemResult{SchemaVersion: "striatum.init_system.v1", Steps: []SystemStep{}, Start: setup.StartCommands()}}
	if o.Print {
		return s.print()
	}
	if os.Geteuid() != 0 {
		return problem.New(problem.Missing, setUp, fmt.Sprintf("this is user %d", os.Geteuid()), "run it as root; --print shows what it would do")
	}
	if err := s.CheckPrograms(); err != nil {
		return err
	}
	if err := s.files(); err != nil {
		return err
	}
	stop, err := s.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := s.enrol(ctx); err != nil {
		return err
	}
	if installation.Systemd() {
		s.result.Start = []string{}
		if err := s.StartLane(); err != nil {
			return err
		}
	}
	return s.show()
}

// print shows every step and changes nothing.
func (s *systemSetup) print() error {
	for _, step := range s.Steps() {
		s.result.Steps = append(s.result.Steps, SystemStep{step.Text, "planned", step.Content})
	}
	for _, text := range []string{
		"start the daemon: " + s.result.Start[0],
		"mint the operator's token into " + installation.OperatorToken + ", root:root, mode 0600",
		"make the lane's key in " + installation.LaneHome + ", and enrol it as isolated with what `lane probe` finds",
		"mint the lane's token into " + installation.LaneToken + ", root:root, mode 0600",
		"start the lane: " + s.result.Start[1],
	} {
		s.result.Steps = append(s.result.Steps, SystemStep{Step: text, State: "planned"})
	}
	if s.o.Output == cli.JSON {
		s.result.Lane = probe.Found{SchemaVersion: probe.SchemaVersion, Verdict: "cannot_tell"}
		return s.f.Streams.WriteJSON(s.result)
	}
	var b strings.Builder
	for _, step := range s.result.Steps {
		b.WriteString("# " + cli.Escape(step.Step) + "\n" + step.Content)
	}
	_, err := fmt.Fprint(s.f.Streams.Out, b.String())
	return err
}

// files makes accounts, folders and files, after it has seen that all may be made.
func (s *systemSetup) files() error {
	for _, step := range s.Steps() {
		if _, err := step.There(); err != nil {
			return fault(err)
		}
	}
	for _, step := range s.Steps() {
		there, err := step.There()
		if err != nil {
			return fault(err)
		}
		if !there {
			if err := step.Make(); err != nil {
				return fault(err)
			}
		}
		s.say(step.Text, there)
	}
	return nil
}

// fault is an error of the system as a user reads it.
func fault(err error) error {
	if _, ok := errors.AsType[*problem.Problem](err); ok {
		return err
	}
	return problem.Wrap(problem.Indeterminate, err, setUp, "mend that, and run the command again: it completes what was begun")
}

// say notes a step that is done.
func (s *systemSetup) say(text string, there bool) {
	text = strings.TrimSuffix(text, ":")
	state := "made"
	if there {
		state = "there"
	}
	s.result.Steps = append(s.result.Steps, SystemStep{Step: text, State: state})
	s.f.Streams.Notef("%-5s %s", state, cli.Escape(text))
}

// open opens the service for the holder of a token, and sees that it is the system's.
func (s *systemSetup) open(ctx context.Context, tokenFile string) (*service.Session, error) {
	c, err := service.Open(ctx, s.f, tokenFile)
	if err != nil {
		return nil, err
	}
	if c.Is.Home != installation.Home {
		err := problem.New(problem.Refused, setUp, fmt.Sprintf("the daemon on %s has its home in %q", installation.Socket, c.Is.Home), "stop that daemon")
		return nil, errors.Join(err, c.Close())
	}
	if c.Is.StoreClass != seal.ClassIsolated {
		err := problem.New(problem.Refused, setUp, "the daemon finds its store shared, so no lane is isolated; nothing was enrolled",
			"see why in its log, or: curl --unix-socket "+installation.Socket+" http://striatumd/healthz")
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// enrol mints the tokens that are missing and enrols the lane, with what a probe of
// the host finds.
func (s *systemSetup) enrol(ctx context.Context) error {
	if err := s.token(ctx, "", installation.OperatorToken, daemon.TokenSpec{Kind: daemon.Operator, TTL: tokenTTL}); err != nil {
		return err
	}
	c, err := s.open(ctx, installation.OperatorToken)
	if err != nil {
		return err
	}
	err = s.lane(ctx, c)
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	spec := daemon.TokenSpec{Kind: daemon.Lane, TTL: laneTokenTTL, LaneID: s.result.Lane.LaneID}
	return s.token(ctx, installation.OperatorToken, installation.LaneToken, spec)
}

// token sees that a file holds a good token; by is the file of whose token mints one
// where it does not. A token that is good nowhere, left by a kill or expired, is
// replaced.
func (s *systemSetup) token(ctx context.Context, by, path string, spec daemon.TokenSpec) error {
	st, err := os.Lstat(path)
	if err == nil {
		if !st.Mode().IsRegular() || st.Mode().Perm()&0o077 != 0 {
			return problem.New(problem.Refused, setUp, fmt.Sprintf("%q is no file that root alone can read", path), "run: chmod 0600 "+path+"; if others could read it, revoke its token")
		}
		held, err := s.open(ctx, path)
		if err == nil {
			is := held.Is.Principal
			if err := held.Close(); err != nil {
				return err
			}
			switch {
			case is.Kind == daemon.Local: // a kill left it empty
				return s.mint(ctx, by, path, spec)
			case is.Kind != spec.Kind || spec.LaneID != "" && is.Name != spec.LaneID:
				return problem.New(problem.Refused, setUp, fmt.Sprintf("%q holds the token of %s", path, is), "move it away")
			}
			s.say(tokenText(spec, path), true)
			return nil
		}
		if p := problem.Of(err); p.Kind != problem.Refused || p.What != "check the token" {
			return err
		}
	}
	return s.mint(ctx, by, path, spec)
}

// mint mints a token into a file, in whose place a file may be that is replaced.
func (s *systemSetup) mint(ctx context.Context, by, path string, spec daemon.TokenSpec) error {
	c, err := s.open(ctx, by)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it was only called
	if err := c.CheckMint(ctx, spec); err != nil {
		return err
	}
	token, hash, err := daemon.DrawToken(s.f.Rand, spec.Kind)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault(err)
	}
	if err := tokenfile.Write(path, token); err != nil {
		return err
	}
	if _, err := c.RecordToken(ctx, spec, hash); err != nil {
		return errors.Join(err, os.Remove(path)) // its token was not recorded
	}
	s.say(tokenText(spec, path), false)
	return nil
}

func tokenText(spec daemon.TokenSpec, path string) string {
	return fmt.Sprintf("%s token in %s", spec.Kind, path)
}

// lane makes the lane's key, probes the host, and enrols the lane with what was found
// or, where it is enrolled, records what is new.
func (s *systemSetup) lane(ctx context.Context, c *service.Session) error {
	h, _, err := home.Open(ctx, installation.LaneHome, s.f.Rand)
	if err != nil {
		return err
	}
	lanes, err := c.Lanes(ctx)
	if err != nil {
		return err
	}
	found, err := probe.Examine(ctx, s.f, c, h.Dir, s.o.Agents, nil)
	if err != nil {
		return err
	}
	kept := found.Record()
	found.LaneID = h.LaneID()
	i := slices.IndexFunc(lanes, func(l daemon.LaneInfo) bool { return l.KeyID == h.LaneKey.Public().ID() })
	if i < 0 {
		spec := daemon.LaneSpec{LaneID: h.LaneID(), PublicKey: h.LaneKey.Public(), Class: seal.ClassIsolated, Probe: &kept}
		if err := c.EnrolLane(ctx, spec); err != nil {
			return err
		}
		s.say("lane "+found.LaneID+", enrolled as isolated with what the probe found", false)
		s.result.Lane = found
		return nil
	}
	was := lanes[i]
	found.LaneID = was.LaneID
	switch {
	case was.Revoked != "":
		return problem.New(problem.Refused, setUp, fmt.Sprintf("the key of the lane in %s is %s", h.Dir, was.Revoked), fmt.Sprintf("move %s/keys and %s away, and run the command again: it makes and enrols a new one", h.Dir, installation.LaneToken))
	case was.Class != string(seal.ClassIsolated):
		found.Shared()
		kept = found.Record()
	}
	s.say("lane "+was.LaneID, true)
	s.result.Lane = found
	same := was.ProbedAt != "" && reflect.DeepEqual([]any{was.Probe.Users, was.Probe.Findings}, []any{kept.Users, kept.Findings})
	if was.Probe.Reached != "" && kept.OK() {
		s.reached = was.Probe.Reached // whoever knows that nothing was copied says so by a command of its own
		return nil
	}
	if same {
		return nil
	}
	if err := c.RecordProbe(ctx, was.LaneID, kept); err != nil {
		return err
	}
	s.say("what the probe found of lane "+was.LaneID, false)
	return nil
}

// show prints what was found of the lane, and what is left to do.
func (s *systemSetup) show() error {
	if s.o.Output == cli.JSON {
		return s.f.Streams.WriteJSON(s.result)
	}
	if err := s.result.Lane.Show(s.f.Streams, cli.Table); err != nil {
		return err
	}
	switch {
	case s.reached != "":
		s.f.Streams.Notef("the lane counts as shared, for a probe found %s; whoever knows that nothing was copied runs, with the operator's token: striatum lane probe", cli.Escape(s.reached))
	case s.result.Lane.Verdict != "isolated":
		s.f.Streams.Notef("the lane counts as shared until this finds nothing: striatum lane probe")
	}
	if len(s.result.Start) > 0 {
		s.f.Streams.Notef("systemd does not run here, and nothing was left running; these commands start daemon and lane:")
		var b strings.Builder
		for _, command := range s.result.Start {
			b.WriteString(command + "\n")
		}
		_, err := fmt.Fprint(s.f.Streams.Out, b.String())
		return err
	}
	return nil
}
