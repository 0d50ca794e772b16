package logstore

import (
	"testing"
	"time"
)

// TestSharedNews: what other servers look for is flushed before the interval is over; what only
// this one has to keep is not.
func TestSharedNews(t *testing.T) {
	start := time.Now()
	run := newRunLog(1, processKey{"/p", "web"}, 1, start, &buffers{}, nil, nil)
	s := &Store{
		runs: map[int64]*runLog{1: run}, late: map[int64]lateRow{}, latest: map[processKey]latestRun{}, unsaved: map[documentKey]document{},
		kick: make(chan struct{}, 1), shared: make(chan struct{}, 1),
	}
	for _, c := range []struct {
		what string
		save func()
		want bool
	}{
		{"a start", func() { s.SaveRun(1, start, time.Time{}, []byte(`{}`)) }, true},
		{"readiness", func() { s.SaveRun(1, start, time.Time{}, []byte(`{"ready":true}`)) }, false},
		{"an end", func() { s.SaveRun(1, start, start.Add(1), []byte(`{}`)) }, true},
		{"what is found out of an end", func() { s.SaveRun(1, start, start.Add(1), []byte(`{}`)) }, false},
		{"the end of a run that has left memory", func() { s.SaveRun(2, start, start.Add(1), nil) }, true},
		{"a definition", func() { s.SaveDefinition("p", "web", []byte(`{}`)) }, true},
		{"a group", func() { s.SaveGroup("p", "stack", nil) }, true},
	} {
		c.save()
		told := false
		select {
		case <-s.shared:
			told = true
		default:
		}
		if told != c.want {
			t.Errorf("%s: flushed early: %v; want %v", c.what, told, c.want)
		}
	}
}
