package fault_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pmcp/logstore/fault"
)

var update = flag.Bool("update", false, "write what is recognised as what is expected; review the difference before you commit it")

// recording is the output of a program and its exit status.
type recording struct {
	name   string
	lines  []recordedLine
	exit   int
	signal string
}

type recordedLine struct {
	stream, level uint8
	text          []byte
}

// expected is an error that must be recognised in a recording.
type expected struct {
	Category string `json:"category"`
	Type     string `json:"type,omitempty"`
	Message  string `json:"message"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	First    int64  `json:"first"`
	Last     int64  `json:"last"`
	Stack    int    `json:"stack,omitempty"`
	// Repeats is set if an earlier error of the recording is the same error. Both must have the
	// same fingerprint.
	Repeats bool `json:"repeats,omitempty"`
	// Missed, if not empty, is the reason why the expected fault is not recognised, written by
	// hand. The flag -update does not rewrite such a recording.
	Missed string `json:"missed,omitempty"`
}

// recordings reads the recordings in a directory such as testdata/corpus, in files *.txt. Each line
// of a file holds the stream, the level, "|" and the text; the last line holds the exit status.
func recordings(t testing.TB, dir string) []recording {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no recordings in %s: %v", dir, err)
	}
	var list []recording
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r := recording{name: strings.TrimSuffix(filepath.Base(name), ".txt")}
		for line := range bytes.Lines(data) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			if len(line) > 2 && line[2] == '|' {
				r.lines = append(r.lines, recordedLine{stream: map[byte]uint8{'o': 0, 'e': 1}[line[0]], level: line[1] - '0', text: line[3:]})
				continue
			}
			kind, value, _ := strings.Cut(string(line), " ")
			switch kind {
			case "exit":
				if r.exit, err = strconv.Atoi(value); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			case "signal":
				r.signal = value
			default:
				t.Fatalf("%s: got line %q, want stream, level and |, or the end", name, line)
			}
		}
		list = append(list, r)
	}
	return list
}

// faults returns the faults that are recognised in the recording.
func (r recording) faults() (list []fault.Fault) {
	rec := fault.New(func(f fault.Fault) { list = append(list, f) })
	r.feed(rec)
	rec.End(r.exit, r.signal)
	return list
}

func (r recording) feed(rec *fault.Recogniser) {
	for i, l := range r.lines {
		rec.Line(int64(i+1), l.stream, l.level, l.text)
	}
}

func (r recording) expected(t testing.TB, dir string) (list []expected) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", dir, r.name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	return list
}

func asExpected(f fault.Fault) expected {
	return expected{Category: f.Category, Type: f.Type, Message: f.Message, File: f.File, Line: f.Line, Column: f.Column, First: f.FirstLine, Last: f.LastLine, Stack: len(f.Stack)}
}

func (e expected) String() string {
	return fmt.Sprintf("%s %q %q %s:%d:%d lines %d-%d stack %d", e.Category, e.Type, e.Message, e.File, e.Line, e.Column, e.First, e.Last, e.Stack)
}

// TestCorpusGivesExpectedFaults checks that the faults recognised in the recorded output of real
// programs are the expected ones. A fault counts as found only if its category, type, message,
// position, lines and length of the stack match.
func TestCorpusGivesExpectedFaults(t *testing.T) {
	found, emitted, wanted := 0, 0, 0
	list := recordings(t, "corpus")
	for _, r := range list {
		got := r.faults()
		if *update && !r.isHandWritten() {
			r.writeExpected(t, got)
		}
		want := r.expected(t, "corpus")
		emitted, wanted = emitted+len(got), wanted+len(want)
		found += match(t, r.name, got, want)
	}
	precision, recall := 100*float64(found)/float64(emitted), 100*float64(found)/float64(wanted)
	t.Logf("%d recordings, %d faults expected, %d emitted, %d right: precision %.1f %%, recall %.1f %%", len(list), wanted, emitted, found, precision, recall)
	if precision < 95 || recall < 95 {
		t.Errorf("got precision %.1f %%, recall %.1f %%, want at least 95 %% each", precision, recall)
	}
}

// match returns the number of faults that match an expected fault, and logs the other faults. Each
// expected fault matches at most once.
func match(t *testing.T, name string, got []fault.Fault, want []expected) (found int) {
	t.Helper()
	rest := append([]expected(nil), want...)
next:
	for i, f := range got {
		e := asExpected(f)
		e.Repeats = isRepeat(got, i)
		for j, w := range rest {
			if w == e {
				rest = append(rest[:j], rest[j+1:]...)
				found++
				continue next
			}
		}
		t.Logf("%s: not expected: %v", name, e)
	}
	for _, w := range rest {
		t.Logf("%s: not found: %v", name, w)
	}
	return found
}

// isHandWritten reports whether the expected faults of the recording were written by hand.
func (r recording) isHandWritten() bool {
	data, err := os.ReadFile(filepath.Join("testdata", "corpus", r.name+".json"))
	return err == nil && bytes.Contains(data, []byte(`"missed"`))
}

func isRepeat(list []fault.Fault, i int) bool {
	for _, f := range list[:i] {
		if f.Fingerprint == list[i].Fingerprint {
			return true
		}
	}
	return false
}

func (r recording) writeExpected(t *testing.T, got []fault.Fault) {
	t.Helper()
	list := []expected{}
	for i, f := range got {
		e := asExpected(f)
		e.Repeats = isRepeat(got, i)
		list = append(list, e)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	if err := enc.Encode(list); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", "corpus", r.name+".json"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCorpusIsFoundWithoutLevels checks that at least 90 % of the faults in the recorded output are
// recognised if the caller passes no log levels.
func TestCorpusIsFoundWithoutLevels(t *testing.T) {
	kinds := func(list []fault.Fault) map[string]int {
		m := map[string]int{}
		for _, f := range list {
			m[f.Type+f.File]++
		}
		return m
	}
	found, wanted := 0, 0
	for _, r := range recordings(t, "corpus") {
		want := kinds(r.faults())
		for i := range r.lines {
			r.lines[i].level = 0
		}
		for k, n := range kinds(r.faults()) {
			found += min(n, want[k])
		}
		for _, n := range want {
			wanted += n
		}
	}
	t.Logf("%d of %d faults are recognised without levels", found, wanted)
	if found*10 < wanted*9 {
		t.Errorf("got %d of %d faults, want at least 90 %%", found, wanted)
	}
}

// TestCleanOutputGivesNoFault checks that no fault is recognised in recorded output without errors.
func TestCleanOutputGivesNoFault(t *testing.T) {
	for _, r := range recordings(t, "clean") {
		for _, f := range r.faults() {
			t.Errorf("%s: got fault %v, want none", r.name, asExpected(f))
		}
	}
}

// TestEndReportsCrash checks that End reports a crash for a signal and for an error that nothing caught, and
// none for the failure of a compiler, a linter, a test or a check of arguments.
func TestEndReportsCrash(t *testing.T) {
	want := make(map[string]bool)
	for _, name := range strings.Fields("c-segfault docker-oom sh-killed cxx-exception dotnet-exception python-traceback python-chained python-group node-type-error node-throw-string node-rejection-value " +
		"go-panic-error go-deadlock java-exception java-root-cause ruby-error php-uncaught rust-panic perl-confess asan-overflow") {
		want[name] = true
	}
	for _, name := range strings.Fields("eslint-stylish tsc-plain gcc-errors go-build-errors go-vet rust-compile java-compile maven-failure vite-build webpack-build next-build jest vitest mocha python-pytest python-unittest go-test-fail node-test-spec rust-test " +
		"make-fails npm-script-fails python-argparse bash-command exit-silent exit-with-reason exit-terminated python-keyboard go-log-fatal git-not-a-repo") {
		want[name] = false
	}
	for _, r := range recordings(t, "corpus") {
		crash, ok := want[r.name]
		if !ok {
			continue
		}
		delete(want, r.name)
		rec := fault.New(func(fault.Fault) {})
		r.feed(rec)
		if got := rec.End(r.exit, r.signal); got != crash {
			t.Errorf("%s: got crash %v, want %v", r.name, got, crash)
		}
	}
	if len(want) > 0 {
		t.Errorf("got no recordings of %v", want)
	}
}
