package fault_test

import (
	"slices"
	"strings"
	"testing"

	"pmcp/logstore/fault"
)

// TestLookalikesGiveNoFault checks that output that only looks like an error gives no fault, and
// does not become part of the error that follows.
func TestLookalikesGiveNoFault(t *testing.T) {
	for _, text := range []string{
		`./main.go:7:6: can inline id
./main.go:7:6: can inline id with cost 2 as: func(*int) *int { return x }
./main.go:9:6: cannot inline rec: unhandled op DEFER
./main.go:22:13: inlining call to fmt.Println
./main.go:7:9: leaking param: x to result ~r0 level=0
./main.go:7:9: parameter x leaks to ~r0 for id with derefs=0:
./main.go:7:9:   flow: ~r0 ← x:
./main.go:7:9:     from return x (return) at ./main.go:7:24
./main.go:17:26: (*t).self ignoring self-assignment in v.s = v.s[1:]
./main.go:20:2: main capturing by ref: y (addr=true assign=false width=8)
./main.go:20:2: moved to heap: y
./main.go:22:25: rec(3) escapes to heap
./main.go:22:25: rec(3) escapes to heap in main:
./main.go:22:13: ... argument does not escape
./main.go:22:63: zero-copy string->[]byte conversion`,
		`______ ___________ _____ _____
| ___ \  ___| ___ \_   _/  ___|
_______________________________
___ / \ ___`,
	} {
		var got []string
		rec := fault.New(func(f fault.Fault) { got = append(got, f.Message) })
		lines := append(strings.Split(text, "\n"), "TypeError: x is not a function", "    at run (/home/dev/app.js:3:9)")
		for i, l := range lines {
			rec.Line(int64(i+1), 1, 0, []byte(l))
		}
		rec.End(0, "")
		if want := []string{"x is not a function"}; !slices.Equal(got, want) {
			t.Errorf("%.40s...: got %q, want %q", text, got, want)
		}
	}
}
