package workflow

import "fmt"

// graph: edges join jobs and form no cycle; every declared cycle is a bounded
// way back from a review; a gate has a verify job before it, a commit a gate.
func (r *rules) graph() {
	jobs := map[string]Job{}
	for _, j := range r.w.Jobs {
		jobs[j.ID] = j
	}
	g := graph{}
	seen := map[[2]string]bool{}
	for i, e := range r.w.Edges {
		at := fmt.Sprintf("/edges/%d", i)
		from, okFrom := jobs[e.From]
		_, okTo := jobs[e.To]
		if !okFrom {
			r.add(EdgeUnknownJob, "", at+"/from", "edge from %q, which is not a job", e.From)
		}
		if !okTo {
			r.add(EdgeUnknownJob, "", at+"/to", "edge to %q, which is not a job", e.To)
		}
		if !okFrom || !okTo {
			continue
		}
		key := [2]string{e.From, e.To}
		switch {
		case e.From == e.To:
			r.add(EdgeSelf, "", at, "job %q waits for itself", e.From)
			continue
		case seen[key]:
			r.add(EdgeDuplicate, "", at, "a second edge from %q to %q", e.From, e.To)
			continue
		case g.reaches(e.To, e.From):
			r.add(UndeclaredCycle, "declare the way back in cycles, with max_iterations", at,
				"edge from %q to %q closes a cycle without a bound", e.From, e.To)
			continue
		}
		seen[key] = true
		g[e.From] = append(g[e.From], e.To)
		r.condition(e, from, at+"/on")
	}
	r.cycles(jobs, g)
	r.upstream(g)
}

func (r *rules) condition(e Edge, from Job, at string) {
	needs := map[Condition]JobType{OnApproved: JobReview, OnGreen: JobGate}
	if want, ok := needs[e.On]; ok && from.Type != want {
		r.add(EdgeCondition, `use "completed"`, at, "%q needs a %s job, and %q is a %s job", e.On, want, from.ID, from.Type)
	}
}

func (r *rules) cycles(jobs map[string]Job, g graph) {
	seen := map[[2]string]bool{}
	for i, c := range r.w.Cycles {
		at := fmt.Sprintf("/cycles/%d", i)
		from, okFrom := jobs[c.From]
		_, okTo := jobs[c.To]
		if !okFrom {
			r.add(CycleUnknownJob, "", at+"/from", "cycle from %q, which is not a job", c.From)
		}
		if !okTo {
			r.add(CycleUnknownJob, "", at+"/to", "cycle to %q, which is not a job", c.To)
		}
		if !okFrom || !okTo {
			continue
		}
		if from.Type != JobReview {
			r.add(CycleNotReview, "", at+"/from", "%q is a %s job; only a review gives the verdict %q", c.From, from.Type, c.OnVerdict)
		}
		key := [2]string{c.From, c.To}
		if seen[key] {
			r.add(CycleDuplicate, "", at, "a second way back from %q to %q would double its bound", c.From, c.To)
		}
		seen[key] = true
		if !g.reaches(c.To, c.From) {
			r.add(CycleNotBack, "", at+"/to", "%q does not come before %q, so this is no way back", c.To, c.From)
		}
	}
}

func (r *rules) upstream(g graph) {
	before := func(t JobType, id string) bool {
		for _, j := range r.w.Jobs {
			if j.Type == t && j.ID != id && g.reaches(j.ID, id) {
				return true
			}
		}
		return false
	}
	for i, j := range r.w.Jobs {
		at := fmt.Sprintf("/jobs/%d", i)
		switch j.Type {
		case JobGate:
			if !before(JobVerify, j.ID) {
				r.add(GateNoVerify, "lead an edge from a verify job to it", at, "gate %q has no verify job before it", j.ID)
			}
		case JobCommit:
			if !before(JobGate, j.ID) {
				r.add(CommitNoGate, "lead an edge from the gate to it", at, "commit job %q has no gate before it", j.ID)
			}
		case JobBuild, JobVerify, JobReview:
		}
	}
}

// graph maps a job to those that follow it. It has no cycle.
type graph map[string][]string

// reaches reports whether to comes after from; a job does not reach itself.
func (g graph) reaches(from, to string) bool {
	seen := map[string]bool{}
	todo := []string{from}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, next := range g[at] {
			if next == to {
				return true
			}
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return false
}
