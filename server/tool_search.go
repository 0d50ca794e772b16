package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/server/args"
	"pmcp/server/project"
)

// defaultMatches is the limit for a call that gives none.
const defaultMatches = 50

type searchLogsArgs struct {
	Query         string `json:"query" natural:"text"`
	Regex         bool   `json:"regex,omitempty"`
	CaseSensitive bool   `json:"case_sensitive,omitempty" schema:"brief"`
	Process       string `json:"process,omitempty"`
	Run           int    `json:"run,omitempty" schema:"brief"`
	Stream        string `json:"stream,omitempty" schema:"brief" enum:"out|err|mcp"`
	Level         string `json:"level,omitempty" schema:"brief" enum:"trace|debug|info|warn|error|fatal"`
	Since         string `json:"since,omitempty" schema:"brief"`
	Until         string `json:"until,omitempty" schema:"brief"`
	After         string `json:"after,omitempty" schema:"brief"`
	Before        string `json:"before,omitempty" schema:"brief"`
	Context       int    `json:"context,omitempty" min:"0" max:"100"`
	pageArgs
	Order     string `json:"order,omitempty" schema:"brief" enum:"newest|oldest"`
	CountOnly bool   `json:"count_only,omitempty"`
	Times     string `json:"times,omitempty" schema:"brief" enum:"none|s|ms"`
}

// searchResult is the answer of search_logs. The matches are in order, each with the
// lines around it.
type searchResult struct {
	Matches    []searchMatch `json:"matches,omitempty"`
	Count      int64         `json:"count"`
	Scanned    int64         `json:"scanned"`
	More       bool          `json:"more,omitempty"`
	NextCursor string        `json:"next_cursor,omitempty"`
	Notice     string        `json:"notice,omitempty"`
	Hint       string        `json:"hint,omitempty"`

	order   string
	context bool                 // lines around the matches were asked for
	seen    []project.ShownLines // the last line of each match with its context
}

// showed returns the last line that the answer shows of each run.
func (r searchResult) showed() []project.ShownLines {
	slices.SortFunc(r.seen, func(a, b project.ShownLines) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(b.Last, a.Last))
	})
	return slices.CompactFunc(r.seen, func(a, b project.ShownLines) bool { return a.Run == b.Run })
}

