package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

type processStatsArgs struct {
	Process  string `json:"process"`
	WindowMS int    `json:"window_ms,omitempty" jsonschema:"default 15 min" min:"1000" max:"900000"`
	Points   int    `json:"points,omitempty" min:"1" max:"900"`
}

type processStatsResult struct {
	Name    string        `json:"name"`
	State   string        `json:"state"`
	From    string        `json:"from,omitempty"`
	Samples int           `json:"samples"`
	Now     *usageResult  `json:"now,omitempty"`
	Average *usageResult  `json:"average,omitempty"`
	Peak    *usageResult  `json:"peak,omitempty"`
	Series  []usageResult `json:"series,omitempty"`
	Hint    string        `json:"hint,omitempty"`
}

// usageResult is what a whole process tree uses. CPUPercent: 100 is the whole
// machine.
type usageResult struct {
	At          string  `json:"at,omitempty"`
	CPUPercent  float64 `json:"cpu_percent"`
	MemoryBytes uint64  `json:"memory_bytes"`
	Processes   int     `json:"processes"`
}

func ofUsage(u process.Usage) usageResult {
	return usageResult{At: formatTime(u.At), CPUPercent: round(u.CPUPercent), MemoryBytes: u.MemoryBytes, Processes: u.Processes}
}

func (u usageResult) line() string {
	return fmt.Sprintf("%.1f%% CPU, %s, %d processes", u.CPUPercent, formatBytes(int64(u.MemoryBytes)), u.Processes)
}

func (r processStatsResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %d samples\n", r.Name, r.State, r.Samples)
	for _, row := range []struct {
		name  string
		usage *usageResult
	}{{"now", r.Now}, {"average", r.Average}, {"peak", r.Peak}} {
		if row.usage != nil {
			fmt.Fprintf(&b, "%s: %s\n", row.name, row.usage.line())
		}
	}
	for _, u := range r.Series {
		fmt.Fprintf(&b, "%s %s\n", u.At, u.line())
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", r.Hint)
	}
	return b.String()
}

func getProcessStatsTool() tool {
	return define(tool{
		name: "get_process_stats", title: "Process usage", toolset: setMonitoring,
		description: "CPU and memory of a process tree; 100 % is the whole machine.",
		hints:       hints{readOnly: true, idempotent: true},
	}, getProcessStats)
}

func getProcessStats(ctx context.Context, s *Server, a processStatsArgs) (processStatsResult, error) {
	name, err := s.resolveName(ctx, a.Process)
	if err != nil {
		return processStatsResult{}, err
	}
	if a.Points == 0 {
		a.Points = 20
	}
	st, own := s.ownNow(ctx, name)
	if !own {
		return s.storedStats(ctx, name, a)
	}
	stats, err := s.o.Manager.Stats(name, time.Duration(a.WindowMS)*time.Millisecond, a.Points)
	if err != nil {
		return processStatsResult{}, err
	}
	r := processStatsResult{Name: name, State: st.State.String(), Samples: stats.Samples}
	if stats.Samples == 0 {
		r.Hint = "nothing was measured yet: the first sample comes a second after the start"
		if !st.State.Live() {
			r.Hint = "nothing was measured of its latest run, which has ended, in that time"
		}
		return r, nil
	}
	now, average, peak := ofUsage(stats.Now), ofUsage(stats.Average), ofUsage(stats.Peak)
	r.From, r.Now, r.Average, r.Peak = formatTime(stats.From), &now, &average, &peak
	for _, u := range stats.Series {
		r.Series = append(r.Series, ofUsage(u))
	}
	return r, nil
}

