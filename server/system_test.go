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
	t.Parallel()
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

// TestPollerStopsWithoutTriggers checks that a poller polls at its start, once for the triggers of a
// period, and periodically only while the polls ask for it.
func TestPollerStopsWithoutTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPoller(time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var polls atomic.Int64 // a trigger lets a poll run beside the test
		var again atomic.Bool
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx, func() bool { polls.Add(1); return again.Load() }) })
		check := func(d time.Duration, want int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := polls.Swap(0); got != want {
				t.Errorf("got %d polls in %v, want %d", got, d, want)
			}
		}
		check(time.Hour+time.Second/2, 1)
		p.trigger()
		p.trigger()
		check(time.Millisecond, 1)
		p.trigger()
		p.trigger()
		check(time.Millisecond, 0) // the period has not ended
		check(time.Hour, 1)
		again.Store(true)
		p.trigger()
		check(time.Hour, 1+int64(time.Hour/time.Second))
		again.Store(false)
		check(time.Hour, 1)
		stop()
		running.Wait()
	})
}
