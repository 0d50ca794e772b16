package logstore

import (
	"testing"
	"time"
)

// TestStoredAtOnceAfterRecovery: when storage works again, as a read finds out
// before the next try is due, what comes then is not put off until that.
func TestStoredAtOnceAfterRecovery(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	flush(t, s)
	refuse := func(on string) {
		if _, err := s.file.write.Exec("PRAGMA query_only = " + on); err != nil {
			t.Fatal(err)
		}
	}
	refuse("on")
	put(s, run, 1, 10)
	for range 7 { // the next try is a minute away
		if err := s.Flush(t.Context()); err == nil {
			t.Fatal("stored although the database refuses it")
		}
	}
	refuse("off")
	flush(t, s)
	put(s, run, 11, 20)
	for deadline := time.Now().Add(30 * time.Second); s.Status().PendingBytes > 0; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was captured after the recovery is not stored")
		}
	}
}
