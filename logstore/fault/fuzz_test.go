package fault_test

import (
	"bytes"
	"testing"

	"pmcp/logstore/fault"
)

// FuzzLines feeds a Recogniser lines in any order, of any level and stream, with calls of Idle
// anywhere. It checks that nothing panics, that emitted faults are bounded and well formed, and
// that the same input gives the same number of faults.
func FuzzLines(f *testing.F) {
	for _, r := range recordings(f, "corpus") {
		var b bytes.Buffer
		for i, l := range r.lines {
			if i > 60 {
				break
			}
			b.WriteByte('0' + l.stream + 2*l.level)
			b.Write(l.text)
			b.WriteByte('\n')
		}
		f.Add(b.Bytes(), r.exit)
	}
	f.Add([]byte(";app.rb:3:in `foo': (cached)\n;TypeError: x\n;    at f (/app/x.js:3:4)\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, exit int) {
		play := func() (list []fault.Fault) {
			rec := fault.New(func(f fault.Fault) { list = append(list, f) })
			n := int64(0)
			for line := range bytes.Lines(data) {
				n++
				c := line[0]
				if c == '~' {
					rec.Idle()
				}
				rec.Line(n, c&1, c>>1&7, bytes.TrimSuffix(line[1:], []byte("\n")))
			}
			rec.End(exit, "")
			for _, f := range list {
				checkBounds(t, f)
				if f.LastLine > n {
					t.Fatalf("got last line %d, want at most %d", f.LastLine, n)
				}
			}
			return list
		}
		a, b := play(), play()
		if len(a) != len(b) {
			t.Fatalf("got %d faults, then %d, want the same", len(a), len(b))
		}
		if len(a) > 2*bytes.Count(data, []byte("\n"))+4 {
			t.Fatalf("got %d faults in %d lines, want at most 2 a line and 4", len(a), bytes.Count(data, []byte("\n")))
		}
	})
}
