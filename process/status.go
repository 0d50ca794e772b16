package process

import (
	"time"

	"pmcp/process/proctab"
)

// Status is what the Manager knows of one entry at one moment. It shares the
// maps and slices of its Spec with the Manager: read only.
type Status struct {
	// Spec is what the current or last run was started with.
	Spec Spec
	// Executable is the absolute path of what was executed.
	Executable string
	// State is what the entry does.
	State State
	// PID is the first process of the current run; 0 while none runs.
	PID int
	// RunID is the id of the current or last run in the Journal, an attempt that
	// failed among them; 0 if nothing was attempted. Run is its number, from 1.
	RunID int64
	Run   int
	// StartedAt is when that run began, EndedAt when it ended; EndedAt is zero
	// while it runs.
	StartedAt, EndedAt time.Time
	// Exit is how that run ended; nil while it runs.
	Exit *Exit
	// Restarts counts the runs that the restart policy began since the last
	// start by a caller.
	Restarts int
	// NextRetry is when the policy will start the next run; zero unless State
	// is Backoff.
	NextRetry time.Time
	// Reason says in a sentence why State is Failed, or why the run is being
	// restarted by other than the user; else "".
	Reason string
	// Ready says whether the current run is ready; nil where nothing is checked
	// and where none runs.
	Ready *bool
	// NotReady says in a sentence what the current run is still waited for, or
	// what the last one was when it ended: "port 3000 is held by pid 12 (node),
	// which was started elsewhere". "" once ready.
	NotReady string
	// ReadyAt is when the current run became ready.
	ReadyAt time.Time
	// Ports are the TCP ports that the tree of a running process listens on,
	// ascending, as last seen; what a debugger listens on is left out.
	Ports []int
	// CPUPercent is the share of the whole machine that the tree used between
	// the last two samples, MemoryBytes what it holds, Processes how many it
	// is. Zero until the first sample, and once nothing lives.
	CPUPercent  float64
	MemoryBytes uint64
	Processes   int
	// LimitExceeded says in a sentence which limit is exceeded, since when and
	// what was done; "" if none is.
	LimitExceeded string
	// Survivors are processes of an ended run that outlive its first process.
	Survivors []proctab.Proc
}

// Alive says whether anything of the entry runs: its process, or what outlived
// it.
func (s *Status) Alive() bool { return s.State.Live() || len(s.Survivors) > 0 }

// GoesOn says whether anything of the entry runs, or will by itself.
func (s *Status) GoesOn() bool { return s.State.Active() || len(s.Survivors) > 0 }
