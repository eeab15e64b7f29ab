package money_test

import (
	"fmt"
	"slices"
	"testing"

	"example.com/quickstart/money"
)

func TestString(t *testing.T) {
	for in, want := range map[money.Cents]string{0: "0.00", 5: "0.05", -5: "-0.05", 123456: "1234.56"} {
		if got := in.String(); got != want {
			t.Errorf("Cents(%d).String() = %q, want %q", int64(in), got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	tests := []struct {
		name string
		in   money.Cents
		n    int
		want []money.Cents
	}{
		{"even", 100, 4, []money.Cents{25, 25, 25, 25}},
		{"rest goes first", 100, 3, []money.Cents{34, 33, 33}},
		{"negative", -100, 3, []money.Cents{-34, -33, -33}},
		{"nobody", 100, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := money.Split(tt.in, tt.n)
			if !slices.Equal(got, tt.want) {
				t.Errorf("Split(%d, %d) = %v, want %v", tt.in, tt.n, got, tt.want)
			}
		})
	}
}

func ExampleSplit() {
	fmt.Println(money.Split(1000, 3))
	// Output: [3.34 3.33 3.33]
}
