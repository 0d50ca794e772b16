package server

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pmcp/logstore"
	"pmcp/server/stdio/stdiotest"
)

const testProject = "/project"

// logOf returns a store in which each named process has one run that printed the
// given text to stdout.
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
		run, _, _ := s.NewRun(testProject, name)
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

func TestRenderFoldsCutsAndJoinsLines(t *testing.T) {
	long := strings.Repeat("é", 20_000) // 40 kB: stored as several lines
	s := logOf(t, map[string]string{"web": "one\nsame\nsame\nsame\n" + long + "\nlast\n"})
	r := logView{maxLineBytes: 101}.render(readAll(t, s, logstore.Query{}))
	if len(r.Lines) != 5 {
		t.Fatalf("got %d lines %q, want 5", len(r.Lines), r.Lines)
	}
	for i, want := range []string{"--- ", " out one", " out same (×3)", "é… [+39900 bytes] …é", " out last"} {
		if !strings.Contains(r.Lines[i], want) {
			t.Errorf("line %d: got %q, want %q in it", i, r.Lines[i], want)
		}
	}
	if !strings.HasSuffix(r.Lines[0], "web run 1 ---") || r.Notice == "" {
		t.Errorf("got head %q and notice %q, want the run and a notice", r.Lines[0], r.Notice)
	}
}

// TestRenderBoundByMaxBytesLosesNoLine pages through a log with a small max_bytes
// in both directions, and checks that every line is returned once.
func TestRenderBoundByMaxBytesLosesNoLine(t *testing.T) {
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
				t.Fatalf("got an answer of %d bytes, want at most %d", size, view.maxBytes)
			}
			if !strings.HasSuffix(r.Lines[0], " web run 1 ---") {
				t.Fatalf("newest %v: got %q first, want a separator", newest, r.Lines[0])
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
			t.Fatalf("newest %v: got %d lines, want %d", newest, len(got), n)
		}
		for i, line := range got {
			if !strings.HasSuffix(line, fmt.Sprintf(" out line %d", i)) {
				t.Fatalf("newest %v: line %d: got %q, want line %d", newest, i, line, i)
			}
		}
	}
}

// TestRenderCutAtFrontKeepsOneSeparator checks that a text of several runs whose
// oldest lines are cut begins with one separator, that of its first remaining line.
func TestRenderCutAtFrontKeepsOneSeparator(t *testing.T) {
	s := logOf(t, nil)
	now := time.Now()
	for _, text := range []string{"first\nsecond\n", "third\nfourth\n"} {
		run, _, _ := s.NewRun(testProject, "web")
		s.SaveRun(run, now, time.Time{}, []byte("{}"))
		s.Capture(run, logstore.Stdout, now, []byte(text))
		s.EndCapture(run)
	}
	page := readAll(t, s, logstore.Query{Names: []string{"web"}, Newest: true})
	whole := logView{newest: true, maxBytes: 10_000}.render(page)
	sizes := func(lines []string) (n int) {
		for _, l := range lines {
			n += sizeOfString(l)
		}
		return n
	}
	size := sizes(whole.Lines)
	if len(whole.Lines) != 6 || whole.More {
		t.Fatalf("got %q, more %v; want 6 lines and no more", whole.Lines, whole.More)
	}
	for maxBytes := size; maxBytes >= 100; maxBytes-- {
		r := logView{newest: true, maxBytes: maxBytes}.render(page)
		cut := maxBytes < size
		if got := sizes(r.Lines); got > maxBytes || r.More != cut {
			t.Errorf("got %d bytes, more %v; want at most %d, more %v", got, r.More, maxBytes, cut)
		}
		begin := 1
		if r.shown > 2 {
			begin = 0
		}
		if want := whole.Lines[3*begin]; r.Lines[0] != want || strings.HasPrefix(r.Lines[1], "---") {
			t.Errorf("%d bytes: got %q, want %q first", maxBytes, r.Lines, want)
		}
		if rest := readAll(t, s, logstore.Query{Names: []string{"web"}, Before: r.PrevCursor}); cut && len(rest.Lines)+r.shown != len(page.Lines) {
			t.Errorf("%d bytes: got %d lines shown and %d before the cursor, want %d together", maxBytes, r.shown, len(rest.Lines), len(page.Lines))
		}
	}
}

