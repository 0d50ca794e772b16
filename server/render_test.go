package server

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pmcp/logstore"
)

const testProject = "/project"

// logOf returns a store in which each of the named processes has printed its
// text to stdout, in one run.
func logOf(t *testing.T, texts map[string]string) *logstore.Store {
	t.Helper()
	s, err := logstore.Open(t.Context(), logstore.Options{Path: filepath.Join(t.TempDir(), "pmcp.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for name, text := range texts {
		run, _ := s.NewRun(testProject, name)
		s.SaveRun(run, time.Now(), time.Time{}, []byte("{}"))
		s.Capture(run, logstore.Stdout, time.Now(), []byte(text))
		s.EndCapture(run)
	}
	return s
}

func readAll(t *testing.T, s *logstore.Store, q logstore.Query) *logstore.Page {
	t.Helper()
	q.Project = testProject
	page, err := s.Read(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func TestRenderFoldsCutsAndJoins(t *testing.T) {
	long := strings.Repeat("é", 20_000) // 40 kB: stored in pieces
	s := logOf(t, map[string]string{"web": "one\nsame\nsame\nsame\n" + long + "\nlast\n"})
	r := logView{maxLineBytes: 101}.render(readAll(t, s, logstore.Query{}))
	if len(r.Lines) != 5 {
		t.Fatalf("%d lines: %q", len(r.Lines), r.Lines)
	}
	for i, want := range []string{"--- ", " out one", " out same (×3)", "é… [+39900 bytes]", " out last"} {
		if !strings.Contains(r.Lines[i], want) {
			t.Errorf("line %d is %q, want %q in it", i, r.Lines[i], want)
		}
	}
	if !strings.HasSuffix(r.Lines[0], "web run 1 ---") || r.Notice == "" {
		t.Errorf("head %q, notice %q", r.Lines[0], r.Notice)
	}
}

// TestRenderBoundLosesNothing pages through a log with a small max_bytes in
// both directions and finds every line once.
func TestRenderBoundLosesNothing(t *testing.T) {
	const n = 500
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	s := logOf(t, map[string]string{"web": text.String()})
	for _, newest := range []bool{false, true} {
		view := logView{maxBytes: 300, newest: newest}
		q := logstore.Query{Names: []string{"web"}, Limit: 100, Newest: newest}
		var got []string
		for more := true; more; {
			r := view.render(readAll(t, s, q))
			if size := len(strings.Join(r.Lines, "\n")); size > view.maxBytes {
				t.Fatalf("an answer of %d bytes", size)
			}
			if !strings.HasSuffix(r.Lines[0], " web run 1 ---") {
				t.Fatalf("newest %v: no separator before %q", newest, r.Lines[0])
			}
			lines := r.Lines[1:]
			if newest {
				got = append(append([]string{}, lines...), got...)
				q.Before = r.PrevCursor
			} else {
				got = append(got, lines...)
				q.After = r.NextCursor
			}
			more = r.More
		}
		if len(got) != n {
			t.Fatalf("newest %v: %d of %d lines", newest, len(got), n)
		}
		for i, line := range got {
			if !strings.HasSuffix(line, fmt.Sprintf(" out line %d", i)) {
				t.Fatalf("newest %v: line %d is %q", newest, i, line)
			}
		}
	}
}

// TestRenderCutAtTheFront: what is kept of several runs begins with the separator
// of its first line, which stands there once.
func TestRenderCutAtTheFront(t *testing.T) {
	s := logOf(t, nil)
	now := time.Now()
	for _, text := range []string{"first\nsecond\n", "third\nfourth\n"} {
		run, _ := s.NewRun(testProject, "web")
		s.SaveRun(run, now, time.Time{}, []byte("{}"))
		s.Capture(run, logstore.Stdout, now, []byte(text))
		s.EndCapture(run)
	}
	page := readAll(t, s, logstore.Query{Names: []string{"web"}, Newest: true})
	whole := logView{newest: true, maxBytes: 10_000}.render(page)
	size := len(strings.Join(whole.Lines, "\n")) + 1
	if len(whole.Lines) != 6 || whole.More {
		t.Fatalf("%q, more %v", whole.Lines, whole.More)
	}
	for maxBytes := size; maxBytes >= 100; maxBytes-- {
		r := logView{newest: true, maxBytes: maxBytes}.render(page)
		cut := maxBytes < size
		if got := len(strings.Join(r.Lines, "\n")) + 1; got > maxBytes || r.More != cut {
			t.Errorf("%d bytes of %d, more %v", got, maxBytes, r.More)
		}
		begin := 1
		if r.shown > 2 {
			begin = 0
		}
		if want := whole.Lines[3*begin]; r.Lines[0] != want || strings.HasPrefix(r.Lines[1], "---") {
			t.Errorf("%d bytes: %q, want %q in front", maxBytes, r.Lines, want)
		}
		if rest := readAll(t, s, logstore.Query{Names: []string{"web"}, Before: r.PrevCursor}); cut && len(rest.Lines)+r.shown != len(page.Lines) {
			t.Errorf("%d bytes: %d lines shown, %d before the cursor", maxBytes, r.shown, len(rest.Lines))
		}
	}
}

// TestTailSaysWhatIsLeftOut: the last lines that max_bytes cuts have a cursor to
// those before, and those that are all have none.
func TestTailSaysWhatIsLeftOut(t *testing.T) {
	s := hello(t)
	s.script("job", "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); done", "wait", "exit")
	data, text := s.do("tail_logs", map[string]any{"process": "job", "max_bytes": 300})
	lines := data["lines"].([]any)
	if left := data["omitted"].(map[string]any); left["cursor"] != data["prev_cursor"] || int(left["lines"].(float64))+strings.Count(text, " out line ") != 40 ||
		!strings.Contains(text, fmt.Sprintf("omitted: %v lines; get_logs with process: \"job\", before: %v\n", left["lines"], left["cursor"])) {
		t.Errorf("omitted %v: %s", left, text)
	}
	if data["more"] != true || data["prev_cursor"] == nil || !strings.Contains(text, "\nprev_cursor: ") || !strings.HasSuffix(lines[0].(string), " job run 1 ---") {
		t.Errorf("%s", text)
	}
	before, _ := s.do("get_logs", map[string]any{"process": "job", "before": data["prev_cursor"]})
	if got := strings.Count(fmt.Sprint(before["lines"], lines), " out line "); got != 40 {
		t.Errorf("%d of 40 lines", got)
	}
	data, text = s.do("tail_logs", map[string]any{"process": "job"})
	if data["more"] != nil || data["prev_cursor"] != nil {
		t.Errorf("%s", text)
	}
	data, text = s.do("tail_logs", map[string]any{"process": "job", "after": "start", "max_bytes": 300})
	left := data["omitted"].(map[string]any)
	if data["more"] != true || data["prev_cursor"] != nil || left["cursor"] != data["next_cursor"] || !strings.Contains(text, " lines; get_logs with process: \"job\", after: ") {
		t.Errorf("%s", text)
	}
}

// TestRenderBoundsLongLines: one line alone must stay below max_bytes too, with
// all that stands around it.
func TestRenderBoundsLongLines(t *testing.T) {
	const smallest = 256
	name := strings.Repeat("n", 64)
	s := logOf(t, map[string]string{name: strings.Repeat(strings.Repeat("x", 2000)+"\n", 100)})
	for _, newest := range []bool{false, true} {
		r := logView{names: true, maxBytes: smallest, newest: newest}.render(readAll(t, s, logstore.Query{Newest: newest}))
		if size := len(strings.Join(r.Lines, "\n")); size > smallest || !strings.Contains(r.Lines[len(r.Lines)-1], " out x") {
			t.Errorf("newest %v: %d bytes: %q", newest, size, r.Lines)
		}
	}
	// The share of each of a hundred members of a group, who failed.
	share := logView{maxBytes: defaultMaxBytes/100 - 100, newest: true}.render(readAll(t, s, logstore.Query{Newest: true}))
	if last := share.Lines[len(share.Lines)-1]; strings.Count(last, "x") < 60 {
		t.Errorf("a share: %q", last)
	}
	found, err := s.Search(t.Context(), logstore.SearchQuery{Query: logstore.Query{Project: testProject, MaxBytes: smallest}, Text: "x", LineBytes: aroundLine})
	if err != nil {
		t.Fatal(err)
	}
	r := showMatches(found, false, logView{names: true, maxLineBytes: smallest / 2})
	if size := len(r.Matches[0].Line); len(r.Matches) != 1 || size > smallest {
		t.Errorf("a search: %d matches, %d bytes", len(r.Matches), size)
	}
}

// TestMatchIsShown, however far behind the start of its line it is: with what is
// before it, whole characters, and the count of what is left out.
func TestMatchIsShown(t *testing.T) {
	const limit = defaultMaxLineBytes
	e, x := strings.Repeat("é", limit), strings.Repeat("x", limit)
	for _, c := range []struct{ line, pattern, want string }{
		{"up " + x, "up", "up " + x[:limit-3] + "… [+3 bytes]"},
		{x[:limit-2] + "up", "up", x[:limit-2] + "up"},
		{x + "up", "up", "… " + x[:200] + "up [+1800 bytes]"},
		{x[:limit-1] + "ü", "ü", "… " + x[:200] + "ü [+1799 bytes]"},
		{e + "up" + e, "up", "… " + e[:200] + "up" + e[:limit-202] + "… [+6002 bytes]"},
		{"x" + e + "up" + e, "up", "… " + e[:200] + "up" + e[:limit-202] + "… [+6003 bytes]"},
		{e + "-up" + e, "up", "… " + e[:200] + "-up" + e[:limit-204] + "… [+6004 bytes]"},
		{x + x, "$", "… " + x[:200] + " [+3800 bytes]"},
	} {
		s := logOf(t, map[string]string{"web": c.line + "\n"})
		found, err := s.Search(t.Context(), logstore.SearchQuery{Text: c.pattern, Regexp: true})
		noErr(t, err)
		line := showMatches(found, false, logView{maxLineBytes: limit}).Matches[0].Line
		if !utf8.ValidString(line) || !strings.HasSuffix(line, " out "+c.want) {
			t.Errorf("%q: %q, want %q", c.pattern, line, c.want)
		}
		page := readAll(t, s, logstore.Query{})
		w := runWait{a: waitArgs{Until: "log"}, pattern: regexp.MustCompile(c.pattern)}
		i, offset := w.match(page)
		if i != 0 || cutAround(page.Lines[i].Text, offset, limit) != c.want {
			t.Errorf("%q: line %d at %d", c.pattern, i, offset)
		}
	}
	for limit := range 12 {
		for offset := range e[:40] {
			if shown := cutAround(e[:40], offset, limit); !utf8.ValidString(shown) || len(shown) > limit+aroundLine/2 {
				t.Errorf("%d bytes at %d: %q", limit, offset, shown)
			}
		}
	}
}

// TestSearchTellsOfMissingContext: context that does not fit is named as missing, and no other.
func TestSearchTellsOfMissingContext(t *testing.T) {
	s := logOf(t, map[string]string{"web": strings.Repeat(strings.Repeat("x", 100)+"\n", 9) + "hit\n"})
	for maxBytes, missing := range map[int]bool{256: true, 4096: false} {
		found, err := s.Search(t.Context(), logstore.SearchQuery{Query: logstore.Query{Project: testProject, MaxBytes: maxBytes}, Text: "hit", Context: 5, LineBytes: aroundLine})
		if err != nil {
			t.Fatal(err)
		}
		text := showMatches(found, false, logView{maxLineBytes: defaultMaxLineBytes}).text()
		if strings.Contains(text, "hint: context left out") != missing {
			t.Errorf("%d bytes:\n%s", maxBytes, text)
		}
	}
}

// TestSearchCountsNames: the name of a process stands with each line that is shown.
func TestSearchCountsNames(t *testing.T) {
	s := hello(t)
	name := strings.Repeat("n", 64)
	s.script(name, "seq 1000", "wait", "exit")
	for _, process := range []string{name, "*"} {
		data, text := s.do("search_logs", map[string]any{"query": "1", "process": process, "limit": 1000, "max_bytes": 4096})
		if got := len(data["matches"].([]any)); len(text) > 4096 || got < 10 {
			t.Errorf("%s: %d matches in %d bytes", process, got, len(text))
		}
	}
}

// TestSearchGivesWhatFits: context does not cost matches, nor do more than max_bytes allows.
func TestSearchGivesWhatFits(t *testing.T) {
	s := hello(t)
	s.script("job", "i=0; while [ $i -lt 200 ]; do echo hit $i; echo of; echo no; echo use; i=$((i+1)); done", "wait", "exit")
	for _, c := range []struct{ context, limit, maxBytes, matches int }{
		{0, 50, 0, 50}, {5, 50, 0, 50}, {0, 200, 0, 200}, {3, 200, 0, 200}, {0, 200, 4096, 44},
	} {
		arguments := map[string]any{"query": "hit", "process": "job", "context": c.context, "limit": c.limit}
		if c.maxBytes > 0 {
			arguments["max_bytes"] = c.maxBytes
		}
		data, text := s.do("search_logs", arguments)
		if got := len(data["matches"].([]any)); got != c.matches || len(text) > max(c.maxBytes, defaultMaxBytes) || (data["more"] == true) != (c.matches < 200) {
			t.Errorf("%+v: %d matches, %d bytes, more %v", c, got, len(text), data["more"])
		}
	}
}

func TestRenderNamesSeveral(t *testing.T) {
	s := logOf(t, map[string]string{"api": "a\n", "web": "b\n"})
	r := logView{names: true}.render(readAll(t, s, logstore.Query{}))
	text := strings.Join(r.Lines, "\n")
	for _, want := range []string{"api run 1", "web run 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	if !strings.Contains(text, "\napi ") && !strings.Contains(text, "\nweb ") {
		t.Errorf("no line begins with its process: %q", text)
	}
}

func TestParseWhen(t *testing.T) {
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Time{
		"":                     {},
		"10m":                  now.Add(-10 * time.Minute),
		"2w":                   now.Add(-14 * 24 * time.Hour),
		"2026-01-04T10:00:00Z": time.Date(2026, 1, 4, 10, 0, 0, 0, time.UTC),
		"2026-01-04":           time.Date(2026, 1, 4, 0, 0, 0, 0, time.Local),
		// What the log's nanoseconds cannot hold.
		"999999w":              now.Add(-math.MaxInt64 / week * week),
		"999999d":              now.Add(-math.MaxInt64 / day * day),
		"0001-01-01T00:00:00Z": earliest,
		"1000-01-01":           earliest,
		"9999-12-31T23:59:59Z": latest,
	} {
		if got, err := parseWhen("since", value, now); err != nil || !got.Equal(want) {
			t.Errorf("parseWhen(%q) = %v, %v; want %v", value, got, err, want)
		}
	}
	for _, bad := range []string{"soon", "10", "-5m", "2026-13-01", "5y"} {
		if got, err := parseWhen("since", bad, now); err == nil || !strings.Contains(err.Error(), "argument since") {
			t.Errorf("parseWhen(%q) = %v, %v", bad, got, err)
		}
	}
}

func TestFormat(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 61 * time.Second: "1m 1s", 25 * time.Hour: "1d 1h", 90 * time.Minute: "1h 30m"} {
		if got := formatAge(d); got != want {
			t.Errorf("formatAge(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 5 << 40: "5.0 TiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("formatBytes(%d) = %q, want %q", n, got, want)
		}
	}
}
