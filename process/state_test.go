package process

import "testing"

// TestStateTransitionsMatchDiagram checks the transition for every pair of state and event against the
// diagram of states.
func TestStateTransitionsMatchDiagram(t *testing.T) {
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
	if len(want) != int(evGaveUp)+1 {
		t.Fatalf("the table has %d events, want %d", len(want), evGaveUp+1)
	}
	for ev := range evGaveUp + 1 {
		for _, from := range all {
			to, ok := from.next(ev)
			wantTo, wantOK := want[ev][from]
			if ok != wantOK || ok && to != wantTo {
				t.Errorf("%s × event %d = %s, %v; want %s, %v", from, ev, to, ok, wantTo, wantOK)
			}
		}
	}
}

func TestStateNamesSurviveEncoding(t *testing.T) {
	for s := Stopped; s <= Lost; s++ {
		back, err := ParseState(s.String())
		if err != nil || back != s {
			t.Errorf("ParseState(%q) = %v, %v; want %v", s, back, err, s)
		}
	}
	if _, err := ParseState("up"); err == nil {
		t.Error("ParseState(\"up\") = nil error, want one")
	}
	if got := State(99).String(); got != "State(99)" {
		t.Errorf("String of an unknown state = %q, want State(99)", got)
	}
}
