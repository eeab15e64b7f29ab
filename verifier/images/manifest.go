package images

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"striatum/seal"
)

const (
	maxManifestBytes = 4 << 20
	maxManifestDepth = 16
	maxLayers        = 128
)

// The media types of a root document, OCI's and Docker's.
const (
	ociIndex       = "application/vnd.oci.image.index.v1+json"
	ociManifest    = "application/vnd.oci.image.manifest.v1+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
)

// descriptor names content by its digest.
type descriptor struct {
	mediaType string
	digest    string // SHA-256 in hex
	size      int64  // bytes; negative: not known, at most maxManifestBytes
}

// manifest is what an image consists of.
type manifest struct {
	digest string // in hex
	layers []descriptor
}

// object is a JSON object of which we know only some fields. Keys are exact.
type object map[string]json.RawMessage

// get reads the field of that name, if it is there.
func (o object) get(name string, v any) error {
	raw, ok := o[name]
	if !ok {
		return nil
	}
	if err := decode(raw, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func decode(data []byte, v any) error {
	return seal.Decode(data, v, seal.Limits{Bytes: maxManifestBytes, Depth: maxManifestDepth})
}

// manifest fetches the image's manifest, by way of an index if the name is that
// of one.
func (f *fetch) manifest(ctx context.Context) (manifest, error) {
	root, err := f.document(ctx, descriptor{mediaType: ociIndex, digest: f.ref.digest, size: -1})
	if err != nil {
		return manifest{}, err
	}
	if _, ok := root["manifests"]; !ok {
		return parseManifest(root, f.ref.digest)
	}
	d, err := platform(root, f.store.cfg.OS, f.store.cfg.Arch)
	if err != nil {
		return manifest{}, err
	}
	doc, err := f.document(ctx, d)
	if err != nil {
		return manifest{}, err
	}
	return parseManifest(doc, d.digest)
}

// document fetches an index or a manifest.
func (f *fetch) document(ctx context.Context, d descriptor) (object, error) {
	path, err := f.blob(ctx, d)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var o object
	if err := decode(data, &o); err != nil {
		return nil, refuse("%s is no index or manifest: %w", d.digest, err)
	}
	return o, nil
}

// kind checks that a document says that it is of one of these media types, and
// has none of the fields of the other kind: one reader must not take for an
// index what another takes for a manifest.
func kind(o object, types []string, foreign ...string) error {
	version, mediaType := 0, ""
	if err := o.get("schemaVersion", &version); err != nil {
		return refuse("%w", err)
	}
	if err := o.get("mediaType", &mediaType); err != nil {
		return refuse("%w", err)
	}
	if version != 2 {
		return refuse("a manifest's schemaVersion is %d, not 2", version)
	}
	if mediaType != "" && mediaType != types[0] && mediaType != types[1] {
		return refuse("a document with the fields of %s says that it is %q", types[0], mediaType)
	}
	for _, name := range foreign {
		if _, ok := o[name]; ok {
			return refuse("a document is an index and a manifest at once (it has %q)", name)
		}
	}
	return nil
}

// platform returns the first manifest of an index that is for a system.
func platform(index object, system, arch string) (descriptor, error) {
	if err := kind(index, []string{ociIndex, dockerIndex}, "layers", "config"); err != nil {
		return descriptor{}, err
	}
	var entries []object
	if err := index.get("manifests", &entries); err != nil {
		return descriptor{}, refuse("%w", err)
	}
	for _, e := range entries {
		var p object
		var has struct{ os, arch, variant string }
		err := e.get("platform", &p)
		for name, to := range map[string]*string{"os": &has.os, "architecture": &has.arch, "variant": &has.variant} {
			if err == nil {
				err = p.get(name, to)
			}
		}
		if err != nil {
			return descriptor{}, refuse("an entry of the index: %w", err)
		}
		base := has.variant == "" || has.arch == "arm64" && has.variant == "v8" || has.arch == "amd64" && has.variant == "v1"
		if has.os != system || has.arch != arch || !base {
			continue
		}
		d, err := parseDescriptor(e)
		if err != nil {
			return d, err
		}
		if d.mediaType != ociManifest && d.mediaType != dockerManifest || d.size > maxManifestBytes {
			return d, refuse("the index has a %q of %d bytes for %s/%s, where a manifest of at most %d bytes is due", d.mediaType, d.size, system, arch, maxManifestBytes)
		}
		return d, nil
	}
	return descriptor{}, refuse("the index has no manifest for %s/%s", system, arch)
}

// parseManifest reads the layers of a manifest.
func parseManifest(o object, digest string) (manifest, error) {
	m := manifest{digest: digest}
	if err := kind(o, []string{ociManifest, dockerManifest}, "manifests"); err != nil {
		return m, err
	}
	var config object
	var layers []object
	if err := o.get("config", &config); err != nil {
		return m, refuse("%w", err)
	}
	if _, err := parseDescriptor(config); err != nil { // named, and not looked at
		return m, err
	}
	if err := o.get("layers", &layers); err != nil {
		return m, refuse("%w", err)
	}
	if len(layers) == 0 || len(layers) > maxLayers {
		return m, refuse("it has %d layers, of 1 to %d", len(layers), maxLayers)
	}
	for _, l := range layers {
		d, err := parseDescriptor(l)
		if err != nil {
			return m, err
		}
		if packing(d.mediaType) == unknown {
			return m, refuse("a layer is a %q, which is not unpacked", d.mediaType)
		}
		m.layers = append(m.layers, d)
	}
	return m, nil
}

func parseDescriptor(o object) (descriptor, error) {
	var d descriptor
	var digest string
	for name, to := range map[string]any{"mediaType": &d.mediaType, "digest": &digest, "size": &d.size} {
		if _, ok := o[name]; !ok {
			return d, refuse("a descriptor has no %s", name)
		}
		if err := o.get(name, to); err != nil {
			return d, refuse("a descriptor's %w", err)
		}
	}
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || !seal.ValidDigest(hex) {
		return d, refuse("a descriptor's digest is %q, not a SHA-256", digest)
	}
	d.digest = hex
	if d.size < 0 {
		return d, refuse("a descriptor's size is %d", d.size)
	}
	return d, nil
}

// blobPath is where a fetched part lies.
func (f *fetch) blobPath(d descriptor) string {
	return filepath.Join(f.store.spool(), "blob-"+d.digest)
}
