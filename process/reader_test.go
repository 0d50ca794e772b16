package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func shell(name, script string) Spec {
	return Spec{Name: name, Command: "sh", Args: []string{"-c", script}}
}

// TestOutputIsCompleteWhenEnded: whatever a child does with its streams, all it
// wrote has been handed on when its run counts as ended.
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
				t.Errorf("survivors %v", st.Survivors)
			}
		})
	}
}

func TestChattyDescendantDoesNotHideTheEnd(t *testing.T) {
	m, j := newTestManager(t, Options{})
	start(t, m, shell("a", "yes & echo last >&2; exit 3"))
	st := awaitEnd(t, m, "a")
	if st.Exit.Code != 3 || j.text(st.RunID, Stderr) != "last\n" {
		t.Errorf("exit %+v, stderr %q", st.Exit, j.text(st.RunID, Stderr))
	}
	if len(st.Survivors) != 1 {
		t.Errorf("survivors %v, want yes", st.Survivors)
	}
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := j.await(testContext(t), func() bool { return j.ended[st.RunID] }); err != nil {
		t.Error("the capture goes on after Stop")
	}
}

// A stream that never is silent is not waited for: no silence is long enough
// for this reader.
func TestDrainOfAStreamThatIsNeverSilent(t *testing.T) {
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
	others.Go(func() { drained <- r.drain(make([]byte, readSize)) })
	select {
	case ended := <-drained:
		if ended {
			t.Error("the stream counts as ended")
		}
	case <-testContext(t).Done():
		t.Error("the reader waits for silence")
	}
}

// What outlives the leader on its terminal never lets that be silent.
func TestChattyDescendantDoesNotHideTheEndOfATerminal(t *testing.T) {
	m, j := newTestManager(t, Options{})
	spec := shell("a", `trap "" HUP; (while :; do echo tick; sleep 0.01; done) & echo last; exit 3`)
	spec.PTY = true
	start(t, m, spec)
	st := awaitEnd(t, m, "a")
	if st.Exit.Code != 3 || !strings.Contains(j.text(st.RunID, Stdout), "last\r\n") {
		t.Errorf("exit %+v, output %q", st.Exit, j.text(st.RunID, Stdout))
	}
	if len(st.Survivors) == 0 {
		t.Error("no survivors, want the descendant")
	}
	if _, err := m.Stop(testContext(t), "a", StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := j.await(testContext(t), func() bool { return j.ended[st.RunID] }); err != nil {
		t.Error("the capture goes on after Stop")
	}
}

func TestDescendantIsReadOn(t *testing.T) {
	m, j := newTestManager(t, Options{})
	fifo := t.TempDir() + "/go"
	start(t, m, shell("a", "mkfifo "+fifo+"; (read x <"+fifo+"; echo later) & echo first"))
	st := awaitEnd(t, m, "a")
	if out := j.text(st.RunID, Stdout); out != "first\n" {
		t.Errorf("output %q when the leader had ended", out)
	}
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := j.awaitLine(testContext(t), st.RunID, func(s string) bool { return s == "later" }); err != nil {
		t.Errorf("what a descendant wrote later did not come: %q", j.text(st.RunID, Stdout))
	}
}

func TestPromptIsHandedOnAfterSilence(t *testing.T) {
	m, j := newTestManager(t, Options{})
	st := start(t, m, Spec{Name: "a", Command: "sh", Args: []string{"-c", "printf 'Name: '; read x; echo hello $x; read y"}, Stdin: true})
	if err := j.await(testContext(t), func() bool { return j.flush[st.RunID] == 1 }); err != nil {
		t.Fatal("no empty write after the prompt")
	}
	if out := j.text(st.RunID, Stdout); out != "Name: " {
		t.Errorf("output %q", out)
	}
	if n, err := m.Input(testContext(t), "a", []byte("you\n"), false); err != nil || n != 4 {
		t.Fatalf("Input = %d, %v", n, err)
	}
	if _, err := j.awaitLine(testContext(t), st.RunID, func(s string) bool { return s == "Name: hello you" }); err != nil {
		t.Fatal(err)
	}
	// A whole line is not followed by an empty write.
	time.AfterFunc(2*silence, func() { _, _ = m.Stop(testContext(t), "a", StopOptions{}) })
	awaitEnd(t, m, "a")
	if j.flush[st.RunID] != 1 {
		t.Errorf("%d empty writes, want 1", j.flush[st.RunID])
	}
}

// TestLateReaderSplitsNoLine: what came while the reader could not run is read
// before its line counts as unfinished.
func TestLateReaderSplitsNoLine(t *testing.T) {
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
	looks := 0 // at stop since half a line was read: before the deadline is set, before the read, after it
	r.follow(make([]byte, readSize), func() bool {
		if len(got) == 1 {
			looks++
		}
		if looks == 2 && len(got) == 1 {
			write("a line\n")
			if err := out.SetReadDeadline(time.Unix(1, 0)); err != nil { // as if the reader had not run since
				t.Error(err)
			}
		}
		return len(got) > 1
	})
	if len(got) != 2 || got[1] != "a line\n" {
		t.Errorf("read %q", got)
	}
}

// TestReadingWaitsForTheLastDeadline: between the two steps of leaderEnded
// nothing is read of what is left. The deadline, if it came in the middle of
// that, would make a full pipe an empty one.
func TestReadingWaitsForTheLastDeadline(t *testing.T) {
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
					t.Errorf("read %q", text)
				}
				reading.Wait()
			})
		})
	}
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

func TestMergedOutputKeepsItsOrder(t *testing.T) {
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
		t.Errorf("output %q", out)
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
		t.Errorf("child says: %s", out)
	}
}

func TestStrangerWhoHoldsThePipeDoesNotHoldTheStop(t *testing.T) {
	m, j := newTestManager(t, Options{})
	// The write end is open in the test itself: no process of the tree.
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

// TestUnfinishedLineIsToldWithTheEnd: where the stream ends without the end of a
// line, that is handed on before the end is known.
func TestUnfinishedLineIsToldWithTheEnd(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 10)
	r := newReader(in, false, func(_ time.Time, p []byte) { told <- string(p) })
	_, err = out.WriteString("last")
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	go r.run()
	<-r.drained
	if len(told) != 2 || <-told != "last" || <-told != "" {
		t.Error("the line was not told to be over")
	}
}
