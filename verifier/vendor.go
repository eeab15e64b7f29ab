package verifier

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// maxVendorFindings bounds the modules named one by one.
const maxVendorFindings = 20

// vendored holds the vendor folders that the go command may read against the
// proven modules.
func (r *run) vendored(ctx context.Context, tree fs.FS) error {
	dirs := []string{r.source.module.Dir}
	if work := r.source.module.Work; r.check.GoWork && work != "" {
		dirs = append(dirs, path.Dir(work))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		dir = path.Join(dir, "vendor")
		if st, err := fs.Stat(tree, dir); err != nil || !st.IsDir() {
			continue // FindModule says what there is
		}
		vendor, err := fs.Sub(tree, dir)
		if err != nil {
			return err
		}
		differs, unproven, err := r.modules.Vendored(ctx, vendor)
		if err != nil {
			return err
		}
		for i, d := range differs {
			if i == maxVendorFindings {
				r.finding("vendor_differs", dir, fmt.Sprintf("%d more modules differ", len(differs)-i))
				break
			}
			r.finding("vendor_differs", path.Join(dir, d.File), cut(d.String()))
		}
		if len(unproven) > 0 {
			r.finding("vendor_not_compared", dir, cut(fmt.Sprintf("%d modules are not in the lane's store, first: %s", len(unproven), unproven[0])))
		}
	}
	return nil
}
