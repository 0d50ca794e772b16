package registry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"pmcp/registry/registrytest"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestKeepRestoresTheRecord checks that a session's file that is removed or damaged is
// restored, with the processes that it listed, and that the restored files are removed when
// the session ends.
func TestKeepRestoresTheRecord(t *testing.T) {
	dir := registrytest.NewDir(t)
	reg, id := register(t, dir, Describe(0))
	must(t, reg.AddProcess(self(t)))
	ctx, cancel := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() { reg.Keep(ctx, 5*time.Millisecond, slog.New(slog.DiscardHandler)) })
	defer keeping.Wait()
	defer cancel()
	remove := func(suffixes ...string) func() {
		return func() {
			for _, suffix := range suffixes {
				must(t, os.Remove(file(dir, id, suffix)))
			}
		}
	}
	record := file(dir, id, recordSuffix)
	for _, c := range []struct {
		name   string
		damage func()
	}{
		{"no record", remove(recordSuffix)},
		{"no list", remove(procsSuffix)},
		{"no lock", remove(lockSuffix)},
		{"no lock again", remove(lockSuffix)},
		{"nothing", remove(recordSuffix, procsSuffix, lockSuffix)},
		{"no directory", func() { must(t, os.RemoveAll(dir)) }},
		{"torn", func() { must(t, os.Truncate(record, 40)) }},
		{"empty", func() { must(t, os.Truncate(record, 0)) }},
	} {
		reg.mu.Lock() // so that it is not restored while it is being damaged
		c.damage()
		reg.mu.Unlock()
		var got []Entry
		whole := func() bool {
			var err error
			got, err = List(dir)
			return err == nil && len(got) == 1 && got[0].State == Live && got[0].Problem == "" && !got[0].unlocked && got[0].Record.StartedAt.Equal(reg.Record().StartedAt) &&
				slices.Contains(got[0].Processes, self(t))
		}
		for deadline := time.Now().Add(patience); !whole(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: got %+v, want it restored", c.name, got)
			}
		}
		if !Alive(dir, id) {
			t.Errorf("%s: the lock is free, want it held", c.name)
		}
	}
	if got, want := fmt.Sprint(registrytest.Files(t, dir)), 3; len(registrytest.Files(t, dir)) != want {
		t.Errorf("got the files %s, want %d of them", got, want)
	}
}
