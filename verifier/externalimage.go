package verifier

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"striatum/allowlist"
	"striatum/verifier/images"
	"striatum/verifier/toolchain"
)

// The codes of a toolchain image that cannot be used.
const (
	// ImageMissing: no source has it.
	ImageMissing = "image_missing"
	// ImageRefused: it is not what its name says, or beyond what is unpacked.
	ImageRefused = "image_refused"
)

// observeImage finds what an entry's command runs where its tools come from an
// image. The closure is the image's digest and the definition: the same on every
// host.
func (r *run) observeImage(ctx context.Context, e allowlist.Entry, o *observed) error {
	store, err := r.lane.cfg.OpenImages()
	if err != nil {
		return err
	}
	r.step("unpack the image")
	o.image, err = store.Get(ctx, e.Toolchain.Image)
	switch {
	case errors.Is(err, images.ErrAbsent):
		return unobserved{ImageMissing, err.Error()}
	case errors.Is(err, images.ErrRefused):
		return unobserved{ImageRefused, err.Error()}
	case err != nil:
		return fmt.Errorf("unpack the image of %q: %w", e.ID, err)
	}
	o.asked = []string{o.image.Root}
	if o.tools, err = r.meter(o.image).MeasureTree(ctx, o.image.Root); err != nil {
		return err
	}
	if o.tools.SHA256 != o.image.TreeSHA256 {
		return unobserved{"toolchain_drift", fmt.Sprintf("the unpacked image %q was %s and is %s: remove it, and it is unpacked anew",
			strings.TrimSuffix(o.image.Root, "/root"), o.image.TreeSHA256, o.tools.SHA256)}
	}
	if o.resolution, err = r.resolve(ctx, e.Argv.Words[0], o.spec(r.snap.Dir)); err != nil {
		return err
	}
	if err := o.bound(r.snap.Dir, e); err != nil {
		return err
	}
	return o.close(allowlist.ClosurePart{Image: e.Toolchain.Image, SHA256: o.image.Digest})
}

// meter measures the host's tools or, where that is given, those of an image,
// whose stat cache is kept and dropped with it.
func (r *run) meter(img images.Image) toolchain.Meter {
	m := r.lane.meter()
	if img.Root != "" {
		m.Cache = img.Cache
	}
	return m
}
