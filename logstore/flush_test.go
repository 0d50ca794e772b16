package logstore

import (
	"testing"

	"pmcp/process/proctest"
)

// TestFlushResumesAtOnceAfterRecovery checks that, after failed flushes, one flush that succeeds
// (called explicitly, before the retry is due) ends the pause: later lines are stored without delay.
func TestFlushResumesAtOnceAfterRecovery(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	flush(t, s)
	refuse := func(on string) {
		if _, err := s.file.WriteDB.Exec("PRAGMA query_only = " + on); err != nil {
			t.Fatal(err)
		}
	}
	refuse("on")
	put(s, run, 1, 10)
	for range 7 { // the next retry is a minute away
		if err := s.Flush(t.Context()); err == nil {
			t.Fatal("flush into a read-only database: got no error, want one")
		}
	}
	refuse("off")
	flush(t, s)
	put(s, run, 11, 20)
	proctest.Await(t, "the lines to be stored after the recovery", func() bool { return s.Status().PendingBytes == 0 })
}
