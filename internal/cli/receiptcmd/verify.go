package receiptcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"striatum/internal/cli"
	"striatum/internal/cli/service"
	"striatum/internal/home"
	"striatum/internal/problem"
	"striatum/receipt"
	"striatum/seal"
)

// maxManifest bounds a tree manifest, in bytes.
const maxManifest = 1 << 30

type verifyOptions struct {
	path      string
	trust     string
	trustRoot string
	key       string
	manifest  string
	output    cli.Output
}

// SchemaVersion marks a Verdict.
const SchemaVersion = "striatum.receipt_verification.v1"

// Verdict is what `receipt verify --output json` prints.
type Verdict struct {
	SchemaVersion  string `json:"schema_version"`
	Seal           string `json:"seal"`
	EnvelopeSHA256 string `json:"envelope_sha256"`
	Classification string `json:"classification"`
	CheckID        string `json:"check_id"`
	BacksClaim     string `json:"backs_claim"`
	RepositoryID   string `json:"repository_id"`
	TreeSHA256     string `json:"tree_sha256"`
	GitCommit      string `json:"git_commit"`
	LaneID         string `json:"lane_id"`
	KeyID          string `json:"key_id"`
	// KeySource is where the key came from: "home", "trust" or "key".
	KeySource string `json:"key_source"`
	// LaneClass is "shared", "isolated", or "unknown" for a bare key.
	LaneClass string `json:"lane_class"`
	// Manifest is "matches", or "not_compared" without --manifest.
	Manifest string `json:"manifest"`
}

