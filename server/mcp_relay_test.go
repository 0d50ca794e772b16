package server

import (
	"fmt"
	"testing"
	"time"
)

// TestLogFloodIsBounded checks how many log messages of a flooding MCP server reach the client, that
// each gap is reported at its start and counted at its end, and that another server is not affected.
func TestLogFloodIsBounded(t *testing.T) {
	g := newLogGate()
	now := time.Unix(1e9, 0)
	passed, reported, counted, last := 0, 0, 0, 0
	for i := range 60_000 { // a minute of 1000 a second
		ok, first, leftOut := g.admit("flood", now.Add(time.Duration(i)*time.Millisecond))
		if first {
			reported++
		}
		if ok {
			passed++
		}
		if counted += leftOut; leftOut > 0 {
			last = passed
		}
	}
	if want := relayedLogsBurst + 60*relayedLogs; passed > want || passed < want*9/10 {
		t.Errorf("got %d messages, want about %d", passed, want)
	}
	if reported < 2 || reported > 30 || last == 0 {
		t.Errorf("got %d gaps reported, want one in some seconds", reported)
	}
	if ok, first, _ := g.admit("calm", now); !ok || first {
		t.Error("a message of another server was left out")
	}
	if ok, _, leftOut := g.admit("flood", now.Add(time.Hour)); !ok || passed+counted+leftOut != 60_000 {
		t.Errorf("got %d passed and %d left out, want 60000 in all", passed, counted+leftOut)
	}
	for i := range 10 * maxLogSources {
		g.admit(fmt.Sprint(i), now)
	}
	if len(g.sources) > maxLogSources {
		t.Errorf("got %d servers, want at most %d", len(g.sources), maxLogSources)
	}
}
