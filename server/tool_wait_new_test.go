package server

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/args"
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
)

// A fakeWatcher is a test watcher: a run of the process tests that prints a verdict after
// each edit, in several writes with pauses.
type fakeWatcher struct {
	s     *surface
	run   int64
	rand  *rand.Rand
	edits chan int
}

func (w *fakeWatcher) print(format string, a ...any) {
	w.s.store.Capture(w.run, logstore.Stdout, time.Now(), fmt.Appendf(nil, format, a...))
}

// pause sleeps for less than most.
func (w *fakeWatcher) pause(most time.Duration) {
	time.Sleep(time.Duration(w.rand.Int64N(int64(most))))
}

// watch prints a verdict for each edit.
func (w *fakeWatcher) watch() {
	for edit := range w.edits {
		w.pause(2 * time.Second)
		for i := range w.rand.IntN(50) {
			w.print("ok %d of edit %d\n", i, edit)
			if w.rand.IntN(8) == 0 {
				w.pause(400 * time.Millisecond)
			}
		}
		last := []string{"# tests 50", fmt.Sprint("# fail ", edit), "# skipped 0", fmt.Sprint("# end ", edit)}
		for _, line := range last[w.rand.IntN(2):] {
			at := w.rand.IntN(len(line))
			w.print("%s", line[:at]) // a line may come in two writes
			w.pause(100 * time.Millisecond)
			w.print("%s\n", line[at:])
		}
	}
}

// TestWaitsAnswerWithWhatIsNew checks with 500 edits at random moments that a wait is never
// answered with a line of the edit before or with the silence after it, whatever other
// calls there are, also cancelled ones.
func TestWaitsAnswerWithWhatIsNew(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			s := hello(t)
			run, _, _ := s.store.NewRun(s.manager.Project(), "tests")
			s.saveOther(s.store, run, runInfo{State: "running", Owner: project.Owner{PID: 7}}, false)
			w := &fakeWatcher{s, run, rand.New(rand.NewPCG(seed, 1)), make(chan int)}
			var watching sync.WaitGroup
			watching.Go(w.watch)
			defer func() { close(w.edits); watching.Wait() }()
			own := rand.New(rand.NewPCG(seed, 2))
			for edit := range 100 {
				playEdit(t, w, own, edit)
				if t.Failed() {
					t.Fatalf("seed %d, edit %d", seed, edit)
				}
			}
		})
	}
}

// playEdit makes one edit and waits for its verdict.
func playEdit(t *testing.T, w *fakeWatcher, own *rand.Rand, edit int) {
	s, sleep := w.s, func() { time.Sleep(time.Duration(own.Int64N(int64(3 * time.Second)))) }
	wait := waitArguments("tests", "log", "pattern", "^# fail")
	if own.IntN(2) == 0 {
		wait = waitArguments("tests", "idle", "idle_ms", 500)
	}
	if own.IntN(2) == 0 {
		wait["lines"] = 8 + own.IntN(60)
	}
	begin := func(tool string, arguments map[string]any) string {
		return s.begin("tools/call", map[string]any{"name": tool, "arguments": arguments})
	}
	if own.IntN(2) == 0 {
		sleep() // between two edits
	}
	var id string
	early := own.IntN(2) == 0 // the wait begins before the edit
	if early {
		id = begin("wait_for_process", wait)
		sleep()
	}
	w.edits <- edit
	if !early {
		sleep()
		switch own.IntN(4) {
		case 0:
			cancelled := begin("wait_for_process", waitArguments("tests", "log", "pattern", "never"))
			time.Sleep(time.Duration(own.Int64N(int64(time.Second))))
			s.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, cancelled)
		case 1:
			s.do("tail_logs", map[string]any{"process": "tests", "stream": "mcp"})
			s.do("get_logs", map[string]any{"process": "tests", "after": "start", "limit": 5})
		case 2:
			s.do("search_logs", map[string]any{"query": fmt.Sprint("# end ", edit-1)})
			s.do("get_errors", map[string]any{"process": "tests"})
		}
		id = begin("wait_for_process", wait)
	}
	r := s.wait(id)
	data, _ := r.Result["structuredContent"].(map[string]any)
	lines := fmt.Sprint(data["lines"])
	if data["timed_out"] != nil || data["older"] != nil || !strings.Contains(lines, fmt.Sprintf("# end %d]", edit)) || strings.Contains(lines, fmt.Sprintf("edit %d ", edit-1)) {
		t.Errorf("%v: got %s, want the verdict of edit %d alone", wait, r.Text(), edit)
	}
	if want := fmt.Sprint("# fail ", edit); wait["until"] == "log" && data["match"] != want {
		t.Errorf("%v: got the match %v, want %s", wait, data["match"], want)
	}
	if own.IntN(4) == 0 {
		s.do("tail_logs", map[string]any{"process": "tests", "lines": 5})
	}
}

