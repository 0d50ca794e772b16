package server

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSystemStatsDoNotWait checks that the CPU usage of the machine is measured in
// the background: with a measurement on each request, each call would take cpuWindow.
func TestSystemStatsDoNotWait(t *testing.T) {
	s := hello(t)
	s.do("get_system_stats", nil)
	fastest := time.Hour
	for range 100 { // on a busy machine some calls take longer
		began := time.Now()
		data, _ := s.do("get_system_stats", nil)
		if percent := data["cpu_percent"].(float64); percent < 0 || percent > 100 || data["cpus"].(float64) < 1 || data["processes"] != 0.0 {
			t.Errorf("got %v, want a share of 0 to 100 %%, processors and no processes", data)
		}
		if fastest = min(fastest, time.Since(began)); fastest < cpuWindow {
			return
		}
	}
	t.Errorf("the fastest call took %v, want less than %v", fastest, cpuWindow)
}

// TestCPUMeterSeesWork checks that the measured CPU usage of the machine includes
// the work of the test itself.
func TestCPUMeterSeesWork(t *testing.T) {
	var m cpuMeter
	var err error
	if m.newest, err = readCPU(t.Context()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * cpuWindow / 2); time.Now().Before(end); { // use the CPU
	}
	percent, err := m.percent(t.Context())
	if err != nil || percent <= 0 || percent > 100 {
		t.Errorf("got %v %% and %v, want more than none", percent, err)
	}
	began := time.Now()
	if _, err := new(cpuMeter).percent(t.Context()); err != nil || time.Since(began) < cpuWindow {
		t.Errorf("without a reading: got %v of measuring, %v; want at least %v", time.Since(began), err, cpuWindow)
	}
}

// TestPulseStopsWithoutPokes checks that a pulse beats at its start, once for the pokes of a
// period, and periodically only while the beats ask for it.
func TestPulseStopsWithoutPokes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPulse(time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var beats atomic.Int64 // a poke lets a beat run beside the test
		var goOn atomic.Bool
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx, func() bool { beats.Add(1); return goOn.Load() }) })
		check := func(d time.Duration, want int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := beats.Swap(0); got != want {
				t.Errorf("got %d beats in %v, want %d", got, d, want)
			}
		}
		check(time.Hour+time.Second/2, 1)
		p.poke()
		p.poke()
		check(time.Millisecond, 1)
		p.poke()
		p.poke()
		check(time.Millisecond, 0) // the period has not ended
		check(time.Hour, 1)
		goOn.Store(true)
		p.poke()
		check(time.Hour, 1+int64(time.Hour/time.Second))
		goOn.Store(false)
		check(time.Hour, 1)
		stop()
		running.Wait()
	})
}
