package project

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pmcp/logstore"
	"pmcp/registry"
	"pmcp/server/socket"
)

// TestFreshRunsAwaitEachWindowOnce checks that all other windows that have some of the runs are asked at the
// same time, once, and that the runs are read after each has stored what it has done.
func TestFreshRunsAwaitEachWindowOnce(t *testing.T) {
	dir := t.TempDir()
	open := func(session string) *logstore.Store {
		store, err := logstore.Open(t.Context(), logstore.Options{
			Path: filepath.Join(dir, "pmcp.db"), Session: session, Alive: func(string, string) bool { return true },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	reading := NewStore(open("reading"), "/p")
	reading.ReachWindows(dir, time.Minute)
	const windows = 3
	var asked, served sync.WaitGroup
	asked.Add(windows) // a second question to one would panic
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); served.Wait() })
	for i := range windows {
		session := registry.NewID(dir)
		store := open(session)
		run, _, err := store.NewRun("/p", string(rune('a'+i)))
		if err != nil {
			t.Fatal(err)
		}
		l, err := socket.Listen(dir, session, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		served.Go(func() {
			l.Serve(ctx, func(context.Context, string, json.RawMessage) (any, error) {
				asked.Done()
				asked.Wait()
				store.EndCapture(run)
				store.SaveRun(run, time.Now(), time.Now(), []byte("{}"))
				return StoredAnswer{Later: "as a test"}, store.Flush(ctx)
			})
		})
	}
	runs, err := reading.freshRuns(t.Context(), logstore.RunFilter{Project: "/p", Current: true})
	if err != nil || len(runs) != windows {
		t.Fatalf("got %d runs and %v, want %d", len(runs), err, windows)
	}
	for i := range runs {
		if runs[i].Ended.IsZero() {
			t.Errorf("got %s without its end, want what its window has stored", runs[i].Name)
		}
	}
}
