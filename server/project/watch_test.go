package project

import (
	"strings"
	"testing"
	"time"

	"pmcp/server/watch"
)

// TestOwnChangesAreFound checks that only a file that changes soon after every start counts as one that the process changes.
func TestOwnChangesAreFound(t *testing.T) {
	var own ownChanges
	started := time.Now()
	soon, late := started.Add(time.Second), started.Add(time.Minute)
	for i, row := range []struct {
		starts int
		last   time.Time
		files  []string
		found  string
	}{
		{maxOwnChanges - 1, soon, []string{"a"}, ""},
		{1, late, []string{"a"}, ""},
		{maxOwnChanges - 1, soon, []string{"a", "b"}, ""},
		{maxOwnChanges - 1, soon, []string{"c", "d"}, ""},
		{1, soon, []string{"e", "d"}, `"d" has changed soon after each of the last 200 starts`},
	} {
		var err error
		for range row.starts {
			err = own.add(watch.Burst{Files: row.files, Last: row.last}, started)
		}
		if (err != nil) != (row.found != "") || err != nil && !strings.Contains(err.Error(), row.found) {
			t.Errorf("row %d: got %v, want %q", i, err, row.found)
		}
	}
}
