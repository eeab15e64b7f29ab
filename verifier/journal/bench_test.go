package journal

import "testing"

func BenchmarkOneNumber(b *testing.B) {
	s := open(b, b.TempDir(), testConfig())
	for b.Loop() {
		e := begin(b, s, "a")
		if err := s.MarkRecorded(finish(b, e)); err != nil {
			b.Fatal(err)
		}
	}
}
