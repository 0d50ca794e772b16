package fault_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pmcp/logstore/fault"
)

// content is a fault without its line numbers and stream, which depend on what else the run prints.
func content(f fault.Fault) fault.Fault {
	f.FirstLine, f.LastLine, f.Stream = 0, 0, 0
	return f
}

// sameContent reports a difference between two lists of faults, whatever their order.
func sameContent(t *testing.T, name string, got, want []fault.Fault) {
	t.Helper()
	rest := append([]fault.Fault(nil), want...)
next:
	for _, g := range got {
		for i, w := range rest {
			if reflect.DeepEqual(content(g), content(w)) {
				rest = append(rest[:i], rest[i+1:]...)
				continue next
			}
		}
		t.Errorf("%s: too much: %v", name, asExpected(g))
	}
	for _, w := range rest {
		t.Errorf("%s: missing: %v", name, asExpected(w))
	}
}

// ofOne gives the recording with all lines on one stream and behind a prefix.
func (r recording) ofOne(stream uint8, prefix string) recording {
	one := recording{name: r.name}
	for _, l := range r.lines {
		one.lines = append(one.lines, recordedLine{stream: stream, level: l.level, text: append([]byte(prefix), l.text...)})
	}
	return one
}

// alternate feeds the lines of two recordings in turn.
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

// TestTwoStreams interleaves each recording on standard output with another on standard error, line
// by line: neither may change what is recognised in the other. Recordings of the tests of one
// runner share what the runner announces once, and are left out.
func TestTwoStreams(t *testing.T) {
	pairwise(t, func(r recording) recording { return r.ofOne(0, "") }, func(r recording) recording { return r.ofOne(1, "") })
}

// TestPrefixes is the same for two programs on one stream whose lines a tool marks.
func TestPrefixes(t *testing.T) {
	for _, p := range [][2]string{{"web-1  | ", "api-1  | "}, {"[web] ", "[api] "}} {
		pairwise(t, func(r recording) recording { return r.ofOne(1, p[0]) }, func(r recording) recording { return r.ofOne(1, p[1]) })
	}
}

func pairwise(t *testing.T, left, right func(recording) recording) {
	t.Helper()
	var list []recording
	for _, r := range recordings(t, "corpus") {
		if !runner(r.name) {
			list = append(list, r)
		}
	}
	for i, r := range list {
		a, b := left(r), right(list[(i*7+3)%len(list)])
		sameContent(t, a.name+" with "+b.name, alternate(a, b), append(a.play(), b.play()...))
	}
}

func runner(name string) bool {
	for _, w := range []string{"test", "jest", "mocha", "compose", "concurrently", "make", "eslint", "npm"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// TestOneStream interleaves stacks of different languages on one stream without any mark: no line
// of the one may get into the other. (Two of Node and Python cannot always be told apart: both end
// in "TypeError: message".)
func TestOneStream(t *testing.T) {
	byName := map[string]recording{}
	for _, r := range recordings(t, "corpus") {
		byName[r.name] = r
	}
	for _, pair := range [][2]string{{"python-traceback", "java-exception"}, {"go-panic-nil", "python-traceback"}, {"go-panic-nil", "java-exception"}, {"asan-leak", "java-exception"}, {"rust-panic", "java-exception"}} {
		a := byName[pair[0]].ofOne(1, "")
		b := byName[pair[1]].ofOne(1, "")
		got := alternate(a, b)
		if len(got) != 2 {
			t.Errorf("%v: %d faults, want 2: %v", pair, len(got), got)
			continue
		}
		for _, f := range got {
			mixed(t, pair, f, a, b)
		}
	}
}

func mixed(t *testing.T, pair [2]string, f fault.Fault, a, b recording) {
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
		t.Errorf("%v: the stack of %s holds lines of both: %s", pair, f.Type, strings.Join(f.Stack, "\n"))
	}
}

// TestIdle holds that silence between errors changes nothing. No program is silent before a line
// that is indented under its last.
func TestIdle(t *testing.T) {
	for _, r := range recordings(t, "corpus") {
		want := r.play()
		var got []fault.Fault
		rec := fault.New(func(f fault.Fault) { got = append(got, f) })
		for i, l := range r.lines {
			n := int64(i + 1)
			rec.Line(n, l.stream, l.level, l.text)
			if !within(want, n) && !(i+1 < len(r.lines) && strings.HasPrefix(string(r.lines[i+1].text), " ")) {
				rec.Idle()
				rec.Idle()
			}
		}
		rec.End(r.exit, r.signal)
		sameContent(t, r.name, got, want)
	}
}

func within(list []fault.Fault, n int64) bool {
	for _, f := range list {
		if n >= f.FirstLine && n < f.LastLine {
			return true
		}
	}
	return false
}

// TestIdleAnywhere holds that silence in the middle of an error loses no error.
func TestIdleAnywhere(t *testing.T) {
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
		if len(r.play()) > 0 && n == 0 {
			t.Errorf("%s: nothing was recognised", r.name)
		}
	}
}

