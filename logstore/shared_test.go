package logstore

import (
	"testing"
	"time"
)

// TestSharedChangesAreFlushedEarly checks that the changes that other servers wait for, such as the
// start and the end of a run, are flushed before the interval is over, and that other changes are
// not.
func TestSharedChangesAreFlushedEarly(t *testing.T) {
	start := time.Now()
	run := newRunLog(1, processKey{"/p", "web"}, 1, start, &buffers{}, nil, nil)
	queue := newFlushQueue()
	s := &captureTable{
		storage: &storage{}, flushQueue: queue,
		runs: map[int64]*runLog{1: run}, late: map[int64]*runRow{}, latest: map[processKey]latestRun{},
	}
	records := newRecords(s.storage, queue)
	for _, c := range []struct {
		what string
		save func()
		want bool
	}{
		{"a start", func() { s.SaveRun(1, start, time.Time{}, []byte(`{}`)) }, true},
		{"readiness", func() { s.SaveRun(1, start, time.Time{}, []byte(`{"ready":true}`)) }, false},
		{"an end", func() { s.SaveRun(1, start, start.Add(1), []byte(`{}`)) }, true},
		{"details of an end", func() { s.SaveRun(1, start, start.Add(1), []byte(`{}`)) }, false},
		{"the end of a run that has left memory", func() { s.SaveRun(2, start, start.Add(1), nil) }, true},
		{"a definition", func() { records.SaveDefinition("p", "web", []byte(`{}`)) }, true},
		{"a group", func() { records.SaveGroup("p", "stack", nil) }, true},
	} {
		c.save()
		flushed := false
		select {
		case <-queue.shared:
			flushed = true
		default:
		}
		if flushed != c.want {
			t.Errorf("%s: got early flush %v, want %v", c.what, flushed, c.want)
		}
	}
}
