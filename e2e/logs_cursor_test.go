package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manyLines are fewer than may wait for a storage that stalls, because further ones are
// dropped.
const manyLines = 80_000 / shrink

// TestCursorReadsEveryLineOnce reads all output of a process page by page, in this session
// and in the next, and checks that the lines are in order, none missing and none twice.
func TestCursorReadsEveryLineOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(t)
	begin := time.Now()
	c.ok(t, "start_process", own(t, "flood", "flood", fmt.Sprint(manyLines)))
	c.ok(t, "wait_for_process", args{"process": "flood", "until": "exit"}).want(t, args{"state": "exited", "exit_code": 0})
	captured := time.Since(begin)
	begin = time.Now()
	if lines := c.wholeLog(t, "flood"); !isFlood(lines, manyLines) {
		t.Errorf("got %d lines, want all %d in order", len(lines), manyLines)
	}
	t.Logf("%d lines captured in %v, read in %v", manyLines, captured, time.Since(begin))
	if log, _ := c.info(t, "flood").Data["log"].(map[string]any); fmt.Sprint(log["lines"]) != fmt.Sprint(float64(manyLines)) {
		t.Errorf("got log %v, want %d lines", log, manyLines)
	}
	c.closeInput(t)
	c.exit(t)
	if lines := w.open(t).wholeLog(t, "flood"); !isFlood(lines, manyLines) {
		t.Errorf("the next server: got %d lines, want all %d in order", len(lines), manyLines)
	}
}

// TestFollowReturnsLinesDuringFlood reads by cursor while a process prints, and checks
// that no call with wait_ms returns without lines.
func TestFollowReturnsLinesDuringFlood(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "flood", "flood", fmt.Sprint(manyLines)))
	var lines []string
	cursor, calls := "start", 0
	for len(lines) < manyLines {
		r := c.tool(t, "tail_logs", args{"process": "flood", "after": cursor, "wait_ms": longWait, "lines": 10_000, "max_bytes": 8 << 20})
		if calls++; r.Error || len(r.printed()) == 0 {
			t.Fatalf("after %d lines: %s", len(lines), r.Text)
		}
		lines = append(lines, r.printed()...)
		cursor = r.str("next_cursor")
	}
	if !isFlood(lines, manyLines) {
		t.Errorf("got %d lines, want all %d in order", len(lines), manyLines)
	}
	t.Logf("%d calls", calls)
}

// TestKillWhileAChildPrintsLeavesNoHole kills pmcp while a process prints, and checks that
// the stored lines have no hole. If only the launched process was killed, every line must
// be stored.
func TestKillWhileAChildPrintsLeavesNoHole(t *testing.T) {
	t.Parallel()
	// The script prints each line before it writes the line's number to the file, so every
	// number in the file was also printed.
	const script = `i=0; while :; do i=$((i+1)); echo "line $i"; echo $i >&3; done 3>"$WITNESS"`
	t.Run("the launched", func(t *testing.T) {
		t.Parallel()
		w, witness := killWhilePrinting(t, script, func(c *caller) { c.signal(t, syscall.SIGKILL) })
		got, written := w.countLines(t), lastNumber(t, witness)
		t.Logf("%d lines written, %d read", written, got)
		if got < written {
			t.Errorf("got %d lines, want at least the %d that the child has written", got, written)
		}
	})
	t.Run("the server", func(t *testing.T) {
		t.Parallel()
		w, witness := killWhilePrinting(t, script, func(c *caller) { check(t, syscall.Kill(c.serverPID(t), syscall.SIGKILL)) })
		got, written := w.countLines(t), lastNumber(t, witness)
		t.Logf("%d lines written, %d read", written, got)
		// Lines that were not committed are lost, and the log reports that. These are the
		// lines of about 100 ms, or of a longer time on a loaded machine, so this test can
		// only check that there is no hole.
		if got == 0 {
			t.Error("got no lines, want some")
		}
	})
}

// killWhilePrinting kills pmcp while the script prints, and returns the world and the
// file with the printed numbers.
func killWhilePrinting(t *testing.T, script string, kill func(*caller)) (w *world, witness string) {
	w = newWorld(t)
	c := w.open(t)
	witness = filepath.Join(w.home, "witness")
	c.ok(t, "start_process", sh("writer", script, args{"env": args{"WITNESS": witness}}))
	c.awaitLine(t, "writer", "^line 50000$")
	if !poll(answersWithin, func() bool {
		n, err := countIn(w.database, "SELECT (SELECT count(*) FROM chunk) + (SELECT count(*) FROM tail)")
		return err == nil && n > 0
	}) {
		t.Fatal("got no stored lines, want some")
	}
	kill(c)
	c.exit(t)
	if !c.outputEnds() {
		t.Errorf("the server's output has not ended after %v", endsWithin)
	}
	w.awaitEmpty(t)
	return w, witness
}

// countLines reads the log of the process "writer" through a new server and returns the
// number of lines. The lines must be numbered from 1 without a hole.
func (w *world) countLines(t *testing.T) int {
	t.Helper()
	c := w.open(t)
	lines, gaps := c.pages(t, "writer")
	if len(gaps) != 0 && (len(gaps) != 1 || gaps[0]["after_line"] != float64(len(lines))) {
		t.Errorf("got gaps %v, want none, or one after line %d", gaps, len(lines))
	}
	if lost := c.info(t, "writer").Data["state"] == "lost"; lost != (len(gaps) == 1) {
		t.Errorf("got lost %v and gaps %v, want a gap only if the run is lost", lost, gaps)
	}
	for i, line := range lines {
		if line != fmt.Sprintf("line %d", i+1) {
			t.Fatalf("got %q, want line %d", line, i+1)
		}
	}
	return len(lines)
}

