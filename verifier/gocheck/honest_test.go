package gocheck

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"striatum/receipt"
)

// TestHonestModulesPass runs honest modules of common shapes through the whole of
// go-test on the host. None is wrongly red, and none is suspected of more than what
// stands there.
func TestHonestModulesPass(t *testing.T) {
	findings := map[string][]string{
		"other-systems":          {"test_file_excluded"},
		"example-without-output": {"example_not_run"},
		"nested-module":          {"module_not_checked"},
		"replaced-by-folder":     {"module_not_checked", "replace_in_tree"},
		"vendored":               {"module_not_checked", "replace_in_tree", "vendor_directory"},
	}
	files, err := filepath.Glob("testdata/honest/*.txtar")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d modules, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			v := newLab(t, unpack(t, "honest/"+name+".txtar"), Params{}).goTest()
			if v.judged.Judgement != receipt.Pass || v.control != receipt.FailedAsRequired || len(v.reasons) > 0 {
				t.Errorf("judged %q (%+v), control %q (%s), %v", v.judged.Judgement, v.judged.Reasons, v.control, v.why, v.reasons)
			}
			if diff := cmp.Diff(findings[name], sortedKeysOrNil(v.findings)); diff != "" {
				t.Errorf("findings (-want +got)\n%s", diff)
			}
		})
	}
}
