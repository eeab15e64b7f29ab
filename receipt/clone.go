package receipt

import "slices"

// clone returns a copy of r that shares nothing with it.
func (r Receipt) clone() Receipt {
	r.Check.Argv = slices.Clone(r.Check.Argv)
	r.Inputs.Dependencies = clonePointer(r.Inputs.Dependencies)
	if r.Inputs.Protected = clonePointer(r.Inputs.Protected); r.Inputs.Protected != nil {
		r.Inputs.Protected.Paths = slices.Clone(r.Inputs.Protected.Paths)
		for _, l := range r.Inputs.Protected.lists() {
			l.Names = slices.Clone(l.Names)
		}
	}
	r.Compile = clonePointer(r.Compile)
	if r.Compile != nil {
		r.Compile.Execution = clonePointer(r.Compile.Execution)
	}
	r.Control.Baseline = clonePointer(r.Control.Baseline)
	r.Control.Emptied = clonePointer(r.Control.Emptied)
	r.Control.Execution = clonePointer(r.Control.Execution)
	if r.Control.Differs = clonePointer(r.Control.Differs); r.Control.Differs != nil {
		r.Control.Differs.Names = slices.Clone(r.Control.Differs.Names)
	}
	r.Executions = slices.Clone(r.Executions)
	for _, e := range r.eachExecution() {
		e.Reasons = slices.Clone(e.Reasons)
	}
	if r.Census = clonePointer(r.Census); r.Census != nil {
		for _, l := range []*List{&r.Census.PassedTests, &r.Census.SkippedTests, &r.Census.FailedTests, &r.Census.NotRun} {
			l.Names = slices.Clone(l.Names)
		}
	}
	if r.Mutants = clonePointer(r.Mutants); r.Mutants != nil {
		r.Mutants.Survivors = slices.Clone(r.Mutants.Survivors)
	}
	if r.Baseline = clonePointer(r.Baseline); r.Baseline != nil {
		for _, l := range r.Baseline.lists() {
			l.Names = slices.Clone(l.Names)
		}
	}
	r.Findings = slices.Clone(r.Findings)
	r.Incidents = slices.Clone(r.Incidents)
	r.Posture.Facets = slices.Clone(r.Posture.Facets)
	r.Reasons = slices.Clone(r.Reasons)
	return r
}

// lists returns each list in b, for changing it in place.
func (b *Baseline) lists() []*List {
	return []*List{&b.TestsRemoved, &b.TestsNewlySkipped, &b.TestInputsChanged}
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// eachExecution returns every execution in r, for changing it in place.
func (r *Receipt) eachExecution() []*Execution {
	var out []*Execution
	if r.Compile != nil && r.Compile.Execution != nil {
		out = append(out, r.Compile.Execution)
	}
	for _, e := range []*Execution{r.Control.Baseline, r.Control.Emptied, r.Control.Execution} {
		if e != nil {
			out = append(out, e)
		}
	}
	for i := range r.Executions {
		out = append(out, &r.Executions[i])
	}
	return out
}
