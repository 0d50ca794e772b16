package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

var lossRuns = flag.Int("loss.n", 1, "runs of each fault in TestKilledSessionsLoseNoLines")

// TestKilledSessionsLoseNoLines ends sessions at random moments while processes print
// numbered lines, one of them about 10,000 a second. EOF, SIGTERM and SIGKILL of the
// launched process must lose no line. SIGKILL of the server must leave an exact prefix of
// the lines, and the next session must report that the end may be missing.
func TestKilledSessionsLoseNoLines(t *testing.T) {
	t.Parallel()
	// The fast process obeys SIGTERM; the others ignore the signal and keep printing.
	obedient := strings.TrimPrefix(counting, "trap '' TERM INT HUP\n")
	for name, strike := range map[string]func(t *testing.T, w *world, c *caller){
		"EOF":                 func(t *testing.T, _ *world, c *caller) { c.closeInput(t) },
		"SIGTERM":             func(t *testing.T, _ *world, c *caller) { c.signal(t, syscall.SIGTERM) },
		"SIGKILL of guardian": func(t *testing.T, _ *world, c *caller) { c.signal(t, syscall.SIGKILL) },
		"SIGKILL of the server": func(t *testing.T, w *world, _ *caller) {
			_, server := w.pmcps(t)
			check(t, syscall.Kill(server, syscall.SIGKILL))
		},
	} {
		for i := range *lossRuns {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.set("PM_STOP_TIMEOUT", "300")
				c := w.open(t)
				fast, steady, slow := w.counter("fast"), w.counter("steady"), w.counter("slow")
				c.ok(t, "start_process", fast.start(obedient, "0.01", 200))
				c.ok(t, "start_process", steady.start(counting, "0.02", 1))
				c.ok(t, "start_process", slow.start(counting, "0.3", 1))
				all := []counter{fast, steady, slow}
				for _, k := range all {
					if !poll(answersWithin, func() bool { info, err := os.Stat(k.file); return err == nil && info.Size() > 0 }) {
						t.Fatalf("%s has printed nothing after %v", k.name, answersWithin)
					}
				}
				if !poll(answersWithin, func() bool {
					n, err := countIn(w.database, "SELECT count(*) FROM run")
					return err == nil && n == len(all)
				}) {
					t.Fatalf("the runs are not stored after %v", answersWithin)
				}
				<-time.After(time.Duration(rand.Int64N(int64(700 * time.Millisecond))))
				strike(t, w, c)
				w.awaitEmpty(t)
				next := w.open(t)
				killed := name == "SIGKILL of the server"
				for _, k := range all {
					lost := 0
					if killed {
						lost = k.printed(t)
					}
					stored := k.wantStored(t, next, lost)
					t.Logf("%s: printed %d, stored %d", k.name, k.printed(t), stored)
					k.wantEnd(t, next, stored, killed)
				}
			})
		}
	}
}

// wantEnd checks in the next session how the run ended, and that the log says so if lines
// may be missing.
func (k counter) wantEnd(t *testing.T, c *caller, stored int, killed bool) {
	t.Helper()
	info := c.ok(t, "get_process_info", args{"process": k.name})
	logs := c.ok(t, "tail_logs", args{"process": k.name, "lines": 5})
	gaps := list(logs.Data["gaps"])
	switch {
	case killed && info.str("state") == "lost" && stored > 0:
		if len(gaps) != 1 || !strings.Contains(logs.Text, "may be missing") {
			t.Errorf("%s: got gaps %v, want one, which the text mentions:\n%s", k.name, gaps, logs.Text)
		}
	case killed && stored == 0 && info.str("state") == "lost": // the process was killed before its first lines were stored
	case killed || info.str("state") == "lost" || len(gaps) > 0:
		t.Errorf("%s: got state %s, gaps %v, want lost only after SIGKILL of the server, and no gaps otherwise:\n%s\n%s", k.name, info.str("state"), gaps, info.Text, logs.Text)
	}
}
