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
	chaosRuns = flag.Int("chaos.n", 25, "faults in TestChaos")
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of TestChaos, 0 for a new one")
)

// faults are the ways in which a session ends.
var faults = []struct {
	name   string
	strike func(s *session)
}{
	{"SIGKILL server", func(s *session) {
		if pid, ok := s.serverPID(); ok {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		} else {
			_ = s.stdin.Close() // it was not there yet
		}
	}},
	{"SIGKILL guardian", func(s *session) { _ = s.cmd.Process.Kill() }},
	{"SIGKILL guardian's group", func(s *session) { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }},
	{"SIGTERM guardian", func(s *session) { _ = s.cmd.Process.Signal(syscall.SIGTERM) }},
	{"stdin closed", func(s *session) { _ = s.stdin.Close() }},
}

// serverPID finds the server as the guardian's child that leads a session, which
// it does before its first instruction. (Another child comes and goes before it:
// os.StartProcess tries out pidfds.)
func (s *session) serverPID() (int, bool) {
	table, err := proctab.All()
	must(s.t, err)
	i := slices.IndexFunc(table, func(p proctab.Proc) bool { return p.PPID == s.cmd.Process.Pid && p.SID == p.PID })
	if i < 0 {
		return 0, false
	}
	return table[i].PID, true
}

// Random trees, and one fault at a random moment while they are being started.
func TestChaos(t *testing.T) {
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
			began := time.Now()
			fault.strike(s)
			s.wantProcessesGone()
			took[fault.name] = append(took[fault.name], time.Since(began))
			// The stand-in guardian's record has a name from the start, so one
			// that is killed before it has a server leaves it.
			if said, _ := io.ReadAll(s.stdout); bytes.HasPrefix(said, []byte("ready ")) {
				s.wantGone()
			}
		})
	}
	for name, times := range took {
		slices.Sort(times)
		t.Logf("%-26s %4d runs, clean-up p50 %v, p99 %v", name, len(times), times[len(times)/2], times[len(times)*99/100])
	}
}
