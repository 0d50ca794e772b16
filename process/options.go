package process

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"
)

// Options configure a Manager. The zero value of each field is usable but for
// Journal, which is required.
type Options struct {
	// Project is the absolute directory that relative Spec.Dirs count from and
	// that names belong to. "" means the working directory.
	Project string
	// Session is the id that marks every child's environment.
	Session string
	// Journal numbers runs and takes their output. Required.
	Journal Journal
	// Recorder is told of every process below the server; nil for none.
	Recorder Recorder
	// MaxProcesses bounds the entries that run at once. 0 means 50.
	MaxProcesses int
	// StopTimeout is the default of StopSpec.Timeout. 0 means 5 s.
	StopTimeout time.Duration
	// NoAutoRestart keeps every restart policy from acting.
	NoAutoRestart bool
	// Subreaper says that this process is a child subreaper all of whose
	// children belong to the Manager: it then takes the status of orphans, and
	// Close kills what no run claims.
	Subreaper bool
	// Environ is the environment under each Spec.Env. nil means os.Environ().
	Environ []string
	// AwaitLine answers the first line of run, cleaned and from its very first
	// on, for which match holds. It is what Ready.Log needs; nil refuses it.
	AwaitLine func(ctx context.Context, run int64, match func(text string) bool) (line string, err error)
	// TakeStdio is given the standard streams of each run whose Stdio is "mcp",
	// right after its start, and owns them. It must read stdout to its end, which
	// comes when the first process has ended at the latest, and close it once it
	// has dealt with everything: only then does the run count as ended. The
	// Manager closes stdin to stop the run. Nil refuses such a Spec. It must not
	// block. Whether the run is ready it says with SetReady.
	TakeStdio func(name string, run int64, stdin io.WriteCloser, stdout io.ReadCloser)
	// Allowed are the absolute files and directories that executables may come
	// from (PM_ALLOWED_COMMANDS). Nil means any.
	Allowed []string
	// MaxCPUPercent (100 is the whole machine) and MaxMemoryMB are the limits of
	// each process tree, where its Spec has none. 0 means none.
	MaxCPUPercent, MaxMemoryMB int
	// LimitAction is what is done when a limit is exceeded: LimitWarn (also ""),
	// LimitStop or LimitRestart.
	LimitAction string
	// OnSample is told once a second of each run with a living process. It must
	// not block. Nil for nobody.
	OnSample func(run int64, at time.Time, cpuPercent float64, memoryBytes uint64, processes int)
	// Log takes what is worth a line on stderr. nil discards it.
	Log *slog.Logger
}

// withDefaults fills in what is documented for zero fields.
func (o Options) withDefaults() Options {
	if o.MaxProcesses == 0 {
		o.MaxProcesses = 50
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = 5 * time.Second
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Project == "" {
		o.Project, _ = os.Getwd()
	}
	return o
}