// print stores lines of a run of this session.
func (s *surface) print(run int64, lines ...string) {
	for _, l := range lines {
		s.store.Capture(run, logstore.Stdout, time.Now(), []byte(l+"\n"))
	}
}

// ownRun returns a run of the process tests, which a test prints to.
func (s *surface) ownRun() int64 {
	s.t.Helper()
	run, _, _ := s.store.NewRun(s.manager.Project(), "tests")
	s.saveOther(s.store, run, runInfo{State: "running", Owner: project.Owner{PID: 7}}, false)
	return run
}

// TestOlderMatchNeedsSilence checks that a line that was shown before is the answer to a
// wait only after 10 s of silence, and then is marked, with its time and that of the last
// output, and that the answer to a timeout says since when nothing has come.
func TestOlderMatchNeedsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hello(t)
		run := s.ownRun()
		s.print(run, "# fail 1", "# end")
		if data, text := s.waitFor("tests", "log", "pattern", "^# fail"); data["match"] != "# fail 1" || data["older"] != nil || !strings.Contains(text, "output since 00:00:00\n") {
			t.Errorf("got %s, want the new match", text)
		}
		time.Sleep(30 * time.Second)
		printed := time.Now()
		s.print(run, "compiling")
		if data, text := s.waitFor("tests", "log", "pattern", "^# fail", "timeout_ms", 8000); data["timed_out"] != true || data["match"] != nil || !strings.Contains(text, "timed out; nothing since 00:00:30, 8s ago\n") || !strings.Contains(text, "compiling") {
			t.Errorf("got %s, want a timeout and since when nothing has come", text)
		}
		began := time.Now()
		time.AfterFunc(5*time.Second, func() { s.print(run, "still compiling") })
		wait := waitArgs{Process: "tests", Until: "log", Pattern: "^# fail"}
		r, err := waitForProcess(t.Context(), s.server.ownCall(), wait) // longer than s waits for an answer
		stdiotest.NoErr(t, err)
		if took := time.Since(began); took < 15*time.Second || took > 16*time.Second || !r.Older || r.Match != "# fail 1" || r.MatchAt == "" || len(r.Lines) > 0 || r.NextCursor == "" ||
			!strings.Contains(textOf(r), "nothing new matches; the match is an older line of 00:00:00; nothing since 00:00:43, 10s ago\n") {
			t.Errorf("took %v, got %s; want the older match after 15 s", took, textOf(r))
		}
		if got, want := r.LastOutput, args.FormatTime(printed.Add(13*time.Second)); got != want {
			t.Errorf("got the last output at %v, want %v", got, want)
		}
		began = time.Now()
		wait.TimeoutMS = new(int)
		if r, err = waitForProcess(t.Context(), s.server.ownCall(), wait); err != nil || !r.TimedOut || !time.Now().Equal(began) {
			t.Errorf("timeout_ms 0: got %v, %s; want an answer at once", err, textOf(r))
		}
		go func() { s.print(run, "# fail 2") }()
		wait.TimeoutMS, wait.After = nil, afterShown
		if r, err = waitForProcess(t.Context(), s.server.ownCall(), wait); err != nil || r.Match != "# fail 2" || r.Older {
			t.Errorf("got %v, %s; want the new match", err, textOf(r))
		}
		s.print(run, "compiling again")
		if _, text := s.waitFor("tests", "log", "pattern", "^never", "timeout_ms", 0); !strings.Contains(text, "timed out; silent for less than 1s\n") {
			t.Errorf("got %s, want a timeout during output", text)
		}
	})
}

