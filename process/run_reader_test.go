package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func shell(name, script string) Spec {
	return Spec{Name: name, Command: "sh", Args: []string{"-c", script}}
}

// TestOutputIsCompleteWhenEnded checks that the Journal has received all output of a child when the
// child's run counts as ended, whatever the child does with its streams.
func TestOutputIsCompleteWhenEnded(t *testing.T) {
	var lines strings.Builder
	for i := range 200000 {
		fmt.Fprintln(&lines, i+1)
	}
	full := strings.Repeat("x", 64<<10)
	for _, c := range []struct {
		name, script string
		out, err     string
		survivor     bool
	}{
		{name: "nothing", script: "true"},
		{name: "both streams", script: "printf a; printf b >&2", out: "a", err: "b"},
		{name: "unterminated last line", script: "echo one; printf two", out: "one\ntwo"},
		{name: "pipe full", script: "head -c 65536 /dev/zero | tr '\\0' x", out: full},
		{name: "many lines", script: "seq 1 200000", out: lines.String()},
		{name: "closes its streams early", script: "echo a; exec >&- 2>&-; sleep 0.05", out: "a\n"},
		{name: "forks, closes and exits", script: "echo a; (exec >/dev/null 2>&1; sleep 1000) & exec >&-; exit 0", out: "a\n", survivor: true},
		{name: "silent descendant holds the pipe", script: "sleep 1000 & printf last", out: "last", survivor: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, j := newTestManager(t, Options{})
			start(t, m, shell("a", c.script))
			st := awaitEnd(t, m, "a")
			if out := j.text(st.RunID, Stdout); out != c.out {
				t.Errorf("stdout is %d bytes, want %d: %.60q", len(out), len(c.out), out)
			}
			if err := j.text(st.RunID, Stderr); err != c.err {
				t.Errorf("stderr %q, want %q", err, c.err)
			}
			if (len(st.Survivors) > 0) != c.survivor {
				t.Errorf("survivors %v, want some: %v", st.Survivors, c.survivor)
			}
		})
	}
}

func TestRunEndsDespiteChattyDescendant(t *testing.T) {
	m, j := newTestManager(t, Options{})
	start(t, m, shell("a", "yes & echo last >&2; exit 3"))
	st := awaitEnd(t, m, "a")
	if st.Exit.Code != 3 || j.text(st.RunID, Stderr) != "last\n" {
		t.Errorf("exit %+v, stderr %q; want code 3, last", st.Exit, j.text(st.RunID, Stderr))
	}
	if len(st.Survivors) != 1 {
		t.Errorf("survivors %v, want yes", st.Survivors)
	}
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := j.await(testContext(t), func() bool { return j.ended[st.RunID] }); err != nil {
		t.Error("the capture continues after Stop")
	}
}

// TestDrainEndsWithoutSilence checks that drain ends although a stream is never silent for long
// enough.
func TestDrainEndsWithoutSilence(t *testing.T) {
	t.Parallel()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		defer in.Close()
		for {
			if _, err := in.WriteString("tick\n"); err != nil {
				return
			}
			select {
			case <-time.After(time.Millisecond):
			case <-stop:
				return
			}
		}
	})
	defer others.Wait()
	defer close(stop)
	r := newReader(out, true, func(time.Time, []byte) {})
	r.quiet = time.Hour
	drained := make(chan bool, 1)
	others.Go(func() { drained <- r.drain() })
	select {
	case ended := <-drained:
		if ended {
			t.Error("drain = true, want false: the stream has not ended")
		}
	case <-testContext(t).Done():
		t.Error("drain still waits for silence")
	}
}