// storedStats are those of the latest run of a process that is not of this
// session.
func (s *Server) storedStats(ctx context.Context, name string, a processStatsArgs) (processStatsResult, error) {
	run, ok, err := s.latestRun(ctx, name)
	if err != nil || !ok {
		return processStatsResult{Name: name, State: process.Stopped.String(), Hint: "it never ran"}, err
	}
	p := ofRun(&run)
	r := processStatsResult{Name: name, State: p.State, Hint: "of its latest run, in an earlier session or another server; a sample stands for 10 s"}
	samples, err := s.o.Store.Samples(ctx, run.ID, time.Time{})
	if err == nil && len(samples) == 0 {
		r.Hint = "nothing was measured of its latest run, in an earlier session or another server, so far"
	}
	if err != nil || len(samples) == 0 {
		return r, err
	}
	last := samples[len(samples)-1].At
	if a.WindowMS > 0 {
		since := last.Add(-time.Duration(a.WindowMS) * time.Millisecond)
		samples = slices.DeleteFunc(samples, func(x logstore.Sample) bool { return x.At.Before(since) })
	}
	average, peak := summarizeSamples(samples)
	r.From, r.Samples, r.Average, r.Peak = formatTime(samples[0].At), len(samples), &average, &peak
	for part := range slices.Chunk(samples, max(1, (len(samples)+a.Points-1)/a.Points)) {
		point, _ := summarizeSamples(part)
		r.Series = append(r.Series, point)
	}
	return r, nil
}

// summarizeSamples gives the mean and the largest figures; there is at least
// one sample.
func summarizeSamples(samples []logstore.Sample) (mean, peak usageResult) {
	var cpu, memory, processes float64
	for _, x := range samples {
		n := float64(len(samples))
		cpu, memory, processes = cpu+x.CPUPercent/n, memory+float64(x.MemoryBytes)/n, processes+float64(x.Processes)/n
		peak.CPUPercent = max(peak.CPUPercent, round(x.CPUPercent))
		peak.MemoryBytes, peak.Processes = max(peak.MemoryBytes, x.MemoryBytes), max(peak.Processes, x.Processes)
	}
	at := formatTime(samples[len(samples)-1].At)
	mean = usageResult{At: at, CPUPercent: round(cpu), MemoryBytes: uint64(memory), Processes: int(processes + 0.5)}
	return mean, peak
}

type systemStatsArgs struct{}

type systemStatsResult struct {
	CPUPercent      float64    `json:"cpu_percent"`
	CPUs            int        `json:"cpus"`
	Load            []float64  `json:"load"`
	MemoryBytes     uint64     `json:"memory_bytes"`
	MemoryUsed      uint64     `json:"memory_used_bytes"`
	MemoryAvailable uint64     `json:"memory_available_bytes"`
	Disk            diskResult `json:"disk"`
	UptimeSeconds   uint64     `json:"uptime_seconds"`
	Processes       int        `json:"processes"`
}

// diskResult is the file system that the database is on.
type diskResult struct {
	Path      string `json:"path"`
	Bytes     uint64 `json:"bytes"`
	FreeBytes uint64 `json:"free_bytes"`
}

func (r systemStatsResult) text() string {
	return fmt.Sprintf("CPU %.1f%% of %d, load %v\nmemory %s of %s used, %s available\ndisk of the database (%s): %s of %s free\nup %s, %d processes of this session\n",
		r.CPUPercent, r.CPUs, r.Load, formatBytes(int64(r.MemoryUsed)), formatBytes(int64(r.MemoryBytes)), formatBytes(int64(r.MemoryAvailable)),
		r.Disk.Path, formatBytes(int64(r.Disk.FreeBytes)), formatBytes(int64(r.Disk.Bytes)), formatAge(time.Duration(r.UptimeSeconds)*time.Second), r.Processes)
}

func getSystemStatsTool() tool {
	return define(tool{
		name: "get_system_stats", title: "System usage", toolset: setMonitoring,
		description: "CPU, load, memory and disk of this machine.",
		hints:       hints{readOnly: true, idempotent: true},
		waits:       func(json.RawMessage) bool { return true },
	}, getSystemStats)
}

func getSystemStats(ctx context.Context, s *Server, _ systemStatsArgs) (systemStatsResult, error) {
	r, err := measureSystem(ctx, s.o.Store.Status().Path)
	if err != nil {
		return r, err
	}
	for _, st := range s.o.Manager.List() {
		if st.State.Live() {
			r.Processes++
		}
	}
	return r, nil
}