// TestLinesBeforePositionAreOlder checks that a line that an earlier answer left out, or
// that a search or a wait has shown, is an older match, and that what follows it is new.
func TestLinesBeforePositionAreOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hello(t)
		run := s.ownRun()
		for i := range 100 {
			s.print(run, fmt.Sprintf("line %02d", i))
		}
		s.waitFor("tests", "log", "pattern", "^line 99")
		began := time.Now()
		older := func(pattern, match string) {
			t.Helper()
			if data, text := s.waitFor("tests", "log", "pattern", pattern); data["match"] != match || data["older"] != true || data["lines"] != nil || time.Since(began) < 10*time.Second {
				t.Errorf("%s after %v: got %s, want the older %s", pattern, time.Since(began), text, match)
			}
			began = time.Now()
		}
		older("^line 5", "line 59")
		s.print(run, "passed", "failed", "end")
		s.do("search_logs", map[string]any{"query": "failed"})
		older("passed", "passed")
		older("failed", "failed")
		if data, text := s.waitFor("tests", "log", "pattern", "^end"); data["match"] != "end" || data["older"] != nil {
			t.Errorf("after the hit: got %s, want the new line", text)
		}
		s.store.Capture(run, logstore.Messages, time.Now(), []byte("-> hello\n"))
		if data, text := s.waitFor("tests", "log", "pattern", "hello"); data["match"] != "-> hello" || data["older"] != nil {
			t.Errorf("a message: got %s, want it", text)
		}
		older("hello", "-> hello")
	})
}

// TestTimeoutShowsWhatIsNew checks that the answer to a timeout has the new errors, the last
// three lines, or as many as the call asks for, and since when nothing has come.
func TestTimeoutShowsWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hello(t)
		run := s.ownRun()
		check := func(lines int, more ...any) string {
			t.Helper()
			data, text := s.waitFor("tests", "exit", append(more, "timeout_ms", 20_000)...)
			if got, _ := data["lines"].([]any); data["timed_out"] != true || len(got) != lines {
				t.Errorf("%v: got %s, want a timeout and %d lines", more, text, lines)
			}
			return text
		}
		s.print(run, "Error: out of luck", "one", "two", "three", "four")
		if text := check(3); !strings.Contains(text, "timed out; nothing since 00:00:00, 20s ago\n") || !strings.Contains(text, "out of luck") || strings.Contains(text, "| one") || !strings.Contains(text, "four") {
			t.Errorf("got %s, want the error, the last three lines and the time of the last", text)
		}
		if text := check(0); !strings.Contains(text, "nothing since 00:00:00, 40s ago\n") || strings.Contains(text, "out of luck") {
			t.Errorf("nothing new: got %s, want the time alone", text)
		}
		s.print(run, "five", "six", "seven", "eight", "nine")
		check(4, "lines", 4)
	})
	s := hello(t)
	s.script("job", "seq 30; exec sleep 100")
	s.waitFor("job", "log", "pattern", "^30$")
	data := s.script("job", "seq 30; exec sleep 100", "wait", "exit", "timeout_ms", 1)
	if got, _ := data["lines"].([]any); data["timed_out"] != true || len(got) != 3 || data["last_output"] == nil {
		t.Errorf("start_process: got %v, want a timeout, 3 lines and the time of the last output", data)
	}
}

