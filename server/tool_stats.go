package server

import (
	"context"
	"fmt"
	"time"

	"pmcp/process"
	"pmcp/server/args"
	"pmcp/server/project"
)

type processStatsArgs struct {
	Process  string `json:"process"`
	WindowMS int    `json:"window_ms,omitempty" schema:"brief" min:"1000" max:"900000"`
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

	stateText string
}

// usageResult is the usage of a whole process tree. CPUPercent is of one core.
type usageResult struct {
	At          string  `json:"at,omitempty"`
	CPUPercent  float64 `json:"cpu_percent"`
	MemoryBytes uint64  `json:"memory_bytes"`
	Processes   int     `json:"processes"`
}

func newUsageResult(u process.Usage) *usageResult {
	return &usageResult{At: args.FormatTime(u.At), CPUPercent: round(u.CPUPercent), MemoryBytes: u.MemoryBytes, Processes: u.Processes}
}

func (u usageResult) String() string {
	return fmt.Sprintf("%s, %s, %s", formatCPU(u.CPUPercent), formatBytes(int64(u.MemoryBytes)), countNoun(int64(u.Processes), "process", "processes"))
}

// formatCPU returns a CPU share with its unit: that of ps and top, not the whole machine.
func formatCPU(percent float64) string { return fmt.Sprintf("%.1f%% of one core", percent) }

func (r processStatsResult) write(t *answerText) {
	t.line("%s: %s, %s", r.Name, r.stateText, countNoun(int64(r.Samples), "sample", "samples"))
	t.optLine("now: %s", r.Now)
	t.optLine("average: %s", r.Average)
	t.optLine("peak: %s", r.Peak)
	for _, u := range r.Series {
		t.line("%s %s", u.At, u)
	}
	t.hint(r.Hint)
}

func getProcessStatsTool() tool {
	return define(tool{
		name: "get_process_stats", title: "Process usage", toolset: setMonitoring,
		description: "CPU (% of one core) and memory; points: a series of window_ms.",
		hints:       hints{readOnly: true},
	}, getProcessStats)
}

func getProcessStats(ctx context.Context, s *call, a processStatsArgs) (processStatsResult, error) {
	name, err := s.project.ResolveOne(ctx, a.Process, s.reads)
	if err != nil {
		return processStatsResult{}, err
	}
	run, stats, err := s.project.Usage(ctx, name, time.Duration(a.WindowMS)*time.Millisecond, a.Points)
	if err != nil {
		return processStatsResult{}, err
	}
	r := processStatsResult{Name: name, State: run.State.String(), stateText: run.StateText(), Samples: stats.Samples, Hint: usageHint(&run, stats.Samples)}
	if stats.Samples == 0 {
		return r, nil
	}
	r.From, r.Average, r.Peak = args.FormatTime(stats.From), newUsageResult(stats.Average), newUsageResult(stats.Peak)
	if stats.Now.Processes > 0 {
		r.Now = newUsageResult(stats.Now)
	}
	for _, u := range stats.Series {
		r.Series = append(r.Series, *newUsageResult(u))
	}
	return r, nil
}

// usageHint returns a hint about what the usage of a run is of, or why there is none.
func usageHint(run *project.Run, samples int) string {
	switch {
	case run.Stored && run.RunID == 0:
		return "it never ran"
	case run.Stored && samples == 0:
		return "no samples so far of its latest run, in an earlier session or another server"
	case run.Stored:
		return "of its latest run, in an earlier session or another server; a sample stands for 10 s"
	case samples == 0:
		return "no samples of its latest run in that time"
	}
	return ""
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

func (r systemStatsResult) write(t *answerText) {
	t.line("CPU %.1f%% of the machine (%d cores), load %v", r.CPUPercent, r.CPUs, r.Load)
	t.line("memory %s of %s used, %s available", formatBytes(int64(r.MemoryUsed)), formatBytes(int64(r.MemoryBytes)), formatBytes(int64(r.MemoryAvailable)))
	t.line("disk of the database (%s): %s of %s free", r.Disk.Path, formatBytes(int64(r.Disk.FreeBytes)), formatBytes(int64(r.Disk.Bytes)))
	t.line("up %s, %s of this session", args.FormatAge(time.Duration(r.UptimeSeconds)*time.Second), countNoun(int64(r.Processes), "process", "processes"))
}

func getSystemStatsTool() tool {
	return define(tool{
		name: "get_system_stats", title: "System usage", toolset: setMonitoring,
		description: "CPU, load, memory and disk of this machine.",
		hints:       hints{readOnly: true},
	}, getSystemStats)
}

func getSystemStats(ctx context.Context, s *call, _ systemStatsArgs) (systemStatsResult, error) {
	r, err := measureSystem(ctx, &s.cpu, s.project.StorageStatus().Path)
	r.Processes = len(s.project.Live())
	return r, err
}
