package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
)

// cpuWindow is how long the CPU is measured for one answer.
const cpuWindow = 200 * time.Millisecond

// measureSystem reads the machine's figures. It is the one file of this package
// that knows gopsutil. database "" stands for the temporary directory.
func measureSystem(ctx context.Context, database string) (systemStatsResult, error) {
	dir := os.TempDir()
	if database != "" {
		dir = filepath.Dir(database)
	}
	busy, cpuErr := cpu.PercentWithContext(ctx, cpuWindow, false)
	cpus, countErr := cpu.CountsWithContext(ctx, true)
	avg, loadErr := load.AvgWithContext(ctx)
	memory, memErr := mem.VirtualMemoryWithContext(ctx)
	space, diskErr := disk.UsageWithContext(ctx, dir)
	up, upErr := host.UptimeWithContext(ctx)
	if err := errors.Join(cpuErr, countErr, loadErr, memErr, diskErr, upErr); err != nil {
		return systemStatsResult{}, fmt.Errorf("cannot measure the system: %w", err)
	}
	r := systemStatsResult{
		CPUs: cpus, Load: []float64{avg.Load1, avg.Load5, avg.Load15},
		MemoryBytes: memory.Total, MemoryUsed: memory.Used, MemoryAvailable: memory.Available,
		Disk: diskResult{Path: dir, Bytes: space.Total, FreeBytes: space.Free}, UptimeSeconds: up,
	}
	if len(busy) > 0 {
		r.CPUPercent = round(busy[0])
	}
	return r, nil
}