// TestTailAfterShown checks that tail_logs with after: "shown" reads what is new, and with
// wait_ms takes in what follows the first line.
func TestTailAfterShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hello(t)
		run := s.ownRun()
		tail := func(more ...any) string {
			t.Helper()
			arguments := map[string]any{"after": afterShown} // of all processes: this run has no process that could print
			for i := 0; i < len(more); i += 2 {
				arguments[more[i].(string)] = more[i+1]
			}
			data, _ := s.do("tail_logs", arguments)
			return fmt.Sprint(data["lines"])
		}
		s.print(run, "one")
		if got := tail("stream", "err"); strings.Contains(got, "one") {
			t.Errorf("a tail of the other stream: got %s, want nothing", got)
		}
		if got := tail("stream", "out"); !strings.Contains(got, "one") {
			t.Errorf("a filtered tail: got %s, want what was not shown", got)
		}
		if got := tail(); strings.Contains(got, "one") {
			t.Errorf("again: got %s, want nothing", got)
		}
		go func() {
			for _, l := range []string{"two", "three", "four"} {
				time.Sleep(100 * time.Millisecond)
				s.print(run, l)
			}
		}()
		if got := tail("wait_ms", 5000); !strings.Contains(got, "two") || !strings.Contains(got, "four") || strings.Contains(got, "one") {
			t.Errorf("with wait_ms: got %s, want two to four", got)
		}
		s.saveOther(s.store, run, runInfo{State: "exited"}, true)
		run = s.ownRun()
		s.print(run, "of the next run")
		if got := tail(); !strings.Contains(got, "of the next run") || strings.Contains(got, "four") {
			t.Errorf("the next run: got %s, want its line", got)
		}
	})
}

// TestPatternThatNoLineMatchesIsRefused checks that a wait refuses a pattern that cannot
// match a line, and says why.
func TestPatternThatNoLineMatchesIsRefused(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.ownRun()
	for pattern, want := range map[string]string{
		`(`:                          "missing closing )",
		`a\nb`:                       "a line has no line break",
		`(x|y\r)z\n+`:                "a line has no line break",
		`\x1b\[32mok`:                "escape sequences are removed",
		`[^\x{0}-\x{10FFFF}]`:        "no line matches",
		strings.Repeat("a", 5000):    "longer than",
		`a\n?(b|\n)[\n ]\t(\n){0,2}`: "",
	} {
		r := s.ask("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("tests", "log", "pattern", pattern, "timeout_ms", 0)})
		if (r.Result["isError"] == true) != (want != "") || !strings.Contains(r.Text(), want) {
			t.Errorf("%.20s: got %s, want %q", pattern, r.Text(), want)
		}
	}
	if r := s.ask("tools/call", map[string]any{"name": "wait_for_process", "arguments": waitArguments("tests", "exit", "after", "bogus")}); r.Result["isError"] != true || !strings.Contains(r.Text(), "not a valid cursor") {
		t.Errorf("a bad cursor: got %s, want a refusal at once", r.Raw)
	}
}

// TestCancelledRestartLeavesProcessRunning checks that a restart that is cancelled while the
// old run is being stopped still starts the new one.
func TestCancelledRestartLeavesProcessRunning(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("slow", `trap 'echo stopping; cat go; exit' TERM; mkfifo go 2>/dev/null; echo up; while :; do sleep 0.01; done`, "ready", map[string]any{"log": "^up"}, "stop", map[string]any{"timeout_ms": 60_000})
	id := s.begin("tools/call", map[string]any{"name": "restart_process", "arguments": map[string]any{"process": "slow"}})
	s.waitFor("slow", "log", "pattern", "stopping")
	s.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
	s.do("list_processes", nil) // the cancellation has been read
	stdiotest.NoErr(t, os.WriteFile(filepath.Join(s.manager.Project(), "go"), nil, 0))
	st, err := s.manager.Await(t.Context(), "slow", func(st process.Status) bool { return st.Run == 2 && st.State == process.Running })
	stdiotest.NoErr(t, err)
	s.do("kill_process", map[string]any{"process": "slow"})
	if st.State != process.Running {
		t.Errorf("got %v, want run 2 running", st.State)
	}
}
