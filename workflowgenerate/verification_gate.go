package workflowgenerate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"striatum/allowlist"
	"striatum/workflow"
	"striatum/workflowtemplates"
)

// folder holds everything that is generated.
const folder = "verification/"

// verificationGate makes build → verify → review → gate → commit, with a bounded
// way back from review to build.
func verificationGate(shape workflowtemplates.Shape, floor workflow.Floor, checks []check) (workflow.Workflow, allowlist.Intent) {
	intent := allowlist.Intent{SchemaVersion: allowlist.IntentSchemaVersion, Checks: []allowlist.Entry{}}
	w := workflow.Workflow{
		SchemaVersion:   workflow.SchemaVersion,
		WorkflowID:      "verification-gate",
		Name:            shape.Title,
		Shape:           shape.ID,
		AllowlistStatus: workflow.Filled,
		GateFloor:       floor,
		IntentPath:      workflow.DefaultIntentPath,
		Lanes: []workflow.Lane{
			{ID: "agent", Description: "Where agents work in the worktree."},
			{ID: "verifier", Description: "Where checks are run in sandboxes, out of the agents' reach."},
		},
		Roles: []workflow.Role{
			role("builder", "Builder"), role("verifier", "Verifier"), role("reviewer", "Reviewer"),
			role("gatekeeper", "Gatekeeper"), role("committer", "Committer"),
		},
		Edges: []workflow.Edge{
			{From: "build", To: "verify", On: workflow.OnCompleted},
			{From: "verify", To: "review", On: workflow.OnCompleted},
			{From: "review", To: "gate", On: workflow.OnApproved},
			{From: "gate", To: "commit", On: workflow.OnGreen},
		},
		Cycles: []workflow.Cycle{{From: "review", To: "build", OnVerdict: workflow.NeedsRevision, MaxIterations: shape.Rounds}},
	}
	roles := map[workflow.JobType]string{
		workflow.JobBuild: "builder", workflow.JobVerify: "verifier", workflow.JobReview: "reviewer",
		workflow.JobGate: "gatekeeper", workflow.JobCommit: "committer",
	}
	for _, j := range shape.Jobs {
		w.Jobs = append(w.Jobs, job(j, roles[j.Type]))
	}
	for _, c := range checks {
		w.Claims = append(w.Claims, workflow.Claim{ID: c.Claim, Statement: c.Statement})
		if c.External {
			if c.Filled != nil {
				intent.Checks = append(intent.Checks, *c.Filled)
			} else {
				w.AllowlistStatus = workflow.TemplateUnfilled
				intent.Checks = append(intent.Checks, entry(c))
			}
		}
		for i := range w.Jobs {
			if w.Jobs[i].Type == workflow.JobVerify {
				w.Jobs[i].Checks = append(w.Jobs[i].Checks, ref(c))
			}
		}
	}
	return w, intent
}

func role(id, title string) workflow.Role {
	return workflow.Role{ID: id, Title: title, Document: folder + "roles/" + id + ".md"}
}

// job fills in what a shape's job leaves open: its lane, scope and artifacts.
func job(j workflowtemplates.Job, roleID string) workflow.Job {
	ledger := workflow.Artifact{Path: ".striatum/claim_ledger.json", Description: "The claim ledger (a copy; the store has the ledger itself)."}
	// The intent is named beside the folder that holds it: whoever moves it out
	// of the folder must not lose the rule.
	forbidden := []string{workflow.DefaultIntentPath, folder, ".striatum/"}
	out := workflow.Job{
		ID: j.ID, Type: j.Type, RoleID: roleID, LaneID: "agent", Objective: j.Objective,
		TaskPrompt:        folder + "prompts/" + j.ID + ".md",
		WriteScope:        workflow.WriteScope{AllowedPaths: []string{}, ForbiddenPaths: forbidden},
		ExpectedArtifacts: []workflow.Artifact{},
	}
	switch j.Type {
	case workflow.JobBuild:
		out.WriteScope.AllowedPaths = []string{"."}
		out.WriteScope.ForbiddenPaths = append(forbidden, ".git/")
	case workflow.JobVerify:
		out.LaneID = "verifier"
		out.ExpectedArtifacts = []workflow.Artifact{
			ledger,
			{Path: ".striatum/receipts/", Description: "One sealed receipt for each check, whatever came of it (copies; the store has the receipts themselves)."},
		}
	case workflow.JobGate:
		out.ExpectedArtifacts = []workflow.Artifact{ledger}
	case workflow.JobCommit:
		out.WriteScope.AllowedPaths = []string{".git/"}
	case workflow.JobReview:
	}
	return out
}

