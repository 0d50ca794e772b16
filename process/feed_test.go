package process

import (
	"testing"

	"pmcp/process/feed"
)

func TestFeedOverrun(t *testing.T) {
	changes := feed.New[Change](feedSize)
	slow := &Feed{reader: changes.Reader()}
	for i := range feedSize + 10 {
		changes.Publish(Change{Status: Status{Run: i}})
	}
	if c, err := slow.Next(t.Context()); err != nil || c.Status.Run != 10 || c.Missed != 10 {
		t.Errorf("run %d, missed %d, %v; want 10, 10", c.Status.Run, c.Missed, err)
	}
}

func TestFeedTellsEveryState(t *testing.T) {
	m, _ := newTestManager(t, Options{})
	feed := m.Watch()
	start(t, m, shell("a", "exit 3"))
	for _, want := range []State{Starting, Running, Crashed} {
		c, err := feed.Next(testContext(t))
		if err != nil || c.To != want || c.Status.State != want {
			t.Errorf("change to %s, %v; want %s", c.To, err, want)
		}
	}
}