// TestRunEndsDespiteChattyDescendantOnTerminal checks that a run ends although a descendant
// outlives the leader and keeps printing on the run's terminal.
func TestRunEndsDespiteChattyDescendantOnTerminal(t *testing.T) {
	t.Parallel()
	m, j := newTestManager(t, Options{})
	spec := shell("a", `trap "" HUP; (while :; do echo tick; sleep 0.01; done) & echo last; exit 3`)
	spec.PTY = true
	start(t, m, spec)
	st := awaitEnd(t, m, "a")
	if st.Exit.Code != 3 || !strings.Contains(j.text(st.RunID, Stdout), "last\r\n") {
		t.Errorf("exit %+v, output %q; want code 3, last", st.Exit, j.text(st.RunID, Stdout))
	}
	if len(st.Survivors) == 0 {
		t.Error("no survivors, want the descendant")
	}
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := j.await(testContext(t), func() bool { return j.ended[st.RunID] }); err != nil {
		t.Error("the capture continues after Stop")
	}
}

func TestOutputOfDescendantIsCaptured(t *testing.T) {
	m, j := newTestManager(t, Options{})
	fifo := t.TempDir() + "/go"
	start(t, m, shell("a", "mkfifo "+fifo+"; (read x <"+fifo+"; echo later) & echo first"))
	st := awaitEnd(t, m, "a")
	if out := j.text(st.RunID, Stdout); out != "first\n" {
		t.Errorf("output %q when the leader had exited, want first", out)
	}
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := j.awaitLine(testContext(t), st.RunID, func(s string) bool { return s == "later" }); err != nil {
		t.Errorf("the later output of a descendant is missing: %q", j.text(st.RunID, Stdout))
	}
}

func TestPromptIsFlushedAfterSilence(t *testing.T) {
	t.Parallel()
	m, j := newTestManager(t, Options{})
	st := start(t, m, Spec{Name: "a", Command: "sh", Args: []string{"-c", "printf 'Name: '; read x; echo hello $x; read y"}, Stdin: true})
	if err := j.await(testContext(t), func() bool { return j.flush[st.RunID] == 1 }); err != nil {
		t.Fatal("no flush after the prompt")
	}
	if out := j.text(st.RunID, Stdout); out != "Name: " {
		t.Errorf("output %q, want the prompt", out)
	}
	if n, err := m.Input(testContext(t), "a", []byte("you\n"), false); err != nil || n != 4 {
		t.Fatalf("Input = %d, %v; want 4", n, err)
	}
	if _, err := j.awaitLine(testContext(t), st.RunID, func(s string) bool { return s == "Name: hello you" }); err != nil {
		t.Fatal(err)
	}
	// No flush follows a complete line.
	time.AfterFunc(2*flushDelay, func() { _, _ = m.Stop(testContext(t), "a", StopOptions{}) })
	awaitEnd(t, m, "a")
	if j.flush[st.RunID] != 1 {
		t.Errorf("%d flushes, want 1", j.flush[st.RunID])
	}
}

// TestLateReaderKeepsLineWhole checks that a reader that could not run for a while reads what has
// arrived before the reader treats the line as unfinished.
func TestLateReaderKeepsLineWhole(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	var got []string
	r := newReader(out, false, func(_ time.Time, p []byte) { got = append(got, string(p)) })
	write := func(text string) {
		if _, err := in.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("half ")
	calls := 0 // calls of stop since half a line was read: before the deadline is set, before the read, after the read
	r.follow(func() bool {
		if len(got) == 1 {
			calls++
		}
		if calls == 2 && len(got) == 1 {
			write("a line\n")
			if err := out.SetReadDeadline(time.Unix(1, 0)); err != nil { // as if the reader had not run since
				t.Error(err)
			}
		}
		return len(got) > 1
	})
	if len(got) != 2 || got[1] != "a line\n" {
		t.Errorf("read %q, want the second line whole", got)
	}
}

// TestReadingWaitsForLastDeadline checks that the rest of the output is not read between the two
// steps of leaderEnded. If the deadline came in the middle of the read, a full pipe would look
// empty.
func TestReadingWaitsForLastDeadline(t *testing.T) {
	for name, read := range map[string]func(*reader, chan<- string){
		"output": func(r *reader, got chan<- string) {
			r.sink = func(_ time.Time, p []byte) { got <- string(p) }
			r.run()
		},
		"messages": func(r *reader, got chan<- string) {
			all, err := io.ReadAll(&messages{reader: r})
			got <- fmt.Sprint(string(all), err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, in, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				if _, err := in.WriteString("last\n"); err != nil {
					t.Fatal(err)
				}
				_ = in.Close()
				r := newReader(out, false, nil)
				r.leaderGone.Store(true)
				got := make(chan string, 2)
				var reading sync.WaitGroup
				reading.Go(func() { read(r, got) })
				synctest.Wait()
				if len(got) > 0 {
					t.Fatalf("read before the second step: %q", <-got)
				}
				r.leaderEnded()
				if text := <-got; !strings.HasPrefix(text, "last\n") {
					t.Errorf("read %q, want last", text)
				}
				reading.Wait()
			})
		})
	}
}

