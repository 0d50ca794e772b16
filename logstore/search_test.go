package logstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pmcp/logstore/line"
	"pmcp/logstore/match"
)

// corpus writes lines of several processes to a Store: some stored in chunks, some in rows, some in
// memory only.
func corpus(t testing.TB, s *Store, words []string, n int, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	var runs []int64
	for i := range 4 {
		runs = append(runs, startRun(s, "/p", fmt.Sprintf("proc%d", i%3)))
	}
	at := time.Now()
	for i := range n {
		at = at.Add(time.Duration(rnd.IntN(2)) * time.Millisecond)
		var b strings.Builder
		used := words[:1+rnd.IntN(len(words))] // chunks then lack different words
		if i/(n/10)%2 == 0 {
			used = words[len(words)/2:]
		}
		for range 1 + rnd.IntN(8) {
			b.WriteString(used[rnd.IntN(len(used))])
			b.WriteByte(" ,:"[rnd.IntN(3)])
		}
		b.WriteByte('\n')
		s.Capture(runs[rnd.IntN(len(runs))], uint8(rnd.IntN(2)), at, []byte(b.String()))
		if i%(n/10) != n/20 || i > n*8/10 {
			continue
		}
		if i > n/2 {
			for _, r := range runs[:2] {
				endRun(s, r)
			}
		}
		s.sealOpen(&scope{})
		flush(t, s)
	}
	filterAll(t, s)
	flush(t, s)
}

// filterAll builds the search filters of all stored chunks of lines, also of small ones.
func filterAll(t testing.TB, s *Store) {
	t.Helper()
	ids, err := queryColumn[int64](t.Context(), s.file.ReadDB, "list the chunks", `SELECT id FROM chunk`)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&missingFilters{storage: s.storage}).buildStored(context.Background(), ids); err != nil {
		t.Fatal(err)
	}
}

// naive is the reference for Search: it tries to match every line.
func naive(t testing.TB, s *Store, q SearchQuery) []Line {
	t.Helper()
	var matches func(string) bool
	switch {
	case q.Regexp && q.CaseSensitive:
		matches = regexp.MustCompile(q.Text).MatchString
	case q.Regexp:
		matches = regexp.MustCompile("(?i:" + q.Text + ")").MatchString
	case q.CaseSensitive:
		matches = func(l string) bool { return strings.Contains(l, q.Text) }
	case !strings.ContainsFunc(q.Text, func(r rune) bool { return r >= utf8.RuneSelf }):
		matches = func(l string) bool { return strings.Contains(lowerASCII(l), lowerASCII(q.Text)) }
	default:
		matches = regexp.MustCompile("(?i:" + regexp.QuoteMeta(q.Text) + ")").MatchString
	}
	sub := q.Query
	sub.Limit = 5000
	hits := slices.DeleteFunc(readAll(t, s, sub), func(l Line) bool { return !matches(l.Text) })
	if !q.OldestFirst {
		slices.Reverse(hits)
	}
	return hits
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] >= 'A' && b[i] <= 'Z' {
			b[i] |= 0x20
		}
	}
	return string(b)
}

func wantSame(t testing.TB, q SearchQuery, got []Hit, want []Line) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%q (regexp %v): got %d hits, want %d", q.Text, q.Regexp, len(got), len(want))
	}
	for i := range want {
		if got[i].Line != want[i] {
			t.Fatalf("%q: hit %d: got %+v, want %+v", q.Text, i, got[i].Line, want[i])
		}
	}
}

var corpusWords = []string{"error", "Error", "panic", "GET", "/api/users", "200", "é", "ſtraße", "Kelvin", "\u212aelvin", "undefined", "x", "[", "a.b", "warning", "connection refused", "0x00ff", "ünïcode", "日本"}

