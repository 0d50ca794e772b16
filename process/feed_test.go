package process

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pmcp/process/feed"
)

func TestFeedCountsMissedChanges(t *testing.T) {
	changes := feed.New[Change](feedSize)
	slow := &Feed{reader: changes.Reader()}
	for i := range feedSize + 10 {
		changes.Publish(Change{Status: Status{Run: i}})
	}
	if c, err := slow.Next(t.Context()); err != nil || c.Status.Run != 10 || c.Missed != 10 {
		t.Errorf("run %d, missed %d, %v; want 10, 10", c.Status.Run, c.Missed, err)
	}
}

func TestFeedDeliversEveryState(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	feed := m.Watch()
	start(t, m, shell("a", "exit 3"))
	for _, want := range []State{Starting, Running, Crashed} {
		c, err := feed.Next(testContext(t))
		if err != nil || c.To != want || c.Status.State != want {
			t.Errorf("change to %s, %v; want %s", c.To, err, want)
		}
	}
}

// TestResyncReturnsAllEnds checks that a reader that fell behind receives the end of every run, and
// later only newer changes.
func TestResyncReturnsAllEnds(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		changes := m.Watch()
		start(t, m, sh("gone", RestartNever))
		step(t, f, time.Second, crash)
		if err := m.Remove(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			start(t, m, sh("a", RestartNever))
			step(t, f, time.Second, crash)
		}
		start(t, m, sh("a", RestartNever))
		for range feedSize {
			if _, err := m.Reconfigure("a", sh("a", RestartNever)); err != nil {
				t.Fatal(err)
			}
		}
		c, err := changes.Next(t.Context())
		if err != nil || c.Missed == 0 {
			t.Fatalf("missed %d changes, %v; want some", c.Missed, err)
		}
		ends, entries := changes.Resync()
		var got []string
		for _, end := range ends {
			got = append(got, fmt.Sprintf("%s%d %s", end.Status.Spec.Name, end.Status.Run, end.To))
		}
		if want := "[gone1 crashed a2 crashed a3 crashed]"; fmt.Sprint(got) != want {
			t.Errorf("ends %v, want %s", got, want)
		}
		if len(entries) != 1 || entries[0].Run != 4 || entries[0].State != Running {
			t.Errorf("entries %+v, want one, running run 4", entries)
		}
		f.last().finish(clean)
		if c, err := changes.Next(t.Context()); err != nil || c.Missed != 0 || c.To != Exited {
			t.Errorf("next change to %s, missed %d, %v; want run 4 to exit, 0 missed", c.To, c.Missed, err)
		}
	})
}

func TestEndLogDropsOldestEnds(t *testing.T) {
	var l endLog
	for i := range endsKept + 3 {
		l.add(Change{Status: Status{RunID: int64(i)}})
	}
	all := l
	if len(all) != endsKept || all[0].Status.RunID != 3 || all[endsKept-1].Status.RunID != endsKept+2 {
		t.Errorf("%d ends, from %d to %d; want %d, from 3 to %d", len(all), all[0].Status.RunID, all[len(all)-1].Status.RunID, endsKept, endsKept+2)
	}
	if l.find(2) != nil || l.find(3) == nil {
		t.Error("run 2 is kept or run 3 is not, want only the oldest dropped")
	}
}

func TestFeedReportsEviction(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, m *Manager, f *fakeSpawner) {
		changes := m.Watch()
		var removed []string
		drain := func() {
			for {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				c, err := changes.Next(ctx)
				if err != nil {
					return
				}
				if c.Removed {
					removed = append(removed, c.Status.Spec.Name)
				}
			}
		}
		for i := range maxEntries + 1 {
			start(t, m, sh(fmt.Sprintf("p%d", i), RestartNever))
			step(t, f, time.Millisecond, clean)
			drain()
		}
		if fmt.Sprint(removed) != "[p0]" {
			t.Errorf("reported as removed: %v, want p0", removed)
		}
	})
}