type searchMatch struct {
	Name   string   `json:"name"`
	Run    int      `json:"run"`
	Line   string   `json:"line"`
	Cursor string   `json:"cursor,omitempty"` // just after the match; get_logs takes it as before or after
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`

	day  string
	head string // what the line begins with and the header of the text has already
}

// texts returns the matches, those of one run together, below a header for each day.
func (r *searchResult) texts() (lines []string) {
	type run struct {
		name   string
		number int
	}
	byRun := make(map[run][]*searchMatch)
	var runs []run
	for i := range r.Matches {
		m := &r.Matches[i]
		of := run{m.Name, m.Run}
		if byRun[of] == nil {
			runs = append(runs, of)
		}
		byRun[of] = append(byRun[of], m)
	}
	hit, around := "", ""
	if r.context {
		hit, around = "> ", "  "
	}
	for _, of := range runs {
		day := ""
		for _, m := range byRun[of] {
			if m.day != day {
				day = m.day
				lines = append(lines, fmt.Sprintf("--- %s %s run %d ---", day, m.Name, m.Run))
			}
			if m.Cursor != "" {
				lines = append(lines, fmt.Sprintf("--- cursor %s ---", m.Cursor))
			}
			for _, l := range m.Before {
				lines = append(lines, around+strings.TrimPrefix(l, m.head))
			}
			lines = append(lines, hit+strings.TrimPrefix(m.Line, m.head))
			for _, l := range m.After {
				lines = append(lines, around+strings.TrimPrefix(l, m.head))
			}
		}
	}
	return lines
}

func (r searchResult) write(t *answerText) {
	t.line("%s in %s", countNoun(r.Count, "match", "matches"), lineCount(r.Scanned))
	t.output(r.texts(), nil)
	if r.More {
		t.line("more: true; continue with %s: %s", r.order, r.NextCursor)
	}
	t.hint(r.Hint)
}

func searchLogsTool() tool {
	return define(tool{
		name: "search_logs", title: "Search logs", toolset: setLogs,
		description: "Finds lines in all logs. Also run, stream, level, since, until, after, before, times as in get_logs; case_sensitive; order: oldest.",
		hints:       hints{readOnly: true},
	}, searchLogs)
}

func searchLogs(ctx context.Context, s *call, a searchLogsArgs) (searchResult, error) {
	base, err := logQuery(ctx, s.project, getLogsArgs{
		Process: a.Process, Run: a.Run, Stream: a.Stream, Level: a.Level, Since: a.Since, Until: a.Until,
	})
	if err != nil {
		return searchResult{}, err
	}
	base.Latest, base.Newest = false, false
	base.After, base.Before = a.After, a.Before
	base.Limit, base.MaxBytes = cmp.Or(a.Limit, defaultMatches), logLimit(a.MaxBytes)
	view := logView{names: len(base.Names) != 1, maxLineBytes: min(defaultMaxLineBytes, base.MaxBytes/2), times: a.Times}
	for {
		found, err := s.project.Search(ctx, logstore.SearchQuery{
			Query: base, Text: a.Query, Regexp: a.Regex, CaseSensitive: a.CaseSensitive,
			Context: a.Context, OldestFirst: a.Order == "oldest", CountOnly: a.CountOnly, LineBytes: lineOverhead,
		})
		if err != nil {
			return searchResult{}, err
		}
		r := showMatches(found, &a, view)
		size := answerSize(r)
		if size <= base.MaxBytes || len(r.Matches) <= 1 {
			return r, nil
		}
		base.Limit = max(1, min(len(r.Matches)-1, len(r.Matches)*base.MaxBytes/size)) // the search does not count JSON's escapes
	}
}

// showMatches returns the matches in found as an answer. A match has a cursor if the call
// is likely to continue from it: to lines around it, or to matches that are not shown.
func showMatches(found *logstore.Matches, a *searchLogsArgs, view logView) searchResult {
	r := searchResult{Count: found.Count, Scanned: found.Lines, More: found.More, order: "before", context: a.Context > 0}
	if a.Order == "oldest" {
		r.order = "after"
	}
	if r.More {
		r.NextCursor = found.Next()
	}
	for i := range found.Hits {
		hit := &found.Hits[i]
		run := found.Runs[hit.Run]
		m := searchMatch{
			Name: run.Name, Run: run.Number, Line: view.matchText(&hit.Line, run.Name, hit.Offset),
			Before: view.contextText(hit.Preceding, run.Name), After: view.contextText(hit.Following, run.Name),
			day: dayOf(&hit.Line), head: view.matchHead(&hit.Line, run.Name),
		}
		if r.More || r.context {
			m.Cursor = hit.Cursor()
		}
		r.Matches = append(r.Matches, m)
		last := hit.Line
		if n := len(hit.Following); n > 0 {
			last = hit.Following[n-1]
		}
		r.seen = append(r.seen, project.ShownLines{Run: last.Run, First: last.Number, Last: last.Number, At: last.At})
		r.Notice = outputNotice
	}
	if found.ContextCut {
		r.Hint = "context left out; raise max_bytes"
	}
	if n := int64(len(found.Gaps)); n > 0 {
		r.Hint = strings.TrimPrefix(r.Hint+"; "+countNoun(n, "part", "parts")+" of the log could not be searched: damaged; get_logs shows the gaps", "; ")
	}
	return r
}

// matchText returns a line of a search result. The line includes its date, since
// matches come from any day. If the line is cut, the text at offset is kept.
func (v logView) matchText(l *logstore.Line, name string, offset int) string {
	head := v.matchHead(l, name)
	v.names = false // the head has it
	return head + v.prefix(l, name) + cutAround(l.Text, offset, v.maxLineBytes)
}

// matchHead returns how matchText begins: with the day and the name, if it has them.
func (v logView) matchHead(l *logstore.Line, name string) (head string) {
	if v.times != "none" {
		head = dayOf(l) + " "
	}
	if v.names {
		head += name + " "
	}
	return head
}

func dayOf(l *logstore.Line) string { return l.At.Local().Format(time.DateOnly) }

func (v logView) contextText(lines []logstore.Line, name string) []string {
	var shown []string
	for i := range lines {
		shown = append(shown, v.matchText(&lines[i], name, 0))
	}
	return shown
}

type clearLogsArgs struct {
	Process string `json:"process" jsonschema:"a,b or *"`
	Until   string `json:"until,omitempty" omitted:"all lines are removed"`
}

type clearLogsResult struct {
	Lines int64 `json:"lines"`
	Bytes int64 `json:"bytes"`
}

func (r clearLogsResult) write(t *answerText) {
	t.line("removed %s, %s", lineCount(r.Lines), formatBytes(r.Bytes))
}

func clearLogsTool() tool {
	return define(tool{
		name: "clear_logs", title: "Clear logs", toolset: setLogs,
		description: "Removes log lines for good: all, or those older than until.",
		hints:       hints{destructive: true},
	}, clearLogs)
}

func clearLogs(ctx context.Context, s *call, a clearLogsArgs) (clearLogsResult, error) {
	names, err := s.project.Resolve(ctx, a.Process, s.reads)
	if err != nil {
		return clearLogsResult{}, err
	}
	until, err := args.ParseUntil(a.Until, time.Now())
	if err != nil {
		return clearLogsResult{}, err
	}
	lines, bytes, err := s.project.ClearLogs(ctx, names, until)
	return clearLogsResult{Lines: lines, Bytes: bytes}, err
}