func TestSearchEqualsNaiveSearch(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	corpus(t, s, corpusWords, 5000, 1)
	for _, q := range []SearchQuery{
		{Text: "error"}, {Text: "error", CaseSensitive: true}, {Text: "PANIC"}, {Text: "kelvin"}, {Text: "É"}, {Text: "absent-word"},
		{Text: "refused"}, {Text: "x"}, {Text: "r,p"}, {Text: "日本"}, {Text: " "},
		{Text: "err.*undef", Regexp: true}, {Text: "^GET", Regexp: true, CaseSensitive: true}, {Text: "kelvin", Regexp: true}, {Text: "x$|panic .*200", Regexp: true},
		{Text: "[0-9]{3}", Regexp: true}, {Text: "(warn)+ing", Regexp: true}, {Text: "stra(ss|ß)e", Regexp: true}, {Text: "", Regexp: true},
		{Text: "error", Query: Query{Names: []string{"proc1"}}}, {Text: "error", Query: Query{Streams: 1 << Stderr}}, {Text: "x", Query: Query{MinLevel: line.LevelWarn}},
		{Text: "error", Query: Query{Latest: true}},
	} {
		for _, oldest := range []bool{false, true} {
			if q.Text == "" {
				continue
			}
			q.OldestFirst, q.Limit, q.MaxTime = oldest, 1<<30, time.Minute
			m, err := s.Search(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			want := naiveLatest(t, s, q)
			wantSame(t, q, m.Hits, want)
			if m.More {
				t.Errorf("%q: got More after all hits, want the end", q.Text)
			}
			wantPages(t, s, q, want)
			q.CountOnly = true
			if m, err = s.Search(t.Context(), q); err != nil || m.Count != int64(len(want)) || len(m.Hits) != 0 {
				t.Fatalf("%q: got count %d, %v; want %d", q.Text, m.Count, err, len(want))
			}
			q.CountOnly = false
		}
	}
}

// naiveLatest is naive for queries of the latest runs, which a read by cursor does not support.
func naiveLatest(t testing.TB, s *Store, q SearchQuery) []Line {
	if !q.Latest {
		return naive(t, s, q)
	}
	runs, err := s.Runs(t.Context(), RunFilter{Project: q.Project, Names: q.Names, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	q.Latest = false
	for _, r := range runs {
		q.Runs = append(q.Runs, r.ID)
	}
	return naive(t, s, q)
}

// wantPages fails the test unless a search in small pages returns the same hits.
func wantPages(t testing.TB, s *Store, q SearchQuery, want []Line) {
	t.Helper()
	if q.Latest {
		return
	}
	q.Limit = max(7, len(want)/9)
	var got []Hit
	for {
		m, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Hits...)
		if !m.More {
			break
		}
		if q.OldestFirst {
			q.After = m.Next()
		} else {
			q.Before = m.Next()
		}
	}
	wantSame(t, q, got, want)
}

// TestHitOffsetIsStartOfFirstMatch checks that the offset of a search hit is the start of its first
// match in the line.
func TestHitOffsetIsStartOfFirstMatch(t *testing.T) {
	s := openTest(t, Options{})
	const line = "ünder \u212aelvin, kelvin; Éclair 42"
	s.Capture(startRun(s, "/p", "web"), Stdout, time.Now(), []byte(line+"\n"))
	for _, c := range []struct {
		q    SearchQuery
		from string // how the match begins
	}{
		{SearchQuery{Text: "ü"}, "ünder"},
		{SearchQuery{Text: "KELVIN"}, "kelvin;"},
		{SearchQuery{Text: "kelvin", CaseSensitive: true}, "kelvin;"},
		{SearchQuery{Text: "éclair"}, "Éclair"},
		{SearchQuery{Text: "kelvin", Regexp: true}, "\u212aelvin"},
		{SearchQuery{Text: "[0-9]+$", Regexp: true}, "42"},
		{SearchQuery{Text: "$", Regexp: true}, ""},
	} {
		m, err := s.Search(t.Context(), c.q)
		checkError(t, err)
		want := len(line)
		if c.from != "" {
			want = strings.Index(line, c.from)
		}
		if len(m.Hits) != 1 || m.Hits[0].Offset != want {
			t.Errorf("%q, expression %v: got %+v, want one at %d", c.q.Text, c.q.Regexp, m.Hits, want)
		}
	}
}

func TestSearchContextDoesNotOverlap(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 20_000)
	for _, oldest := range []bool{false, true} {
		m, err := s.Search(t.Context(), SearchQuery{Text: `line (1|9|11|10000|20000) of`, Regexp: true, Context: 3, OldestFirst: oldest, MaxTime: time.Minute})
		if err != nil || len(m.Hits) != 5 {
			t.Fatalf("got %d hits, %v; want 5", len(m.Hits), err)
		}
		hits := m.Hits
		if !oldest {
			slices.Reverse(hits)
		}
		var got []string
		for _, h := range hits {
			for _, l := range h.Preceding {
				got = append(got, fmt.Sprint("-", l.Number))
			}
			got = append(got, fmt.Sprint(h.Number))
			for _, l := range h.Following {
				got = append(got, fmt.Sprint("+", l.Number))
			}
		}
		want := "1 +2 +3 +4 -6 -7 -8 9 +10 11 +12 +13 +14 -9997 -9998 -9999 10000 +10001 +10002 +10003 -19997 -19998 -19999 20000"
		if strings.Join(got, " ") != want {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	m, err := s.Search(t.Context(), SearchQuery{Text: "line 10000 of"})
	if err != nil || len(m.Hits) != 1 {
		t.Fatalf("got %+v, %v; want one hit", m, err)
	}
	p, err := s.Read(t.Context(), Query{Before: m.Hits[0].Cursor(), Limit: 2})
	if err != nil || len(p.Lines) != 2 || p.Lines[1].Number != 10_000 {
		t.Fatalf("before the hit's cursor: got %+v, %v; want 2 lines up to 10000", p.Lines, err)
	}
}

// TestSearchContextIsCutToMaxBytes checks a search whose context lines do not all fit: the first
// hits keep theirs, a hit that loses some keeps the nearest, and the result reports the cut.
func TestSearchContextIsCutToMaxBytes(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	for n := 1; n <= 30; n++ {
		s.Capture(run, Stdout, time.Now(), fmt.Appendf(nil, "%d%s %s\n", n, map[bool]string{true: " hit"}[n%10 == 0], strings.Repeat("x", 1000)))
	}
	for maxBytes, want := range map[int]string{
		3 << 10:  "30; 20; 10; cut true",
		5 << 10:  "28 29 30; 20; 10; cut true",
		8 << 10:  "27 28 29 30; 18 19 20; 10; cut true",
		11 << 10: "27 28 29 30; 17 18 19 20 21 22; 10; cut true",
		24 << 10: "27 28 29 30; 17 18 19 20 21 22 23; 7 8 9 10 11 12 13; cut false",
	} {
		m, err := s.Search(t.Context(), SearchQuery{Text: "hit", Context: 3, Query: Query{MaxBytes: maxBytes}})
		checkError(t, err)
		var got strings.Builder
		for _, h := range m.Hits {
			lines := slices.Concat(h.Preceding, []Line{h.Line}, h.Following)
			for i, l := range lines {
				if i > 0 {
					got.WriteByte(' ')
				}
				fmt.Fprint(&got, l.Number)
			}
			got.WriteString("; ")
		}
		if fmt.Fprintf(&got, "cut %v", m.ContextCut); got.String() != want {
			t.Errorf("%d bytes: got %s, want %s", maxBytes, &got, want)
		}
	}
}

// TestUnclosedQuoteEndsWithExpression checks that a \Q quote without \E ends with the search
// expression, in searches with and without case.
func TestUnclosedQuoteEndsWithExpression(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	s.Capture(run, Stdout, time.Now(), []byte("one FOO(BAR\nand foo(bar\nBAR\n"))
	for text, want := range map[string]int64{`\Qfoo(bar`: 2, `one|\Qfoo(`: 2, `^one|^BAR`: 2} {
		m, err := s.Search(t.Context(), SearchQuery{Text: text, Regexp: true})
		if err != nil || m.Count != want {
			t.Errorf("%s: got %+v, %v; want %d hits", text, m, err, want)
		}
	}
}

func TestSearchRefusesBadPatterns(t *testing.T) {
	s := openTest(t, Options{})
	for _, q := range []SearchQuery{{Text: ""}, {Text: "(", Regexp: true}, {Text: "\xff"}, {Text: "one\ntwo"}, {Text: strings.Repeat("x", match.MaxPattern+1)}, {Text: `(?P<x`, Regexp: true}} {
		if _, err := s.Search(t.Context(), q); !errors.Is(err, match.ErrPattern) {
			t.Errorf("%.20q: got %v, want ErrPattern", q.Text, err)
		}
	}
	if _, err := s.Search(t.Context(), SearchQuery{Text: "x", Query: Query{After: "nonsense!"}}); !errors.Is(err, ErrCursor) {
		t.Errorf("invalid cursor: got %v, want ErrCursor", err)
	}
}

func TestSearchTimeIsBounded(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 100_000)
	endRun(s, run)
	flush(t, s)
	q := SearchQuery{Text: `[0-9]x|e$y`, Regexp: true, MaxTime: time.Nanosecond}
	var lines int64
	for searches := 1; ; searches++ {
		m, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		lines += m.Lines
		if !m.More {
			if searches < 5 || lines != 100_000 {
				t.Fatalf("got %d lines covered in %d searches of a nanosecond each, want 100000 in at least 5", lines, searches)
			}
			return
		}
		q.Before = m.Next()
	}
}

func TestFiltersAreBuiltAndUsed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	s := openTest(t, Options{Path: path})
	run := startRun(s, "/p", "web")
	checkError(t, putAll(s, run, 1, 200_000))
	endRun(s, run)
	flush(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Options{Path: path})
	buildFilters(t, s)
	m, err := s.Search(t.Context(), SearchQuery{Text: "line 54321 of", MaxTime: time.Minute})
	if err != nil || len(m.Hits) != 1 {
		t.Fatalf("got %d hits, %v; want 1", len(m.Hits), err)
	}
	if m.Lines != 200_000 || m.ReadBytes > 2*chunkBytes {
		t.Errorf("got %d lines covered and %d bytes read, want 200000 and at most %d", m.Lines, m.ReadBytes, 2*chunkBytes)
	}
}

// FuzzSearch compares the hits of Search with those of the simple search naive.
func FuzzSearch(f *testing.F) {
	f.Add("error", false, false, false)
	f.Add("err.*(undefined|x$)", true, false, true)
	f.Add("K", false, false, false)
	f.Add("[k-s]+é", true, false, false)
	f.Add("a{2,3}(b|c)*", true, true, true)
	s, err := Open(f.Context(), Options{Path: filepath.Join(f.TempDir(), "pmcp.db")})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	corpus(f, s, corpusWords, 4000, 2)
	all := readAll(f, s, Query{Limit: 5000})
	f.Fuzz(func(t *testing.T, text string, isExpr, caseSensitive, oldest bool) {
		q := SearchQuery{Text: text, Regexp: isExpr, CaseSensitive: caseSensitive, OldestFirst: oldest, Query: Query{Limit: 1 << 30}, MaxTime: time.Minute}
		m, err := s.Search(t.Context(), q)
		if errors.Is(err, match.ErrPattern) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if isExpr {
			if _, err := regexp.Compile(text); err != nil {
				return // the expression is valid only with the flags that the search puts around it
			}
		}
		wantSame(t, q, m.Hits, naiveIn(all, q))
	})
}

// naiveIn is like naive, for lines that have already been read.
func naiveIn(all []Line, q SearchQuery) []Line {
	expr := q.Text
	if !q.Regexp {
		expr = regexp.QuoteMeta(expr)
	}
	if !q.CaseSensitive {
		expr = "(?i:" + expr + ")"
	}
	re := regexp.MustCompile(expr)
	var hits []Line
	for _, l := range all {
		found := re.MatchString(l.Text)
		if !q.Regexp && !q.CaseSensitive && match.IsASCII(q.Text) {
			found = strings.Contains(lowerASCII(l.Text), lowerASCII(q.Text))
		}
		if found {
			hits = append(hits, l)
		}
	}
	if !q.OldestFirst {
		slices.Reverse(hits)
	}
	return hits
}
