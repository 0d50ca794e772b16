package logstore

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestReadsOfACallAwaitOneQuestion checks that another server is asked once for the concurrent reads of
// one call, which all show what it has stored then, and again when it has acted.
func TestReadsOfACallAwaitOneQuestion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	alive := func(string, string) bool { return true }
	one := openTest(t, Options{Path: path, Session: "one", Alive: alive})
	two := openTest(t, Options{Path: path, Session: "two", Alive: alive})
	run, _, err := two.NewRun("/p", "web")
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan bool, 10), make(chan struct{})
	ctx := Fresh(t.Context(), func(_ context.Context, server string, acted bool) {
		if server != "two" {
			t.Errorf("got a question to %q, want only two", server)
		}
		asked <- acted
		<-answer
		two.EndCapture(run)
		two.SaveRun(run, time.Now(), time.Now(), []byte("{}"))
		if err := two.Flush(context.Background()); err != nil {
			t.Error(err)
		}
	})
	read := func() {
		runs, err := one.Runs(ctx, RunFilter{Project: "/p", Names: []string{"web"}, Current: true})
		if err != nil || len(runs) != 1 || runs[0].Ended.IsZero() {
			t.Errorf("got %+v and %v, want the run with its end", runs, err)
		}
	}
	var reads sync.WaitGroup
	reads.Go(read)
	<-asked
	for range 5 {
		reads.Go(read)
	}
	close(answer)
	reads.Wait()
	if len(asked) > 0 {
		t.Errorf("got %d more questions, want one", len(asked))
	}
	Acted(ctx, "two")
	read()
	if len(asked) != 1 || !<-asked {
		t.Error("got no question after two has acted, want one that says so")
	}
}

// TestSnapshotBeforeAnAnswerIsStale checks that a read does not go on with a snapshot that is older than the answer
// which another read of the call has got since.
func TestSnapshotBeforeAnAnswerIsStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	alive := func(string, string) bool { return true }
	one := openTest(t, Options{Path: path, Session: "one", Alive: alive})
	two := openTest(t, Options{Path: path, Session: "two", Alive: alive})
	run, _, err := two.NewRun("/p", "web")
	if err != nil {
		t.Fatal(err)
	}
	ctx := Fresh(t.Context(), func(context.Context, string, bool) {
		two.EndCapture(run)
		two.SaveRun(run, time.Now(), time.Now(), []byte("{}"))
		if err := two.Flush(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var ends []bool // of the attempts of the outer read, whether the run has ended
	scope := scope{project: "/p", names: []string{"web"}, infos: true}
	err = one.withSnapshot(ctx, &scope, "read", func(ctx context.Context, snap *snapshot) error {
		if len(ends) == 0 {
			if _, err := storedMetas(ctx, snap.q, &scope); err != nil { // the transaction begins with its first read
				return err
			}
			if _, err := one.Runs(ctx, RunFilter{Project: "/p", Names: []string{"web"}}); err != nil {
				return err
			}
		}
		metas, err := storedMetas(ctx, snap.q, &scope)
		if err != nil {
			return err
		}
		ends = append(ends, metas[0].ended != 0)
		return snap.checkFresh(ctx, slices.Values(metas), true)
	})
	if err != nil || !slices.Equal(ends, []bool{false, true}) {
		t.Errorf("got %v and %v, want a snapshot before the end and then one after it", ends, err)
	}
}
