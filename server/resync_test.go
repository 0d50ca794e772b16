package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pmcp/logstore"
	"pmcp/process"
)

// behind makes a Feed that has missed the crash of one run of job, and that of
// another process, which is forgotten since; the next run of job was stopped and
// its end is still to be read.
func behind(t *testing.T, store *logstore.Store) (manager *process.Manager, changes *process.Feed) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	manager = process.NewManager(process.Options{Project: t.TempDir(), Session: "resync", Journal: store, Log: log})
	t.Cleanup(func() { noErr(t, manager.Close(context.Background())) })
	changes = manager.Watch()
	run := func(name, script string) process.Spec {
		spec := process.Spec{Name: name, Command: "sh", Args: []string{"-c", script}}
		_, _, err := manager.Start(t.Context(), spec, process.KeepRunning)
		noErr(t, err)
		return spec
	}
	crash := func(name string) {
		run(name, "echo why; exit 3")
		_, err := manager.Await(t.Context(), name, func(st process.Status) bool { return st.State == process.Crashed })
		noErr(t, err)
	}
	crash("gone")
	noErr(t, manager.Remove(t.Context(), "gone"))
	crash("job")
	spec := run("job", "exec sleep 100")
	for range 1024 { // what a Feed holds
		_, err := manager.Reconfigure("job", spec)
		noErr(t, err)
	}
	_, err := manager.Stop(t.Context(), "job", process.StopOptions{Force: true})
	noErr(t, err)
	return manager, changes
}

// TestStateOfARunThatEndedByItself: that its entry is told not to try again makes it
// none that was stopped.
func TestStateOfARunThatEndedByItself(t *testing.T) {
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
			t.Errorf("%s, %+v: %s, want %s", c.state, c.exit, got, c.want)
		}
	}
}

// TestRunTableCatchesUp: no end is lost to a feed that was overrun, and nothing
// older is saved over it.
func TestRunTableCatchesUp(t *testing.T) {
	store, err := logstore.Open(t.Context(), logstore.Options{Session: "resync"})
	noErr(t, err)
	t.Cleanup(func() { noErr(t, store.Close()) })
	manager, changes := behind(t, store)
	table := &RunTable{store: store, log: slog.New(slog.DiscardHandler)}
	states := func() []string {
		t.Helper()
		runs, err := store.Runs(t.Context(), logstore.RunFilter{})
		noErr(t, err)
		var all []string
		for _, r := range runs {
			p := ofRun(&r)
			all = append(all, p.line()[:strings.Index(p.line(), ",")])
			if r.Ended.IsZero() {
				t.Errorf("no end: %s", p.line())
			}
		}
		slices.Sort(all)
		return all
	}
	want := []string{"gone: crashed", "job: crashed", "job: stopped"}
	c, err := changes.Next(t.Context())
	noErr(t, err)
	if c.Missed == 0 {
		t.Fatal("the feed was not overrun")
	}
	table.take(changes, &c)
	if got := states(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	noErr(t, manager.Close(context.Background()))
	for {
		c, err := changes.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		noErr(t, err)
		table.take(changes, &c)
		if got := states(); !slices.Equal(got, want) {
			t.Fatalf("later: %q, want %q", got, want)
		}
	}
}

// TestEventsCatchUp: a crash that a feed was overrun with is told, once.
func TestEventsCatchUp(t *testing.T) {
	l, _ := bareLog(t)
	_, changes := behind(t, l.store)
	c, err := changes.Next(t.Context())
	noErr(t, err)
	for range 2 {
		l.takeProcess(changes, c)
	}
	got := strings.Join(l.peek(), "\n")
	for _, name := range []string{"gone (run 1)", "job (run 1)"} {
		if want := name + " crashed: exit code 3, ended by self; get_logs before: "; strings.Count(got, want) != 1 {
			t.Errorf("%q stands %d times in:\n%s", want, strings.Count(got, want), got)
		}
	}
	if strings.Count(got, "\n") != 1 || !l.knows("job") {
		t.Errorf("told:\n%s", got)
	}
	if _, known := l.was["gone"]; known {
		t.Error("what is forgotten is still known")
	}
}