// TestEmittedInTime holds that an error comes with the silence after it, not only with the end of the run.
func TestEmittedInTime(t *testing.T) {
	var got []fault.Fault
	rec := fault.New(func(f fault.Fault) { got = append(got, f) })
	for i, s := range []string{"TypeError: x is not a function", "    at run (/home/dev/app.js:3:9)", "    at main (/home/dev/app.js:9:1)"} {
		rec.Line(int64(i+1), 1, 5, []byte(s))
	}
	rec.Idle()
	if len(got) != 1 || got[0].File != "/home/dev/app.js" || got[0].Line != 3 || len(got[0].Stack) != 2 || got[0].Stream != 1 {
		t.Fatalf("got %+v", got)
	}
	rec.End(1, "")
	if len(got) != 1 {
		t.Fatalf("the end was not explained by the error before it: %+v", got[1:])
	}
}

// TestEnds is about the fault of the end of a run.
func TestEnds(t *testing.T) {
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

// TestBounds feeds stacks, messages and lines far over every bound.
func TestBounds(t *testing.T) {
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
		t.Fatalf("%d faults", len(got))
	}
	for _, f := range got {
		checkBounds(t, f)
	}
}

func checkBounds(t testing.TB, f fault.Fault) {
	t.Helper()
	if len(f.Stack) > fault.MaxStack || len(f.Message) > fault.MaxMessage || len(f.Type) > 512 || len(f.File) > 512 {
		t.Fatalf("out of bounds: stack %d, message %d, type %d, file %d", len(f.Stack), len(f.Message), len(f.Type), len(f.File))
	}
	for _, s := range f.Stack {
		if len(s) > fault.MaxStackLine {
			t.Fatalf("a stack line of %d bytes", len(s))
		}
	}
	if f.FirstLine > f.LastLine || len(f.Fingerprint) != 32 || f.Message == "" && f.Type == "" || f.Line < 0 || f.Column < 0 {
		t.Fatalf("not well formed: %+v", f)
	}
	known := false
	for _, c := range fault.Categories() {
		known = known || c == f.Category
	}
	if !known {
		t.Fatalf("unknown category %q", f.Category)
	}
}

// TestMessagesIgnored holds that the protocol messages of an MCP child are none of the recogniser's business.
func TestMessagesIgnored(t *testing.T) {
	rec := fault.New(func(f fault.Fault) { t.Errorf("got %+v", f) })
	rec.Line(1, 2, 5, []byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"TypeError: x"}}`))
	rec.End(0, "")
}

// TestOrdinaryLinesDoNotAllocate is part of the bound on what an ordinary line costs.
func TestOrdinaryLinesDoNotAllocate(t *testing.T) {
	rec := fault.New(func(fault.Fault) {})
	text := []byte(`127.0.0.1 - - [05/Jan/2026:10:00:00 +0000] "GET /api/items/42 HTTP/1.1" 200 512 "-" "Mozilla/5.0 (X11; Linux x86_64)"`)
	n := int64(0)
	if a := testing.AllocsPerRun(1000, func() { n++; rec.Line(n, 0, 0, text) }); a > 0 {
		t.Errorf("%v allocations a line", a)
	}
}
