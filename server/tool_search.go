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
	CaseSensitive bool   `json:"case_sensitive,omitempty"`
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
	Order     string `json:"order,omitempty" enum:"newest|oldest"`
	CountOnly bool   `json:"count_only,omitempty"`
	Times     string `json:"times,omitempty" enum:"none|s|ms"`
}

// searchResult is the answer of search_logs. Each match has its cursor and the
// lines around it, in order.
type searchResult struct {
	Matches    []searchMatch `json:"matches,omitempty"`
	Count      int64         `json:"count"`
	Scanned    int64         `json:"scanned"`
	More       bool          `json:"more,omitempty"`
	NextCursor string        `json:"next_cursor,omitempty"`
	Notice     string        `json:"notice,omitempty"`
	Hint       string        `json:"hint,omitempty"`

	order string
	seen  []project.ShownLines // the last line of each match with its context
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
	Cursor string   `json:"cursor"` // just after the match; get_logs takes it as before or after
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

func (r searchResult) write(t *answerText) {
	t.line("%s in %s", countNoun(r.Count, "match", "matches"), lineCount(r.Scanned))
	var lines []string
	for _, m := range r.Matches {
		lines = append(lines, fmt.Sprintf("--- %s run %d, cursor %s ---", m.Name, m.Run, m.Cursor))
		for _, l := range m.Before {
			lines = append(lines, "  "+l)
		}
		lines = append(lines, "> "+m.Line)
		for _, l := range m.After {
			lines = append(lines, "  "+l)
		}
	}
	t.output(lines, nil)
	if r.More {
		t.line("more: true; continue with %s: %s", r.order, r.NextCursor)
	}
	t.hint(r.Hint)
}

func searchLogsTool() tool {
	return define(tool{
		name: "search_logs", title: "Search logs", toolset: setLogs,
		description: "Finds lines in all logs, with a cursor to each. Also run, stream, level, since, until, after, before as in get_logs.",
		hints:       hints{readOnly: true, idempotent: true},
		waits:       always,
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
		r := showMatches(found, a.Order == "oldest", view)
		size := answerSize(r)
		if size <= base.MaxBytes || len(r.Matches) <= 1 {
			return r, nil
		}
		base.Limit = max(1, min(len(r.Matches)-1, len(r.Matches)*base.MaxBytes/size)) // the search does not count JSON's escapes
	}
}

// showMatches returns the matches in found as an answer.
func showMatches(found *logstore.Matches, oldest bool, view logView) searchResult {
	r := searchResult{Count: found.Count, Scanned: found.Lines, More: found.More, order: "before"}
	if oldest {
		r.order = "after"
	}
	if r.More {
		r.NextCursor = found.Next()
	}
	for i := range found.Hits {
		hit := &found.Hits[i]
		run := found.Runs[hit.Run]
		r.Matches = append(r.Matches, searchMatch{
			Name: run.Name, Run: run.Number, Line: view.matchText(&hit.Line, run.Name, hit.Offset), Cursor: hit.Cursor(),
			Before: view.contextText(hit.Preceding, run.Name), After: view.contextText(hit.Following, run.Name),
		})
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
	date := l.At.Local().Format(time.DateOnly) + " "
	if v.times == "none" {
		date = ""
	}
	return date + v.prefix(l, name) + cutAround(l.Text, offset, v.maxLineBytes)
}

// contextText returns the lines around a match.
func (v logView) contextText(lines []logstore.Line, name string) []string {
	var shown []string
	for i := range lines {
		shown = append(shown, v.matchText(&lines[i], name, 0))
	}
	return shown
}

type clearLogsArgs struct {
	Process string `json:"process" jsonschema:"names with commas, or *"`
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
		hints:       hints{destructive: true, idempotent: true},
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
