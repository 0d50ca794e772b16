package guard

import (
	"bytes"
	"flag"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"pmcp/process/proctab"
)

var (
	chaosRuns = flag.Int("chaos.n", 3, "faults in TestChaosLeavesNothing")
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of TestChaosLeavesNothing, 0 for a random one")
)

// faults are the ways to end a session.
var faults = []struct {
	name   string
	strike func(s *session)
}{
	{"SIGKILL server", func(s *session) {
		if pid, ok := s.serverPID(); ok {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		} else {
			_ = s.stdin.Close() // the server has not started yet
		}
	}},
	{"SIGKILL guardian", func(s *session) { _ = s.cmd.Process.Kill() }},
	{"SIGKILL guardian's group", func(s *session) { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }},
	{"SIGTERM guardian", func(s *session) { _ = s.cmd.Process.Signal(syscall.SIGTERM) }},
	{"stdin closed", func(s *session) { _ = s.stdin.Close() }},
}

// serverPID returns the pid of the server: the guardian's child that leads a session, as the server
// does from its first instruction on. (The guardian has a short-lived child before: os.StartProcess
// probes for pidfds.)
func (s *session) serverPID() (int, bool) {
	table, err := proctab.All()
	must(s.t, err)
	i := slices.IndexFunc(table, func(p proctab.Proc) bool { return p.PPID == s.cmd.Process.Pid && p.SID == p.PID })
	if i < 0 {
		return 0, false
	}
	return table[i].PID, true
}

// TestChaosLeavesNothing starts random process trees, ends the
// session in some way at a random moment of their start, and checks that no process
// is left.
func TestChaosLeavesNothing(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	took := make(map[string][]time.Duration)
	for i := range *chaosRuns {
		fault := faults[i%len(faults)]
		t.Run(strconv.Itoa(i)+" "+fault.name, func(t *testing.T) {
			s := start(t, []string{"wild", strconv.FormatUint(rnd.Uint64(), 10)}, func(o *sessionOptions) {
				o.prepare = func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
			})
			<-time.After(time.Duration(rnd.Int64N(int64(60 * time.Millisecond))))
			start := time.Now()
			fault.strike(s)
			s.wantProcessesGone()
			took[fault.name] = append(took[fault.name], time.Since(start))
			// The test's guardian creates its record at once, so a guardian that is killed before
			// it has a server leaves the record behind.
			if printed, _ := io.ReadAll(s.stdout); bytes.HasPrefix(printed, []byte("ready ")) {
				s.wantGone()
			}
		})
	}
	for name, times := range took {
		slices.Sort(times)
		t.Logf("%-26s %4d runs, clean-up p50 %v, p99 %v", name, len(times), times[len(times)/2], times[len(times)*99/100])
	}
}
