package fault_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// renamed returns the recording with the name of the failed test replaced.
func (r recording) renamed(from, to string) recording {
	r.lines = slices.Clone(r.lines)
	for i := range r.lines {
		r.lines[i].text = bytes.ReplaceAll(r.lines[i].text, []byte(from), []byte(to))
	}
	return r
}

// followedBy returns the recording with another recording appended.
func (r recording) followedBy(next recording) recording {
	r.lines = slices.Concat(r.lines, next.lines)
	return r
}

// omitting returns the recording without the n lines from index i on.
func (r recording) omitting(i, n int) recording {
	r.lines = slices.Delete(slices.Clone(r.lines), i, i+n)
	return r
}

func corpusRecording(t *testing.T, name string) recording {
	t.Helper()
	for _, r := range recordings(t, "corpus") {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no recording %s", name)
	return recording{}
}

// TestSummariesAddNoFault checks that each failed test in each round of a test runner gives one
// fault, whether the runner prints the test's error below the test, in a summary at the end, or in
// both places.
func TestSummariesAddNoFault(t *testing.T) {
	both := corpusRecording(t, "node-test-spec")
	once := both.omitting(2, 18) // since 2025 Node's test runner prints an error only in the summary
	unplaced := both.omitting(len(both.lines)-20, 1)
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
		{"both, two rounds", both.followedBy(both.renamed("adds", "sums")), []string{"adds: 1 == 2", "sums: 1 == 2"}},
		{"both, without places", unplaced, []string{"adds: 1 == 2"}},
		{"summary only", once, []string{"adds: 1 == 2"}},
		{"summary only, two rounds", once.followedBy(once.renamed("adds", "sums")), []string{"adds: 1 == 2", "sums: 1 == 2"}},
		{"jest", jest, []string{"adds: boom"}},
		{"jest, two rounds", jest.followedBy(jest.renamed("adds", "sums")), []string{"adds: boom", "sums: boom"}},
	} {
		var got []string
		for _, f := range c.r.faults() {
			got = append(got, f.Message)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