// TestSilentStreamsHoldNoBuffers checks that a stream on which nothing arrives holds no read buffer.
func TestSilentStreamsHoldNoBuffers(t *testing.T) {
	const streams = 200
	var readers sync.WaitGroup
	var ins []*os.File
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // the first one keeps what is pooled
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for range streams {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
		lines := make(chan bool, 1)
		r := newReader(out, false, func(time.Time, []byte) { lines <- true })
		close(r.leader)
		readers.Go(r.run)
		if _, err := in.WriteString("ready\n"); err != nil {
			t.Fatal(err)
		}
		<-lines
	}
	if grown := heap() - before; grown > streams*readSize/2 {
		t.Errorf("%d silent streams hold %d bytes, want less than half of their %d bytes of buffers", streams, grown, streams*readSize)
	}
	for _, in := range ins {
		_ = in.Close()
	}
	readers.Wait()
}

func TestSlowJournalLosesNothing(t *testing.T) {
	m, j := newTestManager(t, Options{})
	release := make(chan struct{})
	j.slow = func() { <-release }
	start(t, m, shell("a", "head -c 1000000 /dev/zero; echo end"))
	close(release)
	st := awaitEnd(t, m, "a")
	if out := j.text(st.RunID, Stdout); len(out) != 1000004 {
		t.Errorf("%d bytes, want 1000004", len(out))
	}
}

func TestMergedOutputKeepsOrder(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := shell("a", "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done")
	spec.MergeOutput = true
	start(t, m, spec)
	st := awaitEnd(t, m, "a")
	var want strings.Builder
	for i := range 9 {
		fmt.Fprintf(&want, "o%d\ne%d\n", i+1, i+1)
	}
	if out := j.text(st.RunID, Stdout); out != want.String() || j.text(st.RunID, Stderr) != "" {
		t.Errorf("output %q, want %q", out, want.String())
	}
}

func TestChildSeesBlockingStreams(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := helper("a", "flags")
	spec.Stdin = true
	start(t, m, spec)
	st := awaitEnd(t, m, "a")
	out := j.text(st.RunID, Stdout)
	if strings.Contains(out, "nonblocking true") || strings.Count(out, "nonblocking false") != 3 || !strings.Contains(out, "group true") {
		t.Errorf("child reports %q, want three blocking streams and its own group", out)
	}
}

func TestStopDoesNotWaitForForeignPipeHolder(t *testing.T) {
	t.Parallel()
	m, j := newTestManager(t, Options{})
	// The test itself holds the write end of the pipe, and is not a process of the run's tree.
	st := start(t, m, helper("a", "block"))
	pids, err := j.pids(testContext(t), st.RunID, 1)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pids[0]), os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("cannot hold the child's pipe: %v", err)
	}
	defer func() { _ = held.Close() }()
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if !j.ended[st.RunID] {
		t.Error("capture not ended when Stop returned")
	}
}

// TestUnfinishedLineIsFlushedAtEnd checks that a line without a newline is flushed before a reader
// can see the end of the stream.
func TestUnfinishedLineIsFlushedAtEnd(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	r := newReader(in, false, func(_ time.Time, p []byte) { got <- string(p) })
	_, err = out.WriteString("last")
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	go r.run()
	<-r.drained
	if len(got) != 2 || <-got != "last" || <-got != "" {
		t.Error("the sink did not receive the line and a flush before the end")
	}
}
