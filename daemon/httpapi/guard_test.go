package httpapi

import (
	"slices"
	"testing"
)

// A user with many uids, as whoever has subordinate ones, keeps nobody out.
func TestATokenIsHeldByTheUserWhoPresentsItFirstAlone(t *testing.T) {
	var s Server
	for _, tt := range []struct {
		token    string
		uid      uint32
		operator bool
		ok       bool
	}{
		{"a", 7, false, true},
		{"a", 8, false, false},
		{"a", 9, false, false},
		{"a", 10, true, false},
		{"a", 7, false, true},
		{"b", 7, false, true},
		{"c", 11, true, true},
	} {
		if err := s.hold(tt.token, tt.uid, tt.operator); (err == nil) != tt.ok {
			t.Errorf("the token %s of uid %d: %v", tt.token, tt.uid, err)
		}
	}
	if got := s.sessions.list(); !slices.Equal(got, []uint32{7, 10, 11}) {
		t.Errorf("noted: %v", got)
	}
}
