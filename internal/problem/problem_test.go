package problem_test

import (
	"errors"
	"testing"

	"striatum/internal/problem"
)

func TestReasonDoesNotSayAgainWhatWasActedOn(t *testing.T) {
	for _, tt := range []struct{ what, err, want string }{
		{`read "a/b"`, `read "a/b": open "a/b": a link is in the way`, `read "a/b": a link is in the way`},
		{`open the home "/h"`, `open /h: permission denied`, `open the home "/h": permission denied`},
		{`read the key /h/keys/lane.pem`, `open /h/keys/lane.pem: no such file`, `read the key /h/keys/lane.pem: no such file`},
		{`read the workflow`, `read the workflow: it is empty`, `read the workflow: it is empty`},
		// What was not named before stays.
		{`read the token file`, `open /x/token: no such file`, `read the token file: open /x/token: no such file`},
		{`read "a"`, `mkdir /tmp/b: no space`, `read "a": mkdir /tmp/b: no space`},
		{`read "a"`, `it is "b": which is no file`, `read "a": it is "b": which is no file`},
		{`read "a"`, `its digest is wrong`, `read "a": its digest is wrong`},
		{`read "abc"`, `open "a": no`, `read "abc": open "a": no`},
		{`read /x/abc`, `open /x/a: no`, `read /x/abc: open /x/a: no`},
		{``, `open /x: no`, `: open /x: no`},
	} {
		err := errors.New(tt.err)
		p := problem.Wrap(problem.Usage, err, tt.what, "")
		if got := p.Error(); got != tt.want || !errors.Is(p, err) {
			t.Errorf("%q around %q: got %q, want %q", tt.what, tt.err, got, tt.want)
		}
	}
}
