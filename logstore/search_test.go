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
)

// corpus writes lines of several processes to a Store: some stored as chunks, some as tail rows, some in memory only.
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
		used := words[:1+rnd.IntN(len(words))] // so that chunks differ in what they lack
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

// filterAll makes the filters of all stored chunks, the small ones as well.
func filterAll(t testing.TB, s *Store) {
	t.Helper()
	rows, err := s.file.read.Query(`SELECT id FROM chunk`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := scanIDs(rows)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&worker{store: s}).buildStored(context.Background(), ids); err != nil {
		t.Fatal(err)
	}
}

// naive is the reference: a look at every line.
func naive(t testing.TB, s *Store, q SearchQuery) []Line {
	t.Helper()
	var match func(string) bool
	switch {
	case q.Regexp && q.CaseSensitive:
		match = regexp.MustCompile(q.Text).MatchString
	case q.Regexp:
		match = regexp.MustCompile("(?i:" + q.Text + ")").MatchString
	case q.CaseSensitive:
		match = func(l string) bool { return strings.Contains(l, q.Text) }
	case ascii(q.Text):
		match = func(l string) bool { return strings.Contains(lowerASCII(l), lowerASCII(q.Text)) }
	default:
		match = regexp.MustCompile("(?i:" + regexp.QuoteMeta(q.Text) + ")").MatchString
	}
	sub := q.Query
	sub.Limit = 5000
	hits := slices.DeleteFunc(readAll(t, s, sub), func(l Line) bool { return !match(l.Text) })
	if !q.OldestFirst {
		slices.Reverse(hits)
	}
	return hits
}

func lowerASCII(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] = lower(b[i])
	}
	return string(b)
}

func wantSame(t testing.TB, q SearchQuery, got []Hit, want []Line) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%q (regexp %v): %d hits, want %d", q.Text, q.Regexp, len(got), len(want))
	}
	for i := range want {
		if got[i].Line != want[i] {
			t.Fatalf("%q: hit %d is %+v, want %+v", q.Text, i, got[i].Line, want[i])
		}
	}
}

var corpusWords = []string{"error", "Error", "panic", "GET", "/api/users", "200", "é", "ſtraße", "Kelvin", "\u212aelvin", "undefined", "x", "[", "a.b", "warning", "connection refused", "0x00ff", "ünïcode", "日本"}

func TestSearchEqualsNaive(t *testing.T) {
	s := openTest(t, Options{})
	corpus(t, s, corpusWords, 5000, 1)
	for _, q := range []SearchQuery{
		{Text: "error"}, {Text: "error", CaseSensitive: true}, {Text: "PANIC"}, {Text: "kelvin"}, {Text: "É"}, {Text: "absent-word"},
		{Text: "refused"}, {Text: "x"}, {Text: "r,p"}, {Text: "日本"}, {Text: " "},
		{Text: "err.*undef", Regexp: true}, {Text: "^GET", Regexp: true, CaseSensitive: true}, {Text: "kelvin", Regexp: true}, {Text: "x$|panic .*200", Regexp: true},
		{Text: "[0-9]{3}", Regexp: true}, {Text: "(warn)+ing", Regexp: true}, {Text: "stra(ss|ß)e", Regexp: true}, {Text: "", Regexp: true},
		{Text: "error", Query: Query{Names: []string{"proc1"}}}, {Text: "error", Query: Query{Streams: 1 << Stderr}}, {Text: "x", Query: Query{MinLevel: LevelWarn}},
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
				t.Errorf("%q: more than everything", q.Text)
			}
			wantPages(t, s, q, want)
			q.CountOnly = true
			if m, err = s.Search(t.Context(), q); err != nil || m.Count != int64(len(want)) || len(m.Hits) != 0 {
				t.Fatalf("%q: count %d, want %d, %v", q.Text, m.Count, len(want), err)
			}
			q.CountOnly = false
		}
	}
}

// naiveLatest is naive where the query may ask for the latest runs, which a read by cursor does not.
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

// wantPages fails unless the same hits come a few at a time.
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