// TestFirstLineOfCutActionHasTime checks that the first line of an action's answer has
// its time of day if earlier lines were dropped.
func TestFirstLineOfCutActionHasTime(t *testing.T) {
	s := logOf(t, nil)
	run, _, _ := s.NewRun(testProject, "web")
	now := time.Now()
	s.SaveRun(run, now, time.Time{}, []byte("{}"))
	for i := range 4 {
		s.Capture(run, logstore.Stdout, now.Add(time.Duration(2*i)*time.Second), fmt.Appendf(nil, "line %d of the output, which is somewhat long\n", i))
	}
	s.EndCapture(run)
	r := logView{newest: true, actionRun: run, maxBytes: 140}.render(readAll(t, s, logstore.Query{Names: []string{"web"}, Newest: true}))
	if !r.More || len(r.Lines) != 2 || !regexp.MustCompile(`^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d line 2 `).MatchString(r.Lines[0]) || !strings.HasPrefix(r.Lines[1], "+2s line 3") {
		t.Errorf("got %q, want the last two lines, the first of them with its time", r.Lines)
	}
}

// TestLineWithItsOwnTimeHasNoOtherInFront checks that a line of an action's answer that begins
// with the time at which it was printed has no time in front, and that the stream is in
// front if the line could pass for one with pmcp's time.
func TestLineWithItsOwnTimeHasNoOtherInFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		year, month, today := time.Now().Date()
		now := time.Date(year, month, today, 13, 1, 43, 0, time.Local)
		at, day := now.Format(time.TimeOnly), now.Format(time.DateOnly)
		yesterday := now.AddDate(0, 0, -1)
		for _, c := range []struct {
			text string
			at   time.Time
			want string
		}{
			{now.Format("3:04:05 PM") + " [vite] up", now, now.Format("3:04:05 PM") + " [vite] up"},
			{"[" + at + "] up", now.Add(2 * time.Second), "[" + at + "] up"},
			{at + " up", now, "out " + at + " up"},
			{at + ".123 up", now, at + ".123 up"},
			{day + " " + at + " up", now, "out " + day + " " + at + " up"},
			{day + "T" + at + "Z up", now, day + "T" + at + "Z up"},
			{yesterday.Format(time.DateTime) + ",5 up", yesterday, yesterday.Format(time.DateTime) + ",5 up"},
			{at + ".1 up", yesterday, yesterday.Format(time.DateTime) + " " + at + ".1 up"},
			{at + " up", now.Add(-time.Minute), now.Add(-time.Minute).Format(time.TimeOnly) + " out " + at + " up"},
			{"77:00:00 up", now, at + " out 77:00:00 up"},
			{at + "x up", now, at + " " + at + "x up"},
			{"at " + at, now, at + " at " + at},
		} {
			p := &logstore.Page{Runs: map[int64]logstore.Run{1: {Name: "p", Number: 1}}, Lines: []logstore.Line{{Run: 1, Number: 1, At: c.at, Text: c.text}}}
			if got := (logView{actionRun: 1}).format(p)[0].text; got != c.want {
				t.Errorf("%q: got %q, want %q", c.text, got, c.want)
			}
		}
	})
}

// TestTailCountsOmittedLines checks that a tail that max_bytes shortens has a
// cursor to the omitted lines, and that a complete tail has none.
func TestTailCountsOmittedLines(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); done", "wait", "exit")
	data, text := s.do("tail_logs", map[string]any{"process": "job", "max_bytes": 512})
	lines := data["lines"].([]any)
	if left := data["omitted"].(map[string]any); left["cursor"] != data["prev_cursor"] || int(left["lines"].(float64))+strings.Count(text, " out line ") != 40 ||
		!strings.Contains(text, fmt.Sprintf("omitted: %v lines; get_logs with process: \"job\", before: %v\n", left["lines"], left["cursor"])) {
		t.Errorf("got omitted %v in %s, want the lines left out and the call that shows them", left, text)
	}
	if data["more"] != true || data["prev_cursor"] == nil || !strings.Contains(text, "\nprev_cursor: ") || !strings.HasSuffix(lines[0].(string), " job run 1 ---") {
		t.Errorf("got %s, want more and a prev_cursor", text)
	}
	before, _ := s.do("get_logs", map[string]any{"process": "job", "before": data["prev_cursor"]})
	if got := strings.Count(fmt.Sprint(before["lines"], lines), " out line "); got != 40 {
		t.Errorf("got %d lines, want 40", got)
	}
	data, text = s.do("tail_logs", map[string]any{"process": "job"})
	if data["more"] != nil || data["prev_cursor"] != nil {
		t.Errorf("complete tail: got %s, want no cursor to more", text)
	}
	data, text = s.do("tail_logs", map[string]any{"process": "job", "after": "start", "max_bytes": 512})
	left := data["omitted"].(map[string]any)
	if data["more"] != true || data["prev_cursor"] != nil || left["cursor"] != data["next_cursor"] || !strings.Contains(text, " lines; get_logs with process: \"job\", after: ") {
		t.Errorf("after a cursor: got %s, want the next_cursor to more", text)
	}
}

