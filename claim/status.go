package claim

import "fmt"

// Status is what a claim may say of itself. The order is the lattice: a higher
// status is a stronger statement. The zero Status is none of them.
type Status uint8

// The statuses, lowest first.
const (
	_        Status = iota
	Designed        // somebody means to make it true
	Asserted        // somebody says that it is true
	Verified        // a receipt that may count for it says so
)

var statusNames = [...]string{Designed: "DESIGNED", Asserted: "ASSERTED", Verified: "VERIFIED"}

// Valid reports whether s is one of the three.
func (s Status) Valid() bool { return s >= Designed && s <= Verified }

// String returns the name in capitals; for the zero Status it is "NONE".
func (s Status) String() string {
	if !s.Valid() {
		return "NONE"
	}
	return statusNames[s]
}

// MarshalText returns the name. The zero Status has none and is an error.
func (s Status) MarshalText() ([]byte, error) {
	if !s.Valid() {
		return nil, fmt.Errorf("encode claim status: %d is none", uint8(s))
	}
	return []byte(statusNames[s]), nil
}

// UnmarshalText reads a name in capitals and nothing else.
func (s *Status) UnmarshalText(text []byte) error {
	for v := Designed; v <= Verified; v++ {
		if statusNames[v] == string(text) {
			*s = v
			return nil
		}
	}
	return fmt.Errorf("read claim status: %q is not DESIGNED, ASSERTED or VERIFIED", clip(string(text)))
}

// ParseStatus reads a status as people write it, in capitals or in small
// letters ("verified", as in --floor).
func ParseStatus(text string) (Status, error) {
	switch text {
	case "designed", "DESIGNED":
		return Designed, nil
	case "asserted", "ASSERTED":
		return Asserted, nil
	case "verified", "VERIFIED":
		return Verified, nil
	}
	return 0, fmt.Errorf("read claim status: %q is not designed, asserted or verified", clip(text))
}

// clip shortens foreign text for an error message.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
