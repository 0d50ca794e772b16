package health

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pmcp/process"
)

// BenchmarkFiftyChecks measures the CPU time that this process takes for 25 TCP and 25
// HTTP checks of servers in another process. It compares concurrent checks of the Monitor
// ("monitor") to plain dials and requests ("bare"). If the checks are made once a second,
// 1000 cpu-ms/50-checks are one core.
func BenchmarkFiftyChecks(b *testing.B) {
	ports := startServer(b)
	address, url := ports[0], "http://localhost:"+ports[1]+"/"
	b.Run("monitor", func(b *testing.B) {
		f := newFakeProcesses()
		m := newMonitor(b, f, Options{})
		for i := range 50 {
			spec := Spec{TCP: address, Interval: time.Hour}
			if i%2 == 0 {
				spec = Spec{HTTP: url, Interval: time.Hour}
			}
			name := fmt.Sprint("p", i)
			set(b, m, name, spec)
			f.setState(name, process.Running)
		}
		awaitHealthy(b, m, 50) // then each process has been checked once
		before := cpuTime(b)
		for b.Loop() {
			checkAll(b, m)
		}
		b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/50-checks")
		var took []time.Duration
		for _, st := range m.List() {
			if st.State != Healthy {
				b.Errorf("%s: got state %s, want %s", st.Name, st.State, Healthy)
			}
			took = append(took, st.Last().Took)
		}
		slices.Sort(took)
		b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms/check")
	})
	b.Run("bare", func(b *testing.B) {
		before := cpuTime(b)
		for b.Loop() {
			for range 25 {
				dialOnce(b, address)
				getOnce(b, url)
			}
		}
		b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/50-checks")
	})
}

// awaitHealthy waits for n changes to Healthy.
func awaitHealthy(b *testing.B, m *Monitor, n int) {
	b.Helper()
	feed := m.Watch()
	for healthy := 0; healthy < n; {
		change, err := feed.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if change.To == Healthy {
			healthy++
		}
	}
}

// checkAll requests a check of every process, concurrently, and waits for the results.
func checkAll(b *testing.B, m *Monitor) {
	b.Helper()
	var checks sync.WaitGroup
	for _, st := range m.List() {
		checks.Go(func() {
			if _, err := m.Check(b.Context(), st.Name); err != nil {
				b.Error(err)
			}
		})
	}
	checks.Wait()
}

// dialOnce opens and closes a connection to a port of this machine.
func dialOnce(b *testing.B, port string) {
	b.Helper()
	conn, err := net.Dial("tcp", net.JoinHostPort("localhost", port))
	if err != nil {
		b.Fatal(err)
	}
	_ = conn.Close()
}

// getOnce requests url on a connection of its own.
func getOnce(b *testing.B, url string) {
	b.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(url)
	if err != nil {
		b.Fatal(err)
	}
	_ = answer.Body.Close()
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// startServer starts the program "serve" of TestMain and returns the ports that it
// listens on.
func startServer(t testing.TB) (ports []string) {
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
