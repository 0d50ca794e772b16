package fault_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// renamed is the recording with another name of a test.
func (r recording) renamed(from, to string) recording {
	r.lines = slices.Clone(r.lines)
	for i := range r.lines {
		r.lines[i].text = bytes.ReplaceAll(r.lines[i].text, []byte(from), []byte(to))
	}
	return r
}

// then is the recording with another behind it.
func (r recording) then(next recording) recording {
	r.lines = slices.Concat(r.lines, next.lines)
	return r
}

// without is the recording without n lines from the i-th on.
func (r recording) without(i, n int) recording {
	r.lines = slices.Delete(slices.Clone(r.lines), i, i+n)
	return r
}

func corpusOf(t *testing.T, name string) recording {
	t.Helper()
	for _, r := range recordings(t, "corpus") {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no recording %s", name)
	return recording{}
}

// TestSummaries holds that each failed test of each round of a runner is one fault, whether the
// runner prints its error below the test, in its summary, or in both.
func TestSummaries(t *testing.T) {
	both := corpusOf(t, "node-test-spec")
	once := both.without(2, 18) // as Node prints it since 2025
	unplaced := both.without(len(both.lines)-20, 1)
	jest := recording{exit: 1}
	for line := range strings.Lines(`FAIL ./sum.test.js
  ● adds

    TypeError: boom

      at Object.add (sum.test.js:4:23)

Summary of all failing tests
FAIL ./sum.test.js
  ● adds

    TypeError: boom

      at Object.add (sum.test.js:4:23)

Test Suites: 1 failed, 1 total
Tests:       1 failed, 1 total
`) {
		jest.lines = append(jest.lines, recordedLine{stream: 1, text: []byte(strings.TrimSuffix(line, "\n"))})
	}
	for _, c := range []struct {
		name string
		r    recording
		want []string
	}{
		{"both", both, []string{"adds: 1 == 2"}},
		{"both, two rounds", both.then(both.renamed("adds", "sums")), []string{"adds: 1 == 2", "sums: 1 == 2"}},
		{"both, without places", unplaced, []string{"adds: 1 == 2"}},
		{"summary only", once, []string{"adds: 1 == 2"}},
		{"summary only, two rounds", once.then(once.renamed("adds", "sums")), []string{"adds: 1 == 2", "sums: 1 == 2"}},
		{"jest", jest, []string{"adds: boom"}},
		{"jest, two rounds", jest.then(jest.renamed("adds", "sums")), []string{"adds: boom", "sums: boom"}},
	} {
		var got []string
		for _, f := range c.r.play() {
			got = append(got, f.Message)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
