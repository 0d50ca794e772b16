package server

import (
	"context"
	"log/slog"
	"strings"
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

// TestEventsRecoverFromOverrun checks that a crash that an overrun feed missed is
// reported exactly once.
func TestEventsRecoverFromOverrun(t *testing.T) {
	l, _ := bareLog(t)
	_, changes := overrunFeed(t, l.store.Store)
	c, err := changes.Next(t.Context())
	stdiotest.NoErr(t, err)
	for range 2 {
		l.handleChange(changes, c)
	}
	got := strings.Join(l.peek(), "\n")
	for _, name := range []string{"gone (run 1)", "job (run 1)"} {
		if want := name + " failed: exit code 3; last line \"why\""; strings.Count(got, want) != 1 {
			t.Errorf("got %q %d times, want once in:\n%s", want, strings.Count(got, want), got)
		}
	}
	if strings.Count(got, "\n") != 1 || !l.sawEnd("job") {
		t.Errorf("got\n%s\nwant 2 events and the end of job", got)
	}
	if _, known := l.last["gone"]; known {
		t.Error("got the status of a removed process, want none")
	}
}