func newVerify(f *cli.Factory) *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify FILE|SEAL",
		Short: "Check a receipt's signature and seal, offline",
		Long: `Check that a receipt, of a file or, by the first 8 digits or more of its seal, of the copy
in the worktree, was signed by a known lane and is as it was signed. What
the check came to is printed and does not change the exit code: "gate check"
judges claims.

The keys are those enrolled in the home, or with --trust those of a signed trust
file ("striatum lane trust" makes one), or with --key one public key of which
nothing more is known. A trust file that has expired, or is older than one that this
home has seen of the same root, is refused. Of a lane that it says was retired or
compromised, the receipts that it names still count, and no others.

Exit codes: 0 the signature is good; 2 there is no such file; 3 it was changed,
contradicts itself, or is signed by a key that is unknown, revoked or meant for
something else, or the manifest is another one; 6 the file is not a receipt.`,
		Example: `  striatum receipt verify SEAL.receipt.json
  striatum receipt verify SEAL.receipt.json --key lane.pub --manifest SEAL.manifest
  striatum receipt verify SEAL.receipt.json --trust trust.json --trust-root root.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			return verify(cmd.Context(), f, o)
		},
	}
	cmd.Flags().StringVar(&o.trust, "trust", "", "signed trust `file` with the keys to believe")
	cmd.Flags().StringVar(&o.trustRoot, "trust-root", "", "public key `file` of who signed the trust file")
	cmd.Flags().StringVar(&o.key, "key", "", "public key `file` of the lane")
	cmd.Flags().StringVar(&o.manifest, "manifest", "", "tree manifest `file` that the receipt must be about")
	cmd.MarkFlagsRequiredTogether("trust", "trust-root")
	cmd.MarkFlagsMutuallyExclusive("trust", "key")
	cli.AddOutput(cmd, &o.output)
	return cmd
}

func verify(ctx context.Context, f *cli.Factory, o verifyOptions) error {
	const what = "verify the receipt"
	var err error
	if o.path, err = find(f, what, o.path); err != nil {
		return err
	}
	data, err := readFile(what, o.path)
	if err != nil {
		return err
	}
	k, err := loadKeys(ctx, f, o)
	if err != nil {
		return err
	}
	v, err := receipt.Open(data, k.ring)
	if err != nil {
		return k.refused(err, what, data, o)
	}
	r := v.Receipt()
	if k.admits != nil {
		if err := k.admits(v.Key().Public, r.RepositoryID, v.Seal()); err != nil {
			return problem.Wrap(problem.Refused, err, fmt.Sprintf("%s: the key of %q does not count", what, o.path), "see the trust file")
		}
	}
	out := Verdict{
		SchemaVersion: SchemaVersion,
		Seal:          v.Seal(), EnvelopeSHA256: v.EnvelopeSHA256(), Classification: string(r.Classification), CheckID: r.Check.ID, BacksClaim: r.Check.BacksClaim,
		RepositoryID: r.RepositoryID, TreeSHA256: r.Inputs.TreeSHA256, GitCommit: r.Inputs.GitCommit,
		LaneID: r.Lane.LaneID, KeyID: v.Key().Public.ID(), KeySource: k.source, LaneClass: "unknown", Manifest: "not_compared",
	}
	if k.source != sourceKey {
		out.LaneClass = string(v.Key().Class)
	}
	if o.manifest != "" {
		if err := compareManifest(o.manifest, r.Inputs.ManifestSHA256); err != nil {
			return err
		}
		out.Manifest = "matches"
	}
	if o.output == cli.JSON {
		return f.Streams.WriteJSON(out)
	}
	return printVerdict(f.Streams.Out, out, k.origin)
}

func printVerdict(w io.Writer, v Verdict, origin string) error {
	p := &rows{}
	switch seal.Class(v.LaneClass) {
	case seal.ClassIsolated:
		p.add("signature", "good, lane isolated")
	case seal.ClassShared:
		p.add("signature", "good, lane shared: whoever runs it could have signed anything")
	default:
		p.add("signature", "good, lane not known to be isolated")
	}
	p.add("key", "%s, from %s", v.KeyID, origin)
	p.add("receipt", "%s", v.Seal)
	p.add("classified", "%s", v.Classification)
	p.add("check", "%s", v.CheckID)
	if v.BacksClaim != "" {
		p.add("claim", "%s", v.BacksClaim)
	}
	p.add("lane", "%s, for repository %s", v.LaneID, v.RepositoryID)
	p.add("tree", "%s", v.TreeSHA256)
	if v.GitCommit != "" {
		p.add("commit", "%s", v.GitCommit)
	}
	if v.Manifest == "matches" {
		p.add("manifest", "matches")
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

// compareManifest hashes a file without holding it.
func compareManifest(path, want string) (err error) {
	what := fmt.Sprintf("compare the manifest %q", path)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return problem.Wrap(problem.Usage, err, what, "")
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	st, err := file.Stat()
	if err != nil {
		return problem.Wrap(problem.Usage, err, what, "")
	}
	if !st.Mode().IsRegular() {
		return problem.New(problem.Usage, what, "it is not a regular file", "")
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(file, maxManifest+1))
	if err != nil {
		return problem.Wrap(problem.Indeterminate, err, what, "")
	}
	if n > maxManifest {
		return problem.New(problem.Invalid, what, fmt.Sprintf("it has more than %d bytes", maxManifest), "")
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return problem.New(problem.Refused, what, fmt.Sprintf("its digest is %s, and the receipt is about %q", got, want), "name the manifest that lies beside the receipt")
	}
	return nil
}

// keys are what verify believes, and where they came from.
type keys struct {
	ring   seal.Keyring
	source string
	keyID  string // of the one key of sourceKey
	origin string // for people
	admits func(key seal.PublicKey, repositoryID, sealDigest string) error
}

const (
	sourceHome  = "home"
	sourceTrust = "trust"
	sourceKey   = "key"
)

// refused says why the keys do not open the receipt, and which of both to doubt.
func (k keys) refused(err error, what string, data []byte, o verifyOptions) error {
	switch {
	case k.source == sourceKey && errors.Is(err, seal.ErrUnknownKey):
		return problem.Wrap(problem.Refused, err, fmt.Sprintf("%s: %q is signed by another key than that of %q, which is %q", what, o.path, o.key, k.keyID),
			"name with --key the public key of the lane that signed it, the lane.pub of its home")
	case k.source == sourceKey && errors.Is(err, seal.ErrBadSignature):
		if u, perr := seal.Peek(data, seal.PayloadInToto); perr == nil && u.KeyID == "" {
			return problem.Wrap(problem.Refused, err, fmt.Sprintf("%s: the key of %q did not sign %q as it is", what, o.key, o.path),
				"either it was changed, or it is signed by another key, which its envelope does not name")
		}
	case k.source == sourceTrust && errors.Is(err, seal.ErrUnknownKey):
		return problem.Wrap(problem.Refused, err, fmt.Sprintf("%s: the trust file %q does not have the key of %q", what, o.trust, o.path),
			"get the newest trust file from its operator")
	}
	return refused(err, what, o.path)
}

func loadKeys(ctx context.Context, f *cli.Factory, o verifyOptions) (k keys, err error) {
	switch {
	case o.key != "":
		pub, err := readPublicKey(o.key)
		if err != nil {
			return keys{}, err
		}
		ring := seal.NewKeyring(seal.Key{Public: pub, Role: seal.RoleLane, Class: seal.ClassShared})
		return keys{ring: ring, source: sourceKey, keyID: pub.ID(), origin: o.key}, nil
	case o.trust != "":
		return trustKeys(ctx, f, o)
	}
	dir, err := home.Locate(f.Getenv)
	if err != nil {
		return keys{}, err
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) && f.DaemonSocket() == "" { // none is made for looking at a receipt
		return keys{ring: seal.NewKeyring(), source: sourceHome, origin: fmt.Sprintf("nobody: there is no home %s", dir)}, nil
	}
	s, err := service.Open(ctx, f, "")
	if err != nil {
		return keys{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ring, err := s.Keyring(ctx)
	if err != nil {
		return keys{}, err
	}
	return keys{ring: ring, source: sourceHome, origin: fmt.Sprintf("the lanes enrolled in the home %s (the gate knows which are revoked)", s.Is.Home)}, nil
}

func readPublicKey(path string) (seal.PublicKey, error) {
	what := fmt.Sprintf("read the public key %q", path)
	data, err := readFile(what, path)
	if err != nil {
		return seal.PublicKey{}, err
	}
	pub, err := seal.ParsePublicKey(data)
	if err != nil {
		return seal.PublicKey{}, problem.Wrap(problem.Invalid, err, what, "it is a PEM file such as keys/lane.pub in a home")
	}
	return pub, nil
}