// TestRenderBoundsLongLines checks that the text for one very long line stays below
// max_bytes.
func TestRenderBoundsLongLines(t *testing.T) {
	const smallest = 256
	name := strings.Repeat("n", 64)
	s := logOf(t, map[string]string{name: strings.Repeat(strings.Repeat("x", 2000)+"\n", 100)})
	for _, newest := range []bool{false, true} {
		r := logView{names: true, maxBytes: smallest, newest: newest}.render(readAll(t, s, logstore.Query{Newest: newest}))
		if size := len(strings.Join(r.Lines, "\n")); size > smallest || !strings.Contains(r.Lines[len(r.Lines)-1], " out x") {
			t.Errorf("newest %v: got %d bytes %q, want at most %d with the line", newest, size, r.Lines, smallest)
		}
	}
	// This is the smallest share of max_bytes that a failed group member gets.
	share := logView{maxBytes: minShare, newest: true}.render(readAll(t, s, logstore.Query{Newest: true}))
	if last := share.Lines[len(share.Lines)-1]; strings.Count(last, "x") < 60 {
		t.Errorf("a share: got %q, want at least 60 bytes of the line", last)
	}
	found, err := s.Search(t.Context(), logstore.SearchQuery{Query: logstore.Query{Project: testProject, MaxBytes: smallest}, Text: "x", LineBytes: lineOverhead})
	if err != nil {
		t.Fatal(err)
	}
	r := showMatches(found, &searchLogsArgs{}, logView{names: true, maxLineBytes: smallest / 2})
	if size := len(r.Matches[0].Line); len(r.Matches) != 1 || size > smallest {
		t.Errorf("a search: got %d matches, %d bytes; want 1 of at most %d", len(r.Matches), size, smallest)
	}
}

// TestLongLineIsCutAroundMatch checks that a match far from the start of a long
// line is shown, with the text before the match, whole characters only, and the
// number of bytes left out.
func TestLongLineIsCutAroundMatch(t *testing.T) {
	const limit = defaultMaxLineBytes
	e, x := strings.Repeat("é", limit), strings.Repeat("x", limit)
	for _, c := range []struct{ line, pattern, want string }{
		{"up " + x, "up", "up " + x[:limit/2-3] + "… [+3 bytes] …" + x[:limit/2]},
		{x[:limit-2] + "up", "up", x[:limit-2] + "up"},
		{x + "up", "up", x[:limit/2] + "… [+2 bytes] …" + x[:limit/2-2] + "up"},
		{x[:limit-1] + "ü", "ü", x[:limit/2] + "… [+1 bytes] …" + x[:limit/2-2] + "ü"},
		{e + "up" + e, "up", "… [+3800 bytes] …" + e[:200] + "up" + e[:limit-202] + "… [+2202 bytes]"},
		{"x" + e + "up" + e, "up", "… [+3801 bytes] …" + e[:200] + "up" + e[:limit-202] + "… [+2202 bytes]"},
		{e + "-up" + e, "up", "… [+3800 bytes] …" + e[:200] + "-up" + e[:limit-204] + "… [+2204 bytes]"},
		{x + x, "$", x[:limit/2] + "… [+2000 bytes] …" + x[:limit/2]},
	} {
		s := logOf(t, map[string]string{"web": c.line + "\n"})
		found, err := s.Search(t.Context(), logstore.SearchQuery{Text: c.pattern, Regexp: true})
		stdiotest.NoErr(t, err)
		line := showMatches(found, &searchLogsArgs{}, logView{maxLineBytes: limit}).Matches[0].Line
		if !utf8.ValidString(line) || !strings.HasSuffix(line, " out "+c.want) {
			t.Errorf("%q: got %q, want %q", c.pattern, line, c.want)
		}
		page := readAll(t, s, logstore.Query{})
		offset := regexp.MustCompile(c.pattern).FindStringIndex(page.Lines[0].Text)[0]
		if got := cutAround(page.Lines[0].Text, offset, limit); got != c.want {
			t.Errorf("%q: at %d: got %q, want %q", c.pattern, offset, got, c.want)
		}
	}
	for limit := range 12 {
		for offset := range e[:40] {
			if shown := cutAround(e[:40], offset, limit); !utf8.ValidString(shown) || len(shown) > limit+lineOverhead/2 {
				t.Errorf("%d bytes at %d: got %q, want at most %d bytes of whole characters", limit, offset, shown, limit+lineOverhead/2)
			}
		}
	}
}

