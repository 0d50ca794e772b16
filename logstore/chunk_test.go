package logstore

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestOnlyBusyRunGetsFullBuffer(t *testing.T) {
	s, err := Open(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		name string
		took time.Duration
		full bool
	}{{"busy", 0, true}, {"slow", 2 * busyChunk, false}} {
		run := startRun(s, "/p", c.name)
		r := s.ownRun(run)
		now := time.Now()
		s.Capture(run, Stdout, now, []byte("the chunk's first line\n"))
		full := bytes.Repeat([]byte(strings.Repeat("x", 1000)+"\n"), chunkBytes/1000)
		s.Capture(run, Stdout, now.Add(c.took), full)
		s.Capture(run, Stdout, now.Add(c.took), []byte("the next chunk's\n"))
		r.mu.Lock() // the flusher stores the sealed chunk
		lines, size := r.open.lines(), cap(r.open.text)
		r.mu.Unlock()
		if lines > 9 || (size == fullText) != c.full {
			t.Errorf("%s: got an open chunk of %d lines with a buffer of %d bytes, want the last few lines and full %v", c.name, lines, size, c.full)
		}
	}
}