// TestHitOffset: a hit says where the first match begins.
func TestHitOffset(t *testing.T) {
	s := openTest(t, Options{})
	const line = "ünder \u212aelvin, kelvin; Éclair 42"
	s.Capture(startRun(s, "/p", "web"), Stdout, time.Now(), []byte(line+"\n"))
	for _, c := range []struct {
		q    SearchQuery
		from string // what the match begins with
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
			t.Errorf("%q, expression %v: %+v, want one at %d", c.q.Text, c.q.Regexp, m.Hits, want)
		}
	}
}

func TestSearchContext(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 20_000)
	for _, oldest := range []bool{false, true} {
		m, err := s.Search(t.Context(), SearchQuery{Text: `line (1|9|11|10000|20000) of`, Regexp: true, Context: 3, OldestFirst: oldest, MaxTime: time.Minute})
		if err != nil || len(m.Hits) != 5 {
			t.Fatalf("%d hits, %v", len(m.Hits), err)
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
		t.Fatal(err)
	}
	p, err := s.Read(t.Context(), Query{Before: m.Hits[0].Cursor(), Limit: 2})
	if err != nil || len(p.Lines) != 2 || p.Lines[1].Number != 10_000 {
		t.Fatalf("%+v, %v", p.Lines, err)
	}
}

// TestContextCut: where context does not fit, the hits that come first keep theirs, of one that loses
// some the nearest lines stay, and the result says so.
func TestContextCut(t *testing.T) {
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
			t.Errorf("%d bytes: %s, want %s", maxBytes, &got, want)
		}
	}
}

// TestOpenQuote: what \Q begins ends with the expression, whatever the case.
func TestOpenQuote(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	s.Capture(run, Stdout, time.Now(), []byte("one FOO(BAR\nand foo(bar\nBAR\n"))
	for text, want := range map[string]int64{`\Qfoo(bar`: 2, `one|\Qfoo(`: 2, `^one|^BAR`: 2} {
		m, err := s.Search(t.Context(), SearchQuery{Text: text, Regexp: true})
		if err != nil || m.Count != want {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
}

func TestSearchRefusesBadPatterns(t *testing.T) {
	s := openTest(t, Options{})
	for _, q := range []SearchQuery{{Text: ""}, {Text: "(", Regexp: true}, {Text: "\xff"}, {Text: "one\ntwo"}, {Text: strings.Repeat("x", maxPattern+1)}, {Text: `(?P<x`, Regexp: true}} {
		if _, err := s.Search(t.Context(), q); !errors.Is(err, ErrPattern) {
			t.Errorf("%.20q: %v", q.Text, err)
		}
	}
	if _, err := s.Search(t.Context(), SearchQuery{Text: "x", Query: Query{After: "nonsense!"}}); !errors.Is(err, ErrCursor) {
		t.Errorf("cursor: %v", err)
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
				t.Fatalf("%d lines covered in %d searches of a nanosecond each", lines, searches)
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
		t.Fatalf("%d hits, %v", len(m.Hits), err)
	}
	if m.Lines != 200_000 || m.ReadBytes > 2*chunkBytes {
		t.Errorf("covered %d lines, read %d bytes", m.Lines, m.ReadBytes)
	}
}

func TestTrigramFilter(t *testing.T) {
	var f filterBuilder
	text := []byte("The quick brown Fox jumps over the lazy dog, 日本語 \x00\xff and more.\n")
	for n := range text {
		bits := f.build(text[:n])
		for i := range n {
			for j := i; j < n; j++ {
				for _, word := range [][]byte{text[i:j], []byte(strings.ToUpper(string(text[i:j])))} {
					if ascii(string(word)) && !mayContain(bits, trigramsOf(word)) {
						t.Fatalf("%q is not found in %q", word, text[:n])
					}
				}
			}
		}
	}
	full := f.build([]byte(strings.Repeat("some words that fill it ", 10)))
	if mayContain(full, trigramsOf([]byte("absent"))) {
		t.Error("the filter says yes to what is not there")
	}
}

// FuzzSearch checks any search against the reference.
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
		if errors.Is(err, ErrPattern) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if isExpr {
			if _, err := regexp.Compile(text); err != nil {
				return // the flags around it made it a valid one
			}
		}
		wantSame(t, q, m.Hits, naiveIn(all, q))
	})
}

// naiveIn is naive over lines that are read already.
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
		if !q.Regexp && !q.CaseSensitive && ascii(q.Text) {
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
