package process

import (
	"fmt"
	"strings"
)

// State is the state of an entry of the Manager.
//
//	           start            run ends, policy says restart
//	stopped ────────► starting ─► running ─────────────────► backoff ──timer──► starting
//	  ▲                   │          │ run ends, no restart      │ limit reached
//	  │ run ends          ▼          ▼                           ▼
//	  └─── stopping ◄── stop      exited (code 0) / crashed    failed (could not start, or gave up)
//
// exited, crashed, failed and backoff accept start as stopped does. A stop turns
// backoff into stopped at once. The zero State is Stopped.
type State uint8

// The states. No entry is ever Lost: it is the state of a stored run that has no
// recorded end and whose server is dead. Crashed is every end with another code than 0;
// see Status.StateText.
const (
	Stopped State = iota
	Starting
	Running
	Stopping
	Exited
	Crashed
	Backoff
	Failed
	Lost
)

var stateNames = [...]string{"stopped", "starting", "running", "stopping", "exited", "crashed", "backoff", "failed", "lost"}

// String returns the state's name in the tools.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// StateText returns the state in the words of a text, which call a run that chose an exit
// code other than 0 failed: the program of such a run has not crashed.
func (s *Status) StateText() string { return stateText(s.State, s.Exit) }

func stateText(s State, exit *Exit) string {
	if s == Crashed && exit != nil && !exit.Crashed() {
		return Failed.String()
	}
	return s.String()
}

// ParseState is the inverse of String. Its error lists the states.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if n == name {
			return State(i), nil
		}
	}
	return 0, fmt.Errorf("%w: want one of %s, got %.200q", ErrInvalid, strings.Join(stateNames[:], ", "), name)
}

// Live reports whether a process of the entry is running or about to run.
func (s State) Live() bool { return s == Starting || s == Running || s == Stopping }

// Active reports whether a process of the entry is running, or will be restarted:
// the state is Live, or the entry waits for the next try of the restart policy.
func (s State) Active() bool { return s.Live() || s == Backoff }

// event is an input of the state machine.
type event uint8

const (
	evStart       event = iota // the caller or the backoff timer requests a run
	evSpawned                  // the child exists
	evSpawnFailed              // the child could not be started
	evStop                     // the caller requests a stop
	evExited                   // the run ended with code 0, no restart
	evCrashed                  // the run ended otherwise, no restart
	evRetry                    // the run ended, the policy will restart it
	evGaveUp                   // the run ended, the policy has reached its limit
)

// transitions is the diagram above as a table. A pair that is missing is not
// allowed.
var transitions = map[State]map[event]State{
	Stopped:  {evStart: Starting},
	Starting: {evSpawned: Running, evSpawnFailed: Failed, evStop: Stopping},
	Running:  {evStop: Stopping, evExited: Exited, evCrashed: Crashed, evRetry: Backoff, evGaveUp: Failed},
	// A run that ends during a stop is stopped, whatever the policy decides.
	// evSpawned occurs here when the stop came during the spawn.
	Stopping: {evSpawned: Stopping, evSpawnFailed: Stopped, evExited: Stopped, evCrashed: Stopped, evRetry: Stopped, evGaveUp: Stopped},
	Exited:   {evStart: Starting},
	Crashed:  {evStart: Starting},
	Backoff:  {evStart: Starting, evStop: Stopped},
	Failed:   {evStart: Starting},
}

func (s State) next(ev event) (State, bool) {
	to, ok := transitions[s][ev]
	return to, ok
}
