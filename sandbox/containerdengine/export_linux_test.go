package containerdengine

import "errors"

// CopyLayers makes e copy what is below its layers, as where tryOverlay fails.
func CopyLayers(e *Engine) { e.copies = errors.New("a test asks for copies") }

// InitCapabilities are those that a benchmark gives to a launcher outside an engine.
var InitCapabilities = initCapabilities
