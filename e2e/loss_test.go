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

var lossRuns = flag.Int("loss.n", 1, "runs of each fault in TestLoss")

// TestLoss has children print numbered lines, one some 10,000 a second, and ends
// their session at a random moment. EOF, SIGTERM and SIGKILL of the launched
// process lose nothing; SIGKILL of the server leaves an exact prefix, and the
// next session says that the end may be missing.
func TestLoss(t *testing.T) {
	t.Parallel()
	// The fast one obeys SIGTERM, the others ignore it and print on.
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
						t.Fatalf("%s prints nothing", k.name)
					}
				}
				if !poll(answersWithin, func() bool {
					n, err := countIn(w.database, "SELECT count(*) FROM run")
					return err == nil && n == len(all)
				}) {
					t.Fatal("the runs are not stored")
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

// wantEnd asks the next session how the child's run ended, and whether it says
// so where lines may be missing.
func (k counter) wantEnd(t *testing.T, c *caller, stored int, killed bool) {
	t.Helper()
	info := c.ok(t, "get_process_info", args{"process": k.name})
	logs := c.ok(t, "tail_logs", args{"process": k.name, "lines": 5})
	gaps := list(logs.Data["gaps"])
	switch {
	case killed && info.str("state") == "lost" && stored > 0:
		if len(gaps) != 1 || !strings.Contains(logs.Text, "may be missing") {
			t.Errorf("%s: gaps %v in:\n%s", k.name, gaps, logs.Text)
		}
	case killed && stored == 0 && info.str("state") == "lost": // killed before the first flush
	case killed || info.str("state") == "lost" || len(gaps) > 0:
		t.Errorf("%s: state %s, gaps %v:\n%s\n%s", k.name, info.str("state"), gaps, info.Text, logs.Text)
	}
}
