package health

import (
	"fmt"
	"time"
)

// State is what the checks of one process amount to.
type State uint8

// The states. The zero State is Unknown.
const (
	// Unknown: the process does not run, so nothing is checked.
	Unknown State = iota
	// Starting: it runs and has been neither healthy nor unhealthy yet.
	Starting
	// Healthy: the last check that counts succeeded, or too few have failed
	// since one did.
	Healthy
	// Unhealthy: Spec.Retries checks in a row have failed.
	Unhealthy
)

var stateNames = [...]string{"unknown", "starting", "healthy", "unhealthy"}

// String gives the state's name in the tools.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText makes a State its name in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText gives.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("no health state %q: want one of %v", text, stateNames)
}

// Result is what one check saw.
type Result struct {
	// At is when the check began, Took how long it lasted.
	At   time.Time
	Took time.Duration
	// Run is the number of the run that was checked.
	Run int
	// OK says whether it succeeded.
	OK bool
	// Requested says that it was made by Monitor.Check and not by the schedule.
	Requested bool
	// Message says what was seen, in one line: "exit code 2", "status 500, want
	// 200-399", "no answer within 5s".
	Message string
	// Output is the end of what the command printed, or the beginning of an HTTP
	// answer that was not as wanted: cleaned text, at most 4 KiB. It comes from
	// the process that was checked, or from whoever answers in its place.
	Output string

	cannotRun bool // the command could not be run: that says nothing of the process
}

// Status is what is known of the health of one process at one moment. The
// caller owns it.
type Status struct {
	// Name is the process.
	Name string
	// Spec is how it is checked, with its defaults filled in. It is the zero
	// Spec in what Monitor.Stored returns.
	Spec Spec
	// State is what the checks amount to, Since when that began; zero if nothing
	// was ever watched.
	State State
	Since time.Time
	// RunID and Run are the id and the number of the run that is checked, or was
	// last; 0 if there was none.
	RunID int64
	Run   int
	// Failures counts the failures in a row that count towards Unhealthy.
	Failures int
	// NotRestarted says why an unhealthy process is not being restarted although
	// OnUnhealthy asks for it; else "".
	NotRestarted string
	// Results are the last ones, oldest first, at most 10, those of earlier runs
	// included.
	Results []Result
}

// Last returns the latest result; nil if there is none.
func (s *Status) Last() *Result {
	if len(s.Results) == 0 {
		return nil
	}
	return &s.Results[len(s.Results)-1]
}

// tally is what the results of one run amount to. The zero value is a run that
// has not been checked.
type tally struct {
	unhealthy bool
	healthy   bool
	once      bool // healthy at least once
	failures  int  // in a row, of those that count
	// owed says that it became unhealthy by a check that could not be run, or
	// before it could be restarted for it: the next failure of one that can be run
	// is what it is restarted for.
	owed bool
}

// add takes one result. A failure that does not count, because it was asked for
// or lies within the start period, changes nothing; a success always counts.
func (t *tally) add(ok, counts bool, retries int) {
	switch {
	case ok:
		*t = tally{healthy: true, once: true}
	case counts:
		t.failures++
		if t.failures >= retries {
			t.healthy, t.unhealthy = false, true
		}
	}
}

func (t *tally) state() State {
	switch {
	case t.healthy:
		return Healthy
	case t.unhealthy:
		return Unhealthy
	default:
		return Starting
	}
}
