package receipt

import "fmt"

// Protected says that files of the tree did not count: the check ran on the tree
// with those of a commit in their place. Paths are the patterns of the check, Files
// what of the commit they match. Restored files were otherwise in the tree, Added
// ones not in it, Removed ones not in the commit; names are as in the tree manifest,
// MaxProtected of each at most. TreeSHA256 and ManifestSHA256 are those of what ran.
type Protected struct {
	Commit         string   `json:"commit"`
	Paths          []string `json:"paths"`
	Files          int64    `json:"files"`
	Restored       List     `json:"restored"`
	Added          List     `json:"added"`
	Removed        List     `json:"removed"`
	TreeSHA256     string   `json:"tree_sha256"`
	ManifestSHA256 string   `json:"manifest_sha256"`
}

// MaxProtected is the most names in a list of protected files.
const MaxProtected = 100

// lists are those of p, for changing them in place.
func (p *Protected) lists() []*List { return []*List{&p.Restored, &p.Added, &p.Removed} }

// String says which bytes ran: a phrase about the tree of the receipt.
func (p *Protected) String() string {
	noun := "files"
	if p.Files == 1 {
		noun = "file"
	}
	of := fmt.Sprintf("%d protected %s of commit %.12s", p.Files, noun, p.Commit)
	if p.Restored.Count+p.Added.Count+p.Removed.Count == 0 {
		return "the tree has the " + of
	}
	return fmt.Sprintf("ran on tree %.12s, which has the %s: %d restored, %d added, %d removed; what the checked tree has there did not count",
		p.TreeSHA256, of, p.Restored.Count, p.Added.Count, p.Removed.Count)
}
