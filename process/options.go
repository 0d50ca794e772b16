package process

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"time"
)

// Options configure a Manager. Every field except Journal is optional.
type Options struct {
	// Project is the absolute directory that relative Spec.Dirs are resolved
	// against and that the names of processes belong to. "" means the working
	// directory.
	Project string
	// Session is the id that marks every child's environment.
	Session string
	// Journal numbers runs and receives their output. Required.
	Journal Journal
	// Recorder receives the identity of every process below the server. Nil means
	// none.
	Recorder Recorder
	// MaxProcesses bounds the number of active entries. 0 means 50.
	MaxProcesses int
	// StopTimeout is the default of StopSpec.Timeout. 0 means 5 s.
	StopTimeout time.Duration
	// NoAutoRestart disables every restart policy.
	NoAutoRestart bool
	// Subreaper declares that this process is a child subreaper and that all its
	// children belong to the Manager, which then reaps orphans. Close kills
	// those that no run owns.
	Subreaper bool
	// AwaitLine returns the first line of the output of run after the line with the number
	// after, cleaned, for which match returns true. match is called once for each line, by
	// several goroutines. Ready.Log needs AwaitLine; if it is nil, a Spec with Ready.Log is
	// refused.
	AwaitLine func(ctx context.Context, run, after int64, match func(stream uint8, text string) bool) (line string, err error)
	// TakeStdio receives the standard streams of each run whose Stdio is "mcp",
	// right after the run's start, and becomes their owner. env is the run's
	// Spec.Env. TakeStdio must not block. The owner must read stdout to the end, which comes no later than the
	// end of the first process, and close stdout after processing everything:
	// only then does the run count as ended. The Manager closes stdin to stop the
	// run. The owner reports readiness with SetReady. If TakeStdio is nil, a Spec
	// with Stdio "mcp" is refused.
	TakeStdio func(name string, run int64, env map[string]string, stdin io.WriteCloser, stdout io.ReadCloser)
	// TakeHTTP receives the URL of each run whose Stdio is "mcp-http" once the run
	// listens there. ctx ends with the run, env is as for TakeStdio. TakeHTTP must not block. The caller
	// reports readiness with SetReady. If TakeHTTP is nil, a Spec with Stdio
	// "mcp-http" is refused.
	TakeHTTP func(ctx context.Context, name string, run int64, env map[string]string, url string)
	// Allowed are the absolute files and directories that executables may come
	// from (PM_ALLOWED_COMMANDS). Nil means any.
	Allowed []string
	// MaxCPUPercent (100 is the whole machine) and MaxMemoryMB are the limits of
	// each process tree whose Spec has no Limits. 0 means no limit.
	MaxCPUPercent, MaxMemoryMB int
	// LimitAction is the response to an exceeded limit: LimitWarn (also ""),
	// LimitStop or LimitRestart.
	LimitAction string
	// OnSample is called once a second for each run with a living process. cpuPercent
	// is of one core. It must not block. It may be nil.
	OnSample func(run int64, at time.Time, cpuPercent float64, memoryBytes uint64, processes int)
	// Log receives errors and warnings. Nil discards them.
	Log *slog.Logger
}

// withDefaults returns o with the documented defaults in place of zero fields.
func (o Options) withDefaults() Options {
	o.MaxProcesses = cmp.Or(o.MaxProcesses, 50)
	o.StopTimeout = cmp.Or(o.StopTimeout, 5*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Project == "" {
		o.Project, _ = os.Getwd()
	}
	return o
}
