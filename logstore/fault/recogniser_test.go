package fault_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pmcp/logstore/fault"
	"pmcp/logstore/line"
)

// withoutLines returns a fault without its line numbers and stream, which depend on what else the
// run prints.
func withoutLines(f fault.Fault) fault.Fault {
	f.FirstLine, f.LastLine, f.Stream = 0, 0, 0
	return f
}

// checkSameContent reports differences between two lists of faults, regardless of their order.
func checkSameContent(t *testing.T, name string, got, want []fault.Fault) {
	t.Helper()
	rest := append([]fault.Fault(nil), want...)
next:
	for _, g := range got {
		for i, w := range rest {
			if reflect.DeepEqual(withoutLines(g), withoutLines(w)) {
				rest = append(rest[:i], rest[i+1:]...)
				continue next
			}
		}
		t.Errorf("%s: got %v, want no such fault", name, asExpected(g))
	}
	for _, w := range rest {
		t.Errorf("%s: got no such fault, want %v", name, asExpected(w))
	}
}

// onStream returns the recording with a prefix before every line and all lines on one stream.
func (r recording) onStream(stream uint8, prefix string) recording {
	one := recording{name: r.name}
	for _, l := range r.lines {
		one.lines = append(one.lines, recordedLine{stream: stream, level: l.level, text: append([]byte(prefix), l.text...)})
	}
	return one
}

// alternate feeds the lines of two recordings in turn and returns the faults.
func alternate(a, b recording) (list []fault.Fault) {
	rec := fault.New(func(f fault.Fault) { list = append(list, f) })
	n := int64(0)
	feed := func(r recording, i int) {
		if i < len(r.lines) {
			n++
			rec.Line(n, r.lines[i].stream, r.lines[i].level, r.lines[i].text)
		}
	}
	for i := range max(len(a.lines), len(b.lines)) {
		feed(a, i)
		feed(b, i)
	}
	rec.End(0, "")
	return list
}

// TestStreamsDoNotMix interleaves each recording on standard output with another recording on
// standard error, line by line, and checks that neither changes what is recognised in the other.
// Recordings of test runners are left out, because a runner announces some facts once for all its
// tests.
func TestStreamsDoNotMix(t *testing.T) {
	checkPairs(t, func(r recording) recording { return r.onStream(0, "") }, func(r recording) recording { return r.onStream(1, "") })
}

// TestPrefixedProgramsDoNotMix interleaves the recordings of two programs on one stream, with a
// prefix before each line as tools print it, and checks that neither changes what is recognised in
// the other.
func TestPrefixedProgramsDoNotMix(t *testing.T) {
	for _, p := range [][2]string{{"web-1  | ", "api-1  | "}, {"[web] ", "[api] "}} {
		checkPairs(t, func(r recording) recording { return r.onStream(1, p[0]) }, func(r recording) recording { return r.onStream(1, p[1]) })
	}
}

func checkPairs(t *testing.T, left, right func(recording) recording) {
	t.Helper()
	var list []recording
	for _, r := range recordings(t, "corpus") {
		if !isRunnerOutput(r.name) {
			list = append(list, r)
		}
	}
	for i, r := range list {
		a, b := left(r), right(list[(i*7+3)%len(list)])
		checkSameContent(t, a.name+" with "+b.name, alternate(a, b), append(a.faults(), b.faults()...))
	}
}