// TestSearchHintsAtOmittedContext checks that a search has a hint if some context
// lines do not fit, and has none otherwise.
func TestSearchHintsAtOmittedContext(t *testing.T) {
	s := logOf(t, map[string]string{"web": strings.Repeat(strings.Repeat("x", 100)+"\n", 9) + "hit\n"})
	for maxBytes, missing := range map[int]bool{256: true, 4096: false} {
		found, err := s.Search(t.Context(), logstore.SearchQuery{Query: logstore.Query{Project: testProject, MaxBytes: maxBytes}, Text: "hit", Context: 5, LineBytes: lineOverhead})
		if err != nil {
			t.Fatal(err)
		}
		text := textOf(showMatches(found, &searchLogsArgs{}, logView{maxLineBytes: defaultMaxLineBytes}))
		if strings.Contains(text, "hint: context left out") != missing {
			t.Errorf("%d bytes: got\n%s\nwant a hint %v", maxBytes, text, missing)
		}
	}
}

// TestSearchCountsNamesTowardsMaxBytes checks that the name of the process counts
// towards max_bytes in each line that is shown.
func TestSearchCountsNamesTowardsMaxBytes(t *testing.T) {
	t.Parallel()
	s := hello(t)
	name := strings.Repeat("n", 64)
	s.script(name, "seq 1000", "wait", "exit")
	for _, process := range []string{name, "*"} {
		data, text := s.do("search_logs", map[string]any{"query": "1", "process": process, "limit": 1000, "max_bytes": 4096})
		if got := len(data["matches"].([]any)); len(text) > 4096 || got < 10 {
			t.Errorf("%s: got %d matches in %d bytes, want at least 10 in at most 4096", process, got, len(text))
		}
	}
}

// TestSearchContextCostsNoMatches checks that context lines do not displace
// matches, and that matches stay within max_bytes.
func TestSearchContextCostsNoMatches(t *testing.T) {
	t.Parallel()
	s := hello(t)
	s.script("job", "i=0; while [ $i -lt 200 ]; do echo hit $i; echo of; echo no; echo use; i=$((i+1)); done", "wait", "exit")
	for _, c := range []struct{ context, limit, maxBytes, matches int }{
		{0, 50, 0, 50}, {5, 50, 0, 50}, {0, 200, 40_000, 200}, {3, 200, 40_000, 200}, {0, 200, 4096, 33},
	} {
		arguments := map[string]any{"query": "hit", "process": "job", "context": c.context, "limit": c.limit}
		if c.maxBytes > 0 {
			arguments["max_bytes"] = c.maxBytes
		}
		data, text := s.do("search_logs", arguments)
		if got := len(data["matches"].([]any)); got != c.matches || len(text) > cmp.Or(c.maxBytes, defaultMaxBytes) || (data["more"] == true) != (c.matches < 200) {
			t.Errorf("%+v: got %d matches, %d bytes, more %v", c, got, len(text), data["more"])
		}
	}
}

func TestRenderNamesSeveralProcesses(t *testing.T) {
	s := logOf(t, map[string]string{"api": "a\n", "web": "b\n"})
	r := logView{names: true}.render(readAll(t, s, logstore.Query{}))
	text := strings.Join(r.Lines, "\n")
	for _, want := range []string{"api run 1", "web run 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
	if !strings.Contains(text, "\napi ") && !strings.Contains(text, "\nweb ") {
		t.Errorf("got %q, want a line that begins with its process", text)
	}
}

func TestFormatBytesUsesBinaryUnits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 5 << 40: "5.0 TiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("formatBytes(%d) = %q, want %q", n, got, want)
		}
	}
}
