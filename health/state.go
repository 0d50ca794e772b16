package health

import (
	"fmt"
	"time"
)

// State is the state of health of one process, derived from its checks.
type State uint8

// The states. The zero State is Unknown.
const (
	// Unknown means that the process is not running, so it is not checked.
	Unknown State = iota
	// Starting means that the process is running and has been neither healthy nor
	// unhealthy yet.
	Starting
	// Healthy means that the process has been healthy, and that fewer than
	// Spec.Retries checks in a row have failed since the last success.
	Healthy
	// Unhealthy means that Spec.Retries checks in a row have failed.
	Unhealthy
)

var stateNames = [...]string{"unknown", "starting", "healthy", "unhealthy"}

// String returns the state's name in the tools.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Result is the result of one check.
type Result struct {
	// At is when the check began, Took its duration.
	At   time.Time
	Took time.Duration
	// Run is the number of the run that was checked.
	Run int
	// OK reports whether the check succeeded.
	OK bool
	// Requested is set if Monitor.Check made the check rather than the
	// schedule.
	Requested bool
	// Message describes the result in one line: "exit code 2", "status 500,
	// want 200-399", "no answer within 5s".
	Message string
	// Output is the end of the command's output, or the start of an HTTP
	// response that was not as expected: cleaned text, at most 4 KiB. The text
	// comes from the process that was checked, or from any other that answered in
	// its place.
	Output string

	cannotRun bool // the command could not be run, so the result is not about the process
}

// Status is the health of one process at one moment. The caller owns it.
type Status struct {
	// Name is the name of the process.
	Name string
	// Spec is how the process is checked, with defaults filled in.
	Spec Spec
	// State is the current state. Since is when that state began, or zero if no
	// run was ever watched.
	State State
	Since time.Time
	// RunID and Run are the id and the number of the run that is checked, or
	// was last checked, or 0 if there was none.
	RunID int64
	Run   int
	// Failures is the number of consecutive failures that count towards
	// Unhealthy.
	Failures int
	// NotRestarted explains why an unhealthy process is not being restarted
	// although OnUnhealthy is ActRestart. Otherwise it is "".
	NotRestarted string
	// Results are the last results, oldest first, at most 10, including those
	// of earlier runs.
	Results []Result
}

// Last returns the latest result, or nil if there is none.
func (s *Status) Last() *Result {
	if len(s.Results) == 0 {
		return nil
	}
	return &s.Results[len(s.Results)-1]
}

// flapping is the least number of failures among the last results of a run that is healthy and flaps.
const flapping = 3

// trouble returns what is wrong with the health of the run in words, or "".
func (s *Status) trouble() string {
	failed, all, last := 0, 0, ""
	for _, r := range s.Results {
		if r.Run == s.Run {
			all++
			if !r.OK {
				failed, last = failed+1, r.Message
			}
		}
	}
	switch {
	case s.State == Unhealthy:
		return "unhealthy: " + last
	case s.State == Healthy && failed >= flapping:
		return fmt.Sprintf("flapping: %d of the last %d checks failed: %s", failed, all, last)
	default:
		return ""
	}
}

// tally summarises the results of one run. The zero value means that no run is
// watched.
type tally struct {
	state       State
	everHealthy bool // the run has been healthy at least once
	failures    int  // consecutive failures that count
	// owesRestart is set if the process became unhealthy by a check that could
	// not be run, or when restarts were not enabled: the next failure of a
	// check that can be run restarts the process.
	owesRestart bool
}

// add adds one result. A failure that does not count, because the check was
// requested or began within the start period, changes nothing. A success always
// counts.
func (t *tally) add(ok, counts bool, retries int) {
	switch {
	case ok:
		*t = tally{state: Healthy, everHealthy: true}
	case counts:
		t.failures++
		if t.failures >= retries {
			t.state = Unhealthy
		}
	}
}
