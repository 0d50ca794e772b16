package process

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"pmcp/process/proctab"
)

func TestLimitWatchReportsLastingExcess(t *testing.T) {
	limits := Limits{MemoryMB: 100, CPUPercent: 50}
	begin := time.Now()
	var w limitWatch
	for _, c := range []struct {
		second int
		mb     uint64
		cpu    float64
		want   string
	}{
		{0, 10, 10, ""},
		{1, 200, 10, ""}, // a single sample does not count
		{2, 10, 10, ""},
		{3, 200, 10, ""},
		{4, 200, 10, "memory 200 MB is over the limit of 100 MB"},
		{5, 100, 60, ""}, // usage at the limit is not over it; CPU over its limit begins here
		{34, 10, 60, ""},
		{35, 10, 70, "CPU 70 % of the machine is over the limit of 50 %"},
		{36, 10, 50, ""},
		{37, 10, 90, ""},
	} {
		got := w.observe(limits, Usage{At: begin.Add(time.Duration(c.second) * time.Second), MemoryBytes: c.mb << 20, CPUPercent: c.cpu * float64(runtime.NumCPU())})
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("second %d: %q, want %q", c.second, got, c.want)
		}
	}
	if got := (&limitWatch{}).observe(Limits{}, Usage{MemoryBytes: 1 << 60, CPUPercent: 100}); got != "" {
		t.Errorf("without limits: %q, want \"\"", got)
	}
}

// exceed runs a child that uses more memory than its limit, and returns once the sampler has seen
// the excess.
func exceed(t *testing.T, o Options, limits *Limits) (*Manager, Status) {
	t.Helper()
	m, _ := newTestManager(t, o)
	spec := helper("a", "spin", "64")
	spec.Limits = limits
	start(t, m, spec)
	return m, await(t, m, "a", "over its limit", func(st Status) bool { return st.LimitExceeded != "" })
}

func TestExceededLimitCausesAction(t *testing.T) {
	t.Run("warn", func(t *testing.T) {
		t.Parallel()
		_, st := exceed(t, Options{MaxMemoryMB: 32}, nil)
		if st.State != Running || !strings.Contains(st.LimitExceeded, "over the limit of 32 MB") {
			t.Errorf("%s: %q; want running, over the limit of 32 MB", st.State, st.LimitExceeded)
		}
	})
	t.Run("reconfigured", func(t *testing.T) {
		t.Parallel()
		m, st := exceed(t, Options{MaxMemoryMB: 32}, nil)
		st.Spec.Limits = &Limits{MemoryMB: 32} // the limit that the child exceeds
		if now, err := m.Reconfigure("a", st.Spec); err != nil || now.LimitExceeded != st.LimitExceeded {
			t.Errorf("the same limits: %q, %v; want %q", now.LimitExceeded, err, st.LimitExceeded)
		}
		st.Spec.Limits = &Limits{MemoryMB: 1 << 20}
		if now, err := m.Reconfigure("a", st.Spec); err != nil || now.LimitExceeded != "" {
			t.Errorf("higher limit: %q, %v; want \"\"", now.LimitExceeded, err)
		}
	})
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		m, _ := exceed(t, Options{}, &Limits{MemoryMB: 32, Action: LimitStop})
		st := awaitEnd(t, m, "a")
		if st.State != Stopped || st.Exit.By != ByLimit || !strings.Contains(st.LimitExceeded, "stopped") {
			t.Errorf("%s, ended by %s: %q; want stopped by limit", st.State, st.Exit.By, st.LimitExceeded)
		}
	})
	t.Run("restart", func(t *testing.T) {
		t.Parallel()
		m, _ := exceed(t, Options{LimitAction: LimitRestart}, &Limits{MemoryMB: 32})
		st := await(t, m, "a", "restarted", func(st Status) bool { return st.Run >= 2 })
		if st.Restarts != st.Run-1 {
			t.Errorf("run %d, %d restarts; want %d", st.Run, st.Restarts, st.Run-1)
		}
	})
	t.Run("restart when disabled", func(t *testing.T) {
		t.Parallel()
		_, st := exceed(t, Options{LimitAction: LimitRestart, NoAutoRestart: true}, &Limits{MemoryMB: 32})
		if st.State != Running {
			t.Errorf("%s, want only a warning", st.State)
		}
	})
}

