package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// BenchmarkBareStart measures exec.Cmd for a program with its streams on /dev/null. It is the
// baseline of BenchmarkManagerStart.
func BenchmarkBareStart(b *testing.B) {
	for b.Loop() {
		cmd := exec.Command("/bin/true")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkManagerStart starts a program and waits until the end of its run is
// recorded.
func BenchmarkManagerStart(b *testing.B) {
	m, _ := newTestManager(b, Options{})
	var inStart time.Duration
	for b.Loop() {
		began := time.Now()
		if _, _, err := m.Start(context.Background(), Spec{Name: "a", Command: "/bin/true"}, KeepRunning); err != nil {
			b.Fatal(err)
		}
		inStart += time.Since(began)
		if _, err := m.Await(context.Background(), "a", func(st Status) bool { return !st.State.Live() }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(inStart.Nanoseconds())/float64(b.N), "ns/Start")
}

// fifty returns a Manager with fifty idle processes.
func fifty(b *testing.B) *Manager {
	m, _ := newTestManager(b, Options{StopTimeout: time.Second})
	for i := range 50 {
		start(b, m, Spec{Name: fmt.Sprintf("p%d", i), Command: "sleep", Args: []string{"1000"}})
	}
	return m
}

func BenchmarkListWithFifty(b *testing.B) {
	m := fifty(b)
	for b.Loop() {
		if n := len(m.List()); n != 50 {
			b.Fatal(n)
		}
	}
}

// BenchmarkSampleWithFifty measures one sample of the usage of fifty processes, which the sampler
// takes once a second.
func BenchmarkSampleWithFifty(b *testing.B) {
	m := fifty(b)
	meter := newMeter(nil) // a meter of the benchmark, because the Manager's meter belongs to its sampler
	for b.Loop() {
		now := time.Now()
		meter.sample(m.deps.tree.scanSince(now), now)
	}
	table, err := proctab.All()
	if err != nil {
		b.Fatal(err)
	}
	perOp := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(float64(len(table)), "processes")
	b.ReportMetric(perOp/float64(len(table)), "ns/process")
	b.ReportMetric(perOp/1e9*100, "%core")
}

// BenchmarkOutput moves 64 MiB of a child's output to a Journal that discards it.
func BenchmarkOutput(b *testing.B) {
	const size = 64 << 20
	j := &dropJournal{newMemJournal()}
	m := NewManager(Options{Journal: j, Project: os.TempDir()})
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	b.SetBytes(size)
	for b.Loop() {
		if _, _, err := m.Start(context.Background(), shell("a", fmt.Sprintf("head -c %d /dev/zero", size)), KeepRunning); err != nil {
			b.Fatal(err)
		}
		if _, err := m.Await(context.Background(), "a", func(st Status) bool { return !st.State.Live() }); err != nil {
			b.Fatal(err)
		}
	}
}

type dropJournal struct{ *memJournal }

func (dropJournal) Capture(int64, uint8, time.Time, []byte) {}

// BenchmarkStop measures the stop of a process that obeys SIGTERM.
func BenchmarkStop(b *testing.B) {
	m, _ := newTestManager(b, Options{})
	var inStop time.Duration
	for b.Loop() {
		start(b, m, Spec{Name: "a", Command: "sleep", Args: []string{"1000"}})
		began := time.Now()
		if _, err := m.Stop(context.Background(), "a", StopOptions{}); err != nil {
			b.Fatal(err)
		}
		inStop += time.Since(began)
	}
	b.ReportMetric(float64(inStop.Microseconds())/float64(b.N), "µs/Stop")
}
