// Package archtest has no code: its tests hold the import rules of the
// architecture (docs/architecture.md lists the packages).
package archtest