func TestUsageIncludesWholeTree(t *testing.T) {
	t.Parallel()
	type sample struct {
		run       int64
		cpu       float64
		memory    uint64
		processes int
	}
	samples := make(chan sample, 100)
	m, j := newTestManager(t, Options{OnSample: func(run int64, _ time.Time, cpu float64, memory uint64, processes int) {
		select {
		case samples <- sample{run, cpu, memory, processes}:
		default:
		}
	}})
	st := start(t, m, helper("a", "spin", "64"))
	if _, err := j.pids(testContext(t), st.RunID, 1); err != nil {
		t.Fatal(err)
	}
	// Each sample has the share since the one before, which on a busy machine may be 0.
	var members []Member
	deadline := testContext(t)
	for busy := false; !busy; {
		select {
		case s := <-samples:
			if most := 100 * float64(runtime.NumCPU()); s.run != st.RunID || s.processes != 1 || s.cpu > most {
				t.Fatalf("sample %+v, want run %d, 1 process, at most %.0f %%", s, st.RunID, most)
			}
			var err error
			if members, err = m.Tree("a"); err != nil || len(members) != 1 {
				t.Fatalf("Tree = %+v, %v; want 1 process", members, err)
			}
			busy = s.cpu > 0 && s.memory >= 64<<20 && members[0].CPUPercent > 0
		case <-deadline.Done():
			t.Fatal("no sample shows the use of memory and of a processor")
		}
	}
	if members[0].PID != st.PID || !strings.Contains(members[0].Command, " 64") {
		t.Errorf("Tree = %+v, want pid %d", members, st.PID)
	}
	asked := time.Now()
	stats, err := m.Stats("a", time.Minute, 5)
	if err != nil || stats.Samples == 0 || stats.Peak.MemoryBytes < 64<<20 || stats.Peak.CPUPercent == 0 || len(stats.Series) == 0 || len(stats.Series) > 5 {
		t.Errorf("Stats = %+v, %v; want memory and CPU in at most 5 points", stats, err)
	}
	if now := stats.Now; now.At.Before(asked) || now.MemoryBytes < 64<<20 || now.Processes != 1 {
		t.Errorf("Now = %+v, want it measured after %v", now, asked)
	}
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if stats, err := m.Stats("a", time.Minute, 0); err != nil || stats.Samples == 0 || stats.Now != (Usage{}) || stats.Series != nil {
		t.Errorf("Stats after the end = %+v, %v; want samples, nothing now and no series", stats, err)
	}
}

// TestStatsMeasureBeforeFirstSample checks that the usage now needs no sample.
func TestStatsMeasureBeforeFirstSample(t *testing.T) {
	m := newMeter(nil)
	self, err := proctab.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if u := m.now(1, []proctab.Proc{self}, time.Now().Add(-time.Hour)); u.MemoryBytes == 0 || u.Processes != 1 {
		t.Errorf("got %+v, want the memory of one process", u)
	}
}

func TestSummarizeReturnsAverageAndPeak(t *testing.T) {
	begin := time.Now()
	var samples []Usage
	for i := range 10 {
		samples = append(samples, Usage{At: begin.Add(time.Duration(i) * time.Second), CPUPercent: float64(i), MemoryBytes: uint64(i) * 10, Processes: 2})
	}
	s := Summarize(samples, 4)
	if s.Samples != 10 || !s.From.Equal(begin) || s.Average.CPUPercent != 4.5 || s.Average.MemoryBytes != 45 || s.Peak.MemoryBytes != 90 || s.Average.Processes != 2 {
		t.Errorf("summary %+v, want 10 samples with average 4.5, 45, 2 and peak 90", s)
	}
	if len(s.Series) != 4 || s.Series[0].CPUPercent != 0.5 || s.Series[3].CPUPercent != 8 || !s.Series[3].At.Equal(samples[9].At) {
		t.Errorf("series %+v, want 4 points from 0.5 to 8", s.Series)
	}
	if s := Summarize(samples[:3], 20); len(s.Series) != 3 {
		t.Errorf("%d points of 3 samples, want 3", len(s.Series))
	}
	if s := Summarize(nil, 20); s.Samples != 0 || s.Series != nil {
		t.Errorf("summary of no samples: %+v, want zero", s)
	}
}