func isRunnerOutput(name string) bool {
	for _, w := range []string{"test", "jest", "mocha", "compose", "concurrently", "make", "eslint", "npm"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// TestLanguagesOnOneStreamDoNotMix interleaves stacks of different languages on one stream without
// prefixes, and checks that no fault mixes lines of two stacks. (A Node stack and a Python stack
// cannot always be separated: both end in "TypeError: message".)
func TestLanguagesOnOneStreamDoNotMix(t *testing.T) {
	byName := map[string]recording{}
	for _, r := range recordings(t, "corpus") {
		byName[r.name] = r
	}
	for _, pair := range [][2]string{{"python-traceback", "java-exception"}, {"go-panic-nil", "python-traceback"}, {"go-panic-nil", "java-exception"}, {"asan-leak", "java-exception"}, {"rust-panic", "java-exception"}} {
		a := byName[pair[0]].onStream(1, "")
		b := byName[pair[1]].onStream(1, "")
		got := alternate(a, b)
		if len(got) != 2 {
			t.Errorf("%v: got %d faults, want 2: %v", pair, len(got), got)
			continue
		}
		for _, f := range got {
			checkNotMixed(t, pair, f, a, b)
		}
	}
}

func checkNotMixed(t *testing.T, pair [2]string, f fault.Fault, a, b recording) {
	t.Helper()
	from := func(r recording) (n int) {
		for _, s := range f.Stack {
			for _, l := range r.lines {
				if strings.TrimRight(string(l.text), " ") == s {
					n++
					break
				}
			}
		}
		return n
	}
	if x, y := from(a), from(b); x > 0 && y > 0 && x+y > len(f.Stack)-1 && x != len(f.Stack) && y != len(f.Stack) {
		t.Errorf("%v: got a stack of %s with lines of both programs, want lines of one: %s", pair, f.Type, strings.Join(f.Stack, "\n"))
	}
}

// TestIdleBetweenErrorsChangesNothing checks that calls of Idle outside of errors do not change the
// recognised faults. The test does not call Idle before an indented line, because no program pauses
// there.
func TestIdleBetweenErrorsChangesNothing(t *testing.T) {
	for _, r := range recordings(t, "corpus") {
		want := r.faults()
		var got []fault.Fault
		rec := fault.New(func(f fault.Fault) { got = append(got, f) })
		for i, l := range r.lines {
			n := int64(i + 1)
			rec.Line(n, l.stream, l.level, l.text)
			if !insideFault(want, n) && !(i+1 < len(r.lines) && strings.HasPrefix(string(r.lines[i+1].text), " ")) {
				rec.Idle()
				rec.Idle()
			}
		}
		rec.End(r.exit, r.signal)
		checkSameContent(t, r.name, got, want)
	}
}

func insideFault(list []fault.Fault, n int64) bool {
	for _, f := range list {
		if n >= f.FirstLine && n < f.LastLine {
			return true
		}
	}
	return false
}

// TestIdleInsideErrorStillFindsFault calls Idle after every line of a failed run and checks that at
// least one fault is still recognised.
func TestIdleInsideErrorStillFindsFault(t *testing.T) {
	for _, r := range recordings(t, "corpus") {
		if r.exit == 0 && r.signal == "" {
			continue
		}
		n := 0
		rec := fault.New(func(fault.Fault) { n++ })
		for i, l := range r.lines {
			rec.Line(int64(i+1), l.stream, l.level, l.text)
			rec.Idle()
		}
		rec.End(r.exit, r.signal)
		if len(r.faults()) > 0 && n == 0 {
			t.Errorf("%s: got no fault, want at least one", r.name)
		}
	}
}

// TestIdleEmitsOpenError checks that Idle emits an error whose lines have all been read, before the
// end of the run.
func TestIdleEmitsOpenError(t *testing.T) {
	var got []fault.Fault
	rec := fault.New(func(f fault.Fault) { got = append(got, f) })
	for i, s := range []string{"TypeError: x is not a function", "    at run (/home/dev/app.js:3:9)", "    at main (/home/dev/app.js:9:1)"} {
		rec.Line(int64(i+1), 1, 5, []byte(s))
	}
	rec.Idle()
	if len(got) != 1 || got[0].File != "/home/dev/app.js" || got[0].Line != 3 || len(got[0].Stack) != 2 || got[0].Stream != 1 {
		t.Fatalf("got %+v, want one fault at /home/dev/app.js:3 with 2 lines of stack", got)
	}
	rec.End(1, "")
	if len(got) != 1 {
		t.Fatalf("got %+v from End, want none: the error explains the exit", got[1:])
	}
}

// TestEndEmitsFaultForBadExit checks which fault End emits for each exit code and signal.
func TestEndEmitsFaultForBadExit(t *testing.T) {
	for _, c := range []struct {
		name   string
		lines  []string
		exit   int
		signal string
		want   []string // category, type
	}{
		{"clean", nil, 0, "", nil},
		{"silent", nil, 3, "", []string{"crash exit code 3"}},
		{"segv", []string{"ready"}, 0, "SIGSEGV", []string{"crash SIGSEGV"}},
		{"segv by shell", []string{"ready"}, 139, "", []string{"crash SIGSEGV"}},
		{"asked", []string{"ready"}, 0, "SIGTERM", nil},
		{"asked by shell", []string{"ready"}, 143, "", nil},
		{"reason", []string{"cannot open /etc/app.conf: permission denied by policy"}, 2, "", []string{"permission exit code 2"}},
		{"explained", []string{"panic: boom", "", "goroutine 1 [running]:", "main.main()", "\t/home/dev/main.go:3 +0x1"}, 2, "", []string{"crash panic"}},
		{"an assertion does not explain a kill", []string{"ERROR: cannot refresh"}, 0, "SIGKILL", []string{"other ", "crash SIGKILL"}},
	} {
		var got []string
		rec := fault.New(func(f fault.Fault) { got = append(got, f.Category+" "+f.Type) })
		for i, s := range c.lines {
			level := uint8(0)
			if strings.HasPrefix(s, "ERROR") {
				level = 5
			}
			rec.Line(int64(i+1), 1, level, []byte(s))
		}
		rec.End(c.exit, c.signal)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestFaultsAreBounded feeds a Recogniser stacks, messages and lines far beyond every limit, and
// checks that the faults stay within the limits.
func TestFaultsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 50_000)
	var got []fault.Fault
	rec := fault.New(func(f fault.Fault) { got = append(got, f) })
	n := int64(0)
	line := func(s string) {
		n++
		rec.Line(n, 1, 5, []byte(s))
	}
	line("TypeError: " + long)
	for i := range 5000 {
		line(fmt.Sprintf("    at f%d (/home/dev/app.js:%d:1) %s", i, i, long[:1000]))
	}
	for range 100 {
		line("Traceback (most recent call last):")
	}
	for range 2000 {
		line(`  File "/home/dev/x.py", line 3, in f`)
		line("    " + long)
	}
	line("ValueError: " + long)
	line("--- FAIL: TestX (0.00s)")
	for range 2000 {
		line("    x_test.go:3: " + long)
	}
	rec.End(1, "")
	if len(got) < 3 {
		t.Fatalf("got %d faults, want at least 3", len(got))
	}
	for _, f := range got {
		checkBounds(t, f)
	}
}

func checkBounds(t testing.TB, f fault.Fault) {
	t.Helper()
	if len(f.Stack) > fault.MaxStack || len(f.Message) > fault.MaxMessage || len(f.Type) > 512 || len(f.File) > 512 {
		t.Fatalf("got stack %d, message %d, type %d, file %d, want at most %d, %d, 512, 512", len(f.Stack), len(f.Message), len(f.Type), len(f.File), fault.MaxStack, fault.MaxMessage)
	}
	for _, s := range f.Stack {
		if len(s) > fault.MaxStackLine {
			t.Fatalf("got a stack line of %d bytes, want at most %d", len(s), fault.MaxStackLine)
		}
	}
	if f.FirstLine > f.LastLine || len(f.Fingerprint) != 32 || f.Message == "" && f.Type == "" || f.Line < 0 || f.Column < 0 {
		t.Fatalf("got malformed fault %+v", f)
	}
	known := false
	for _, c := range fault.Categories() {
		known = known || c == f.Category
	}
	if !known {
		t.Fatalf("got category %q, want one of %q", f.Category, fault.Categories())
	}
}

// TestProtocolMessagesAreIgnored checks that the Recogniser ignores the protocol messages of an MCP
// server.
func TestProtocolMessagesAreIgnored(t *testing.T) {
	rec := fault.New(func(f fault.Fault) { t.Errorf("got %+v, want no fault", f) })
	rec.Line(1, 2, 5, []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"TypeError: x"}}`))
	rec.End(0, "")
}

// TestOrdinaryLinesDoNotAllocate checks that the Recogniser allocates no memory for an ordinary
// line, so that the line stays cheap.
func TestOrdinaryLinesDoNotAllocate(t *testing.T) {
	rec := fault.New(func(fault.Fault) {})
	text := []byte(`127.0.0.1 - - [05/Jan/2026:10:00:00 +0000] "GET /api/items/42 HTTP/1.1" 200 512 "-" "Mozilla/5.0 (X11; Linux x86_64)"`)
	n := int64(0)
	if a := testing.AllocsPerRun(1000, func() { n++; rec.Line(n, 0, 0, text) }); a > 0 {
		t.Errorf("got %v allocations a line, want 0", a)
	}
}

// TestSignalOfStopIsNoFault checks that what a run prints about the signal of its stop is not a fault,
// that the same lines before the stop are one, and that other errors during the stop are faults.
func TestSignalOfStopIsNoFault(t *testing.T) {
	for _, text := range []string{
		"error: exit status 1: signal: interrupt",
		"Traceback (most recent call last):\n  File \"/app/x.py\", line 4, in <module>\n    time.sleep(9)\nKeyboardInterrupt",
		"Traceback (most recent call last):\n  File \"/app/x.py\", line 4, in main\n    await f()\nasyncio.exceptions.CancelledError\n\nDuring handling of the above exception, another exception occurred:\n\n" +
			"Traceback (most recent call last):\n  File \"/app/x.py\", line 9, in <module>\n    run()\nKeyboardInterrupt",
		"make: *** [Makefile:2: run] Error 130",
		"error: script \"dev\" exited with code 143",
		"app.rb:1:in 'sleep': Interrupt (Interrupt)",
		"error: command was killed with SIGTERM",
	} {
		feed := func(stopFirst bool) (list []fault.Fault) {
			rec := fault.New(func(f fault.Fault) { list = append(list, f) })
			rec.Line(1, 1, 0, []byte("up"))
			if stopFirst {
				rec.Stopping()
			}
			lines := append(strings.Split(text, "\n"), "", "TypeError: no price", "    at f (/app/x.js:3:4)")
			for i, l := range lines {
				rec.Line(int64(i+2), 1, uint8(line.GuessLevel([]byte(l), true)), []byte(l))
			}
			rec.End(0, "")
			return list
		}
		if got := feed(false); len(got) != 2 {
			t.Errorf("%q without a stop: got %d faults, want 2", text, len(got))
		}
		if got := feed(true); len(got) != 1 || got[0].Type != "TypeError" {
			t.Errorf("%q during a stop: got %v, want the TypeError only", text, got)
		}
	}
}