// ref is a check as the verify job names it. Skipped tests do not mar a pass
// by default; the report lists them.
func ref(c check) workflow.CheckRef {
	if c.External {
		return workflow.CheckRef{ID: c.ID, BacksClaim: c.Claim}
	}
	r := workflow.CheckRef{ID: c.ID, Uses: c.ID, BacksClaim: c.Claim}
	if b, _ := workflow.LookupBuiltin(c.ID); slices.Contains(b.Parameters, "allow_skips") {
		r.AllowSkips.Any = true
	}
	return r
}

// entry is the unfilled template of an external check.
func entry(c check) allowlist.Entry {
	return allowlist.Entry{
		ID:         c.ID,
		Argv:       allowlist.Argv{Unfilled: `the exact command as a list of words, without a shell; {target} stands for the folder under check, for example ["python3", "tools/check.py", "{target}"]`},
		Definition: []string{},
		PassWhen:   allowlist.PassWhen{Form: allowlist.ExitZero},
		BacksClaim: c.Claim,
		Agreement:  allowlist.ByExitCode,
		NegativeControl: allowlist.NegativeControl{
			Unfilled: `a known-bad input that the check must fail on: {"mutation_of": ".", "mutation": {"file": "path", "find": "text of one line", "replace": "its defect"}, "fails_with": "regular expression of the failing output"}`,
		},
	}
}

// documentData is what the templates may show.
type documentData struct {
	IntentPath string
	Floor      workflow.Floor
	Rounds     int
	Checks     []check
	External   bool
}

// files renders every file of the shape, ordered by path.
func files(shape workflowtemplates.Shape, p Plan, checks []check) ([]File, error) {
	data := documentData{
		IntentPath: p.Workflow.IntentPath, Floor: p.Workflow.GateFloor, Rounds: shape.Rounds, Checks: checks,
		External: slices.ContainsFunc(checks, func(c check) bool { return c.External }),
	}
	var out []File
	for _, f := range shape.Files {
		var bytes []byte
		var err error
		switch {
		case f.Template != "":
			bytes, err = shape.Render(f.Template, data)
		case f.Path == workflow.DefaultPath:
			bytes, err = workflow.Encode(p.Workflow)
		case f.Path == workflow.DefaultIntentPath:
			bytes, err = p.Intent.Encode()
		default:
			err = fmt.Errorf("no template for %q", f.Path)
		}
		if err != nil {
			return nil, fmt.Errorf("generate %q: %w", f.Path, err)
		}
		out = append(out, File{Path: f.Path, Mode: 0o644, Data: bytes})
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// verify applies the rules for a stranger's documents to our own.
func (p Plan) verify() error {
	for _, f := range p.Files {
		switch f.Path {
		case workflow.DefaultIntentPath:
			if _, err := allowlist.ParseIntent(f.Data); err != nil {
				return fmt.Errorf("generated intent: %w", err)
			}
		case workflow.DefaultPath:
			if err := p.validate(f.Data); err != nil {
				return fmt.Errorf("generated workflow: %w", err)
			}
		}
	}
	return nil
}

func (p Plan) validate(data []byte) error {
	rows, err := allowlist.Join(p.Intent, nil, nil, "")
	if err != nil {
		return err
	}
	for _, f := range workflow.Validate(data, allowlist.View(rows)) {
		if !f.Unfilled {
			return errors.New(f.Pointer + ": " + f.What)
		}
	}
	return nil
}
