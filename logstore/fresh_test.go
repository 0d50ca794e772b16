package logstore

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestReadsOfACallAwaitOneQuestion checks that another server is asked once for the concurrent reads of
// one call, which all show what it has stored then.
func TestReadsOfACallAwaitOneQuestion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	alive := func(string, string) bool { return true }
	one := openTest(t, Options{Path: path, Session: "one", Alive: alive})
	two := openTest(t, Options{Path: path, Session: "two", Alive: alive})
	run, _, err := two.NewRun("/p", "web")
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan string, 10), make(chan struct{})
	ctx := Fresh(t.Context(), func(_ context.Context, server string) {
		if server != "two" {
			t.Errorf("got a question to %q, want only two", server)
		}
		asked <- server
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
}
