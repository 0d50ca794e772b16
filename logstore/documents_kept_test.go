package logstore

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// TestReadTogetherKeepsDefinitions checks that definitions that are read together with the current runs come from
// memory until anybody commits, and are never older than the runs.
func TestReadTogetherKeepsDefinitions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, other := openTest(t, Options{Path: path}), openTest(t, Options{Path: path})
	names := func() []string {
		t.Helper()
		ctx := s.ReadTogether(t.Context())
		if _, err := s.Runs(ctx, RunFilter{Project: "/p", Current: true}); err != nil {
			t.Fatal(err)
		}
		all, err := s.Definitions(ctx, "/p")
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(all))
	}
	expect := func(want ...string) {
		t.Helper()
		for range 2 {
			if got := names(); !slices.Equal(got, want) {
				t.Fatalf("got the definitions %q, want %q", got, want)
			}
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

	// What is kept is used: here something else than what is stored.
	for !slices.Equal(names(), []string{"kept"}) {
		s.records.mu.Lock()
		for group := range s.records.kept.groups {
			s.records.kept.groups[group] = map[string][]byte{"kept": []byte(`{}`)}
		}
		s.records.mu.Unlock()
	}
	other.SaveDefinition("/p", "c", []byte(`{"command":"c"}`))
	flush(t, other)
	expect("b", "c")
}
