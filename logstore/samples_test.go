package logstore

import (
	"path/filepath"
	"testing"
	"time"
)

func TestSamplesAreStoredBySpan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s, err := Open(t.Context(), Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	run, _, _ := s.NewRun("/p", "web")
	start := time.Now().Truncate(10 * time.Second).Add(-time.Minute)
	for i := range 25 {
		s.SaveSample(run, start.Add(time.Duration(i)*time.Second), float64(i%2)*10, uint64(1000+i), 2)
	}
	s.SaveSample(-1, start, 1, 1, 1)
	s.EndCapture(run)
	if all, err := s.Samples(t.Context(), run, time.Time{}); err != nil || len(all) != 2 || all[0].CPUPercent != 5 || all[0].MemoryBytes != 1009 {
		t.Errorf("got %+v, %v; want two full spans", all, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), Options{Path: path}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	all, err := s.Samples(t.Context(), run, start.Add(15*time.Second))
	if err != nil || len(all) != 2 || all[1].MemoryBytes != 1024 || all[1].Processes != 2 {
		t.Errorf("after reopening, from the second span on: got %+v, %v; want two", all, err)
	}
}
