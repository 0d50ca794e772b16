package project

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/stdio/stdiotest"
)

// overrunFeed returns a feed of process changes that was full and so missed two
// crashes: that of a run of job, and that of another process, which has been
// removed since. The next run of job was stopped; the end of that run is still
// unread in the feed.
func overrunFeed(t *testing.T, store *logstore.Store) (manager *process.Manager, changes *process.Feed) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	manager = process.NewManager(process.Options{Project: t.TempDir(), Session: "resync", Journal: store, Log: log})
	t.Cleanup(func() { stdiotest.NoErr(t, manager.Close(context.Background())) })
	changes = manager.Watch()
	run := func(name, script string) process.Spec {
		spec := process.Spec{Name: name, Command: "sh", Args: []string{"-c", script}}
		_, _, err := manager.Start(t.Context(), spec, process.KeepRunning)
		stdiotest.NoErr(t, err)
		return spec
	}
	crash := func(name string) {
		run(name, "echo why; exit 3")
		_, err := manager.Await(t.Context(), name, func(st process.Status) bool { return st.State == process.Crashed })
		stdiotest.NoErr(t, err)
	}
	crash("gone")
	stdiotest.NoErr(t, manager.Remove(t.Context(), "gone"))
	crash("job")
	spec := run("job", "exec sleep 100")
	for range 1024 { // the capacity of a Feed
		_, err := manager.Reconfigure("job", spec)
		stdiotest.NoErr(t, err)
	}
	_, err := manager.Stop(t.Context(), "job", process.StopOptions{Force: true})
	stdiotest.NoErr(t, err)
	return manager, changes
}

// TestEndedRunIsNotStoppedByCancelledStart checks that a run that ended on its own
// is not recorded as stopped when the next start is cancelled.
func TestEndedRunIsNotStoppedByCancelledStart(t *testing.T) {
	for _, c := range []struct {
		state process.State
		exit  *process.Exit
		want  process.State
	}{
		{process.Backoff, &process.Exit{Code: 3, By: process.BySelf}, process.Crashed},
		{process.Stopped, &process.Exit{Code: 3, By: process.BySelf}, process.Crashed},
		{process.Stopped, &process.Exit{Code: 0, By: process.BySelf}, process.Exited},
		{process.Stopped, &process.Exit{Signal: "SIGKILL", By: process.ByOOM}, process.Crashed},
		{process.Stopped, &process.Exit{Signal: "SIGTERM", By: process.ByUser}, process.Stopped},
		{process.Stopped, &process.Exit{Code: 0, By: process.BySession}, process.Stopped},
		{process.Stopped, nil, process.Stopped},
		{process.Failed, &process.Exit{Code: 3, By: process.BySelf}, process.Failed},
	} {
		if got := stateOfRun(&process.Status{State: c.state, Exit: c.exit}); got != c.want {
			t.Errorf("%s, %+v: got %s, want %s", c.state, c.exit, got, c.want)
		}
	}
}

// TestRunTableRecoversFromOverrun checks that every end of a run that an overrun
// feed of process changes missed is saved, and that no older state overwrites a
// saved end.
func TestRunTableRecoversFromOverrun(t *testing.T) {
	store, err := logstore.Open(t.Context(), logstore.Options{Session: "resync"})
	stdiotest.NoErr(t, err)
	t.Cleanup(func() { stdiotest.NoErr(t, store.Close()) })
	manager, changes := overrunFeed(t, store)
	table := &RunTable{store: NewStore(store, ""), log: slog.New(slog.DiscardHandler)}
	states := func() []string {
		t.Helper()
		runs, err := store.Runs(t.Context(), logstore.RunFilter{})
		stdiotest.NoErr(t, err)
		var all []string
		for _, r := range runs {
			run := stored(&r)
			all = append(all, run.Spec.Name+": "+run.State.String())
			if run.EndedAt.IsZero() {
				t.Errorf("got no end of %s, want one", run.Spec.Name)
			}
		}
		slices.Sort(all)
		return all
	}
	want := []string{"gone: crashed", "job: crashed", "job: stopped"}
	c, err := changes.Next(t.Context())
	stdiotest.NoErr(t, err)
	if c.Missed == 0 {
		t.Fatal("got no missed changes, want an overrun feed")
	}
	table.handleChange(changes, &c)
	if got := states(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	stdiotest.NoErr(t, manager.Close(context.Background()))
	for {
		c, err := changes.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		stdiotest.NoErr(t, err)
		table.handleChange(changes, &c)
		if got := states(); !slices.Equal(got, want) {
			t.Fatalf("later: got %q, want %q", got, want)
		}
	}
}
