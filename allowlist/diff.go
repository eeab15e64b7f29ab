package allowlist

import "fmt"

// name is what a part of a closure is known by.
func (c ClosurePart) name() string {
	switch {
	case c.Path != "":
		return c.Path
	case c.Root != "":
		return c.Root + "/"
	case c.Tree != "":
		return "the definition in the tree"
	}
	return c.Image
}

func (c ClosurePart) digest() string {
	if c.Root != "" {
		return c.TreeSHA256
	}
	return c.SHA256
}

// ClosureDiff says, in one sentence for each part, what tells the second closure
// from the first; none if nothing does.
func ClosureDiff(before, after []ClosurePart) []string {
	var out []string
	old := map[string]string{}
	for _, p := range before {
		old[p.name()] = p.digest()
	}
	for _, p := range after {
		was, ok := old[p.name()]
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s is new (%s)", p.name(), p.digest()))
		case was != p.digest():
			out = append(out, fmt.Sprintf("%s was %s and is %s", p.name(), was, p.digest()))
		}
		delete(old, p.name())
	}
	for _, p := range before {
		if _, gone := old[p.name()]; gone {
			out = append(out, fmt.Sprintf("%s is no longer part of it", p.name()))
		}
	}
	return out
}
