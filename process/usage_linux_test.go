package process

import (
	"math"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// TestCPUShareIsOfOneCore checks that a process that keeps half a core busy has 50 %, however many
// cores there are.
func TestCPUShareIsOfOneCore(t *testing.T) {
	m, began, id := newMeter(nil), time.Now(), proctab.ID{PID: 1, Start: 1}
	used := func(ticks uint64) []proctab.Proc { return []proctab.Proc{{ID: id, CPU: ticks}} }
	shares := func(ticks uint64, at time.Time) float64 {
		return m.shares(&scan{members: map[int64][]proctab.Proc{1: used(ticks)}}, at)[id]
	}
	shares(10, began)
	if got := shares(10+2*proctab.TicksPerSecond, began.Add(4*time.Second)); got != 50 {
		t.Errorf("got %v %% for 2 s in 4 s, want 50", got)
	}
	if got := meanShare(used(2*proctab.TicksPerSecond), 4*time.Second); got != 50 {
		t.Errorf("got a mean of %v %%, want 50", got)
	}
	for range 2 {
		m.store(map[int64]Usage{1: {CPUPercent: 50}}, nil, nil)
	}
	m.at = time.Now().Add(-samplePeriod / 2)
	if got := m.now(1, used(1000*proctab.TicksPerSecond), began).CPUPercent; got != 50 {
		t.Errorf("got %v %% now, soon after a sample of 50 %%, want that", got)
	}
	m.at = time.Now().Add(-time.Hour)
	if got := m.now(1, used(10+902*proctab.TicksPerSecond), began).CPUPercent; math.Round(got) != 25 {
		t.Errorf("got %v %% now, for 15 minutes in an hour, want 25", got)
	}
}