func lastNumber(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	n, err := strconv.Atoi(all[len(all)-1])
	check(t, err)
	return n
}

// TestCursorsWorkInBothDirections reads a log page by page from the end to the beginning
// and forward again.
func TestCursorsWorkInBothDirections(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", own(t, "flood", "flood", "1000").with("wait", "exit"))
	r := c.ok(t, "get_logs", args{"process": "flood", "limit": 300}) // without a cursor, get_logs returns the end of the log
	var back []string
	for {
		back = append(r.printed(), back...)
		if r.Data["more"] != true {
			break
		}
		r = c.ok(t, "get_logs", args{"process": "flood", "limit": 300, "before": r.str("prev_cursor")})
	}
	if !isFlood(back, 1000) {
		t.Errorf("backwards: got %d lines, want all 1000 in order", len(back))
	}
	for name, a := range map[string]args{
		"by bytes": {"max_bytes": 1000},
		"by lines": {"limit": 77},
	} {
		var lines []string
		for cursor, more := "start", true; more; {
			r := c.ok(t, "get_logs", a.with("process", "flood").with("after", cursor))
			if size := len(strings.Join(r.lines(), "\n")); name == "by bytes" && size > 1000 {
				t.Fatalf("got %d bytes of lines in one answer, want at most 1000", size)
			}
			lines = append(lines, r.printed()...)
			cursor, more = r.str("next_cursor"), r.Data["more"] == true
		}
		if !isFlood(lines, 1000) {
			t.Errorf("%s: got %d lines, want all 1000 in order", name, len(lines))
		}
	}
	c.refused(t, "get_logs", args{"process": "flood", "after": "nonsense"}, "cursor", "start")
	c.refused(t, "get_logs", args{"process": "flood", "after": "start", "before": r.str("prev_cursor")}, "after", "before")
	c.refused(t, "get_logs", args{"process": "flood", "run": 7}, "no run 7", "latest is 1")
	c.refused(t, "get_logs", args{"process": "flod"}, `did you mean flood?`)
	c.refused(t, "get_logs", args{"process": "flood", "since": "yesterday"}, "since", "10m")
}

// TestLogIsReadByStreamLevelAndRun checks that get_logs can select lines by stream, level,
// run and time.
func TestLogIsReadByStreamLevelAndRun(t *testing.T) {
	t.Parallel()
	c := begin(t)
	for run := 1; run <= 3; run++ {
		c.ok(t, "start_process", sh("job", fmt.Sprintf(`echo "out of run %d"; echo "ERROR: err of run %d" >&2`, run, run), args{"wait": "exit"})).want(t, args{"run": run})
	}
	for _, row := range []struct {
		a    args
		want string
	}{
		{args{}, "out of run 3|ERROR: err of run 3"},
		{args{"run": 1}, "out of run 1|ERROR: err of run 1"},
		{args{"run": -1}, "out of run 3|ERROR: err of run 3"},
		{args{"run": -3, "stream": "err"}, "ERROR: err of run 1"},
		{args{"after": "start", "stream": "out"}, "out of run 1|out of run 2|out of run 3"},
		{args{"after": "start", "level": "error"}, "ERROR: err of run 1|ERROR: err of run 2|ERROR: err of run 3"},
		{args{"until": "1h"}, ""},
		{args{"since": "1h", "stream": "out", "limit": 1}, "out of run 1"},
	} {
		r := c.ok(t, "get_logs", row.a.with("process", "job"))
		got := r.printed()
		if want := strings.FieldsFunc(row.want, func(c rune) bool { return c == '|' }); sorted(got) != sorted(want) {
			t.Errorf("%v: got %q, want %q", row.a, got, row.want)
		}
	}
	// In a call without a process, each line names its process.
	c.ok(t, "tail_logs", args{"lines": 5}).says(t, "job ", " out out of run 3")
}

// TestOutputOfAnyKindIsReadable checks how the log shows invalid UTF-8, colours, redraws,
// long lines, and a last line without a newline.
func TestOutputOfAnyKindIsReadable(t *testing.T) {
	t.Parallel()
	c := begin(t)
	c.ok(t, "start_process", sh("odd", `printf '\033[31mred\033[0m\n'; printf '10%%\r50%%\r100%%\n'; printf 'bad \377 byte\n'; head -c 100000 /dev/zero | tr '\0' x; echo; yes same | head -n 500; printf 'no end'`,
		args{"wait": "exit", "merge_output": true}))
	r := c.ok(t, "get_logs", args{"process": "odd", "limit": 1000})
	got := r.printed()
	for i, want := range []string{"red", "100%", "bad \ufffd byte", "xxx", "same (×500)", "no end"} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Fatalf("line %d: want %q, got:\n%.3000s", i+1, want, r.Text)
		}
	}
	if long := got[3]; len(long) > 2100 || !strings.Contains(long, " bytes] …xxx") {
		t.Errorf("the long line: got %d bytes, want at most 2100 and a mark: %.50s … %s", len(long), long, long[len(long)-30:])
	}
	whole := c.ok(t, "get_logs", args{"process": "odd", "limit": 1000, "max_line_bytes": 200_000, "max_bytes": 1 << 20}).printed()
	if len(whole) != len(got) || len(whole[3]) != 100_000 {
		t.Errorf("the long line: got %d bytes, want 100000", len(whole[3]))
	}
}

// sorted returns the lines, joined in an order that does not depend on which pipe was
// read first.
func sorted(lines []string) string {
	return strings.Join(slices.Sorted(slices.Values(lines)), "|")
}
