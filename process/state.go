package process

import (
	"fmt"
	"strings"
)

// State is what an entry of the Manager is doing.
//
//	           start            run ends, policy says restart
//	stopped ────────► starting ─► running ─────────────────► backoff ──timer──► starting
//	  ▲                   │          │ run ends, no restart      │ limit reached
//	  │ run ends          ▼          ▼                           ▼
//	  └─── stopping ◄── stop      exited (code 0) / crashed    failed (could not start, or gave up)
//
// exited, crashed, failed and backoff take start as stopped does; backoff
// takes stop and is stopped at once. The zero State is Stopped.
type State uint8

// The states. Lost is never an entry's own: it is how a stored run reads that
// has no end and whose server is dead.
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

// String gives the state's name in the tools.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// ParseState reads what String gives. Its error lists the states.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if n == name {
			return State(i), nil
		}
	}
	return 0, fmt.Errorf("%w: want one of %s, got %.200q", ErrInvalid, strings.Join(stateNames[:], ", "), name)
}

// Live says whether a process of the entry runs or is about to.
func (s State) Live() bool { return s == Starting || s == Running || s == Stopping }

// Active says whether a process of the entry runs, or will by itself: it is Live,
// or waits for the next try of its restart policy.
func (s State) Active() bool { return s.Live() || s == Backoff }

// event is what happens to an entry.
type event uint8

const (
	evStart       event = iota // the caller, or the backoff timer, wants a run
	evSpawned                  // the child exists
	evSpawnFailed              // it could not be started
	evStop                     // the caller wants it down
	evExited                   // the run ended with code 0, no restart
	evCrashed                  // the run ended otherwise, no restart
	evRetry                    // the run ended, the policy will restart it
	evGaveUp                   // the run ended, the policy has reached its limit
)

var eventNames = [...]string{"start", "run", "fail", "stop", "end", "end", "retry", "give up"}

func (e event) String() string { return eventNames[e] }

// transitions is the diagram above as a table. A pair that is missing does
// not fit.
var transitions = map[State]map[event]State{
	Stopped:  {evStart: Starting},
	Starting: {evSpawned: Running, evSpawnFailed: Failed, evStop: Stopping},
	Running:  {evStop: Stopping, evExited: Exited, evCrashed: Crashed, evRetry: Backoff, evGaveUp: Failed},
	// Whatever the policy would have said, a run that ends while it is being
	// stopped has been stopped. evSpawned: the stop came during the spawn.
	Stopping: {evSpawned: Stopping, evSpawnFailed: Stopped, evExited: Stopped, evCrashed: Stopped, evRetry: Stopped, evGaveUp: Stopped},
	Exited:   {evStart: Starting},
	Crashed:  {evStart: Starting},
	Backoff:  {evStart: Starting, evStop: Stopped},
	Failed:   {evStart: Starting},
}

// next answers the state that ev leads to, or false if ev does not fit s.
func (s State) next(ev event) (State, bool) {
	to, ok := transitions[s][ev]
	return to, ok
}
