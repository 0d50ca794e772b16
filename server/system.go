package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
)

const (
	// cpuPeriod is how often the machine's CPU time is read at most.
	cpuPeriod = time.Second
	// cpuWindow is the shortest period over which a CPU share is computed: the
	// kernel counts in steps of 10 ms.
	cpuWindow = 200 * time.Millisecond
	// cpuStale is the age from which on a reading is too old to compare with.
	cpuStale = time.Minute
)

// cpuMeter keeps recent readings of the machine's CPU time, so that a call that
// reports the CPU share need not wait for a measurement. Its methods may be called
// from several goroutines.
type cpuMeter struct {
	poller

	mu            sync.Mutex
	newest, older cpuReading // guarded by mu
}

func newCPUMeter() cpuMeter { return cpuMeter{poller: newPoller(cpuPeriod)} }

// A cpuReading is the CPU time of the machine since boot, in seconds.
type cpuReading struct {
	at          time.Time
	busy, total float64
}

// readCPU returns the current reading.
func readCPU(ctx context.Context) (cpuReading, error) {
	all, err := cpu.TimesWithContext(ctx, false)
	if err != nil {
		return cpuReading{}, err
	}
	r := cpuReading{at: time.Now()}
	for _, t := range all { // Guest is part of User
		busy := t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal
		r.busy, r.total = r.busy+busy, r.total+busy+t.Idle+t.Iowait
	}
	return r, nil
}

// run takes a reading at once and at each call of trigger, but at most one each cpuPeriod, until ctx
// ends.
func (m *cpuMeter) run(ctx context.Context) {
	m.poller.run(ctx, func() (again bool) {
		if r, err := readCPU(ctx); err == nil { // a call reports the error
			m.mu.Lock()
			m.newest, m.older = r, m.newest
			m.mu.Unlock()
		}
		return false
	})
}

// percent returns the share of the machine's CPU that was used since the reading before the last
// one or, if that is stale, since the last one. It waits, for at most cpuWindow, only if there is
// no reading that is older than cpuWindow but not stale.
func (m *cpuMeter) percent(ctx context.Context) (float64, error) {
	now, err := readCPU(ctx)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	since := m.newest
	if now.at.Sub(m.older.at) < cpuStale {
		since = m.older
	}
	m.mu.Unlock()
	if now.at.Sub(since.at) >= cpuStale {
		since = now
	}
	if short := cpuWindow - now.at.Sub(since.at); short > 0 {
		select {
		case <-time.After(short):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if now, err = readCPU(ctx); err != nil {
			return 0, err
		}
	}
	if now.total <= since.total {
		return 0, nil
	}
	return min(100, max(0, 100*(now.busy-since.busy)/(now.total-since.total))), nil
}

// measureSystem returns the machine's figures. No other file of this package uses
// gopsutil. If database is empty, the temporary directory is used instead.
func measureSystem(ctx context.Context, meter *cpuMeter, database string) (systemStatsResult, error) {
	dir := os.TempDir()
	if database != "" {
		dir = filepath.Dir(database)
	}
	busy, cpuErr := meter.percent(ctx)
	cpus, countErr := cpu.CountsWithContext(ctx, true)
	avg, loadErr := load.AvgWithContext(ctx)
	memory, memErr := mem.VirtualMemoryWithContext(ctx)
	space, diskErr := disk.UsageWithContext(ctx, dir)
	up, upErr := host.UptimeWithContext(ctx)
	if err := errors.Join(cpuErr, countErr, loadErr, memErr, diskErr, upErr); err != nil {
		return systemStatsResult{}, fmt.Errorf("cannot measure the system: %w", err)
	}
	return systemStatsResult{
		CPUPercent: round(busy), CPUs: cpus, Load: []float64{avg.Load1, avg.Load5, avg.Load15},
		MemoryBytes: memory.Total, MemoryUsed: memory.Used, MemoryAvailable: memory.Available,
		Disk: diskResult{Path: dir, Bytes: space.Total, FreeBytes: space.Free}, UptimeSeconds: up,
	}, nil
}
