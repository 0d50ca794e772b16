package health

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process"
)

// maxCoreShare is what 50 checks a second may cost, as a share of one core.
const maxCoreShare = 0.03

// TestCostOfFiftyChecks measures the CPU time of this process while it makes 25
// TCP and 25 HTTP checks a second against servers in another one.
func TestCostOfFiftyChecks(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("measures CPU time")
	}
	ports := serveElsewhere(t)
	f := newFakeProcesses()
	m := newMonitor(t, f, Options{})
	for i := range 50 {
		spec := Spec{TCP: ports[0], Interval: time.Second}
		if i%2 == 0 {
			spec = Spec{HTTP: "http://localhost:" + ports[1] + "/", Interval: time.Second}
		}
		name := fmt.Sprint("p", i)
		set(t, m, name, spec)
		f.enter(name, process.Running)
	}
	feed := m.Watch()
	for healthy := 0; healthy < 50; { // every one has been checked once
		change, err := feed.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if change.To == Healthy {
			healthy++
		}
	}
	const span = 3 * time.Second
	before, began := cpuTime(t), time.Now()
	<-time.After(span)
	share := float64(cpuTime(t)-before) / float64(time.Since(began))
	t.Logf("50 checks a second cost %.2f %% of one core", 100*share)
	if share > maxCoreShare {
		t.Errorf("that is over %.0f %%", 100*maxCoreShare)
	}
	var took []time.Duration
	for _, st := range m.List() {
		if st.State != Healthy {
			t.Errorf("%s is %s", st.Name, st.State)
		}
		took = append(took, st.Last().Took)
	}
	slices.Sort(took)
	t.Logf("a check took %s, the slowest %s", took[len(took)/2], took[len(took)-1])
	if took[len(took)/2] > 100*time.Millisecond {
		t.Error("that is far too long for a local server")
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// serveElsewhere starts the program "serve" and returns its ports.
func serveElsewhere(t *testing.T) (ports []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HEALTH_TEST_PROGRAM=serve")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(stdout)
	for range 2 {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, strings.TrimSpace(line))
	}
	return ports
}
