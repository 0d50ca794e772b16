package logstore

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// TestDefinitionsShowEveryChange checks that what a Store and another one save and delete is in the definitions at once.
func TestDefinitionsShowEveryChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, other := openTest(t, Options{Path: path}), openTest(t, Options{Path: path})
	expect := func(want ...string) {
		t.Helper()
		all, err := s.Definitions(t.Context(), "/p")
		if got := slices.Sorted(maps.Keys(all)); err != nil || !slices.Equal(got, want) {
			t.Fatalf("got the definitions %q, %v; want %q", got, err, want)
		}
	}
	s.SaveDefinition("/p", "a", []byte(`{"command":"a"}`))
	expect("a") // not stored yet
	flush(t, s)
	expect("a")
	other.SaveDefinition("/p", "b", []byte(`{"command":"b"}`))
	flush(t, other)
	expect("a", "b")
	s.SaveDefinition("/p", "a", nil)
	expect("b")
	flush(t, s)
	expect("b")
	other.SaveDefinition("/p", "c", []byte(`{"command":"c"}`))
	flush(t, other)
	expect("b", "c")
}
