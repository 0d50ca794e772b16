package process

import "testing"

// TestTransitions holds every pair of state and event against the diagram.
func TestTransitions(t *testing.T) {
	all := []State{Stopped, Starting, Running, Stopping, Exited, Crashed, Backoff, Failed, Lost}
	want := map[event]map[State]State{
		evStart:       {Stopped: Starting, Exited: Starting, Crashed: Starting, Backoff: Starting, Failed: Starting},
		evSpawned:     {Starting: Running, Stopping: Stopping},
		evSpawnFailed: {Starting: Failed, Stopping: Stopped},
		evStop:        {Starting: Stopping, Running: Stopping, Backoff: Stopped},
		evExited:      {Running: Exited, Stopping: Stopped},
		evCrashed:     {Running: Crashed, Stopping: Stopped},
		evRetry:       {Running: Backoff, Stopping: Stopped},
		evGaveUp:      {Running: Failed, Stopping: Stopped},
	}
	if len(want) != len(eventNames) {
		t.Fatalf("the test knows %d events, there are %d", len(want), len(eventNames))
	}
	for ev := range evGaveUp + 1 {
		for _, from := range all {
			to, ok := from.next(ev)
			wantTo, wantOK := want[ev][from]
			if ok != wantOK || ok && to != wantTo {
				t.Errorf("%s × %s = %s, %v; want %s, %v", from, ev, to, ok, wantTo, wantOK)
			}
		}
	}
}

func TestStateNames(t *testing.T) {
	for s := Stopped; s <= Lost; s++ {
		back, err := ParseState(s.String())
		if err != nil || back != s {
			t.Errorf("ParseState(%q) = %v, %v", s, back, err)
		}
	}
	if _, err := ParseState("up"); err == nil {
		t.Error("ParseState took what is no state")
	}
	if got := State(99).String(); got != "State(99)" {
		t.Errorf("an unknown state reads %q", got)
	}
}
