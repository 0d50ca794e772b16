package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"pmcp/logstore"
)

// defaultMatches is the limit where the call gives none.
const defaultMatches = 50

type searchLogsArgs struct {
	Query         string `json:"query"`
	Regex         bool   `json:"regex,omitempty"`
	CaseSensitive bool   `json:"case_sensitive,omitempty"`
	Process       string `json:"process,omitempty"`
	Run           int    `json:"run,omitempty"`
	Stream        string `json:"stream,omitempty" enum:"out|err|mcp"`
	Level         string `json:"level,omitempty" enum:"trace|debug|info|warn|error|fatal"`
	Since         string `json:"since,omitempty"`
	Until         string `json:"until,omitempty"`
	After         string `json:"after,omitempty"`
	Before        string `json:"before,omitempty"`
	Context       int    `json:"context,omitempty" min:"0" max:"100"`
	Limit         int    `json:"limit,omitempty" min:"1" max:"1000"`
	Order         string `json:"order,omitempty" enum:"newest|oldest"`
	CountOnly     bool   `json:"count_only,omitempty"`
	MaxBytes      int    `json:"max_bytes,omitempty" min:"256" max:"8388608"`
}

// searchResult is the answer of search_logs. Each match stands in Matches with
// its cursor; the lines around it in order.
type searchResult struct {
	Matches    []searchMatch `json:"matches,omitempty"`
	Count      int64         `json:"count"`
	Scanned    int64         `json:"scanned"`
	More       bool          `json:"more,omitempty"`
	NextCursor string        `json:"next_cursor,omitempty"`
	Notice     string        `json:"notice,omitempty"`
	Hint       string        `json:"hint,omitempty"`

	order string
}

type searchMatch struct {
	Name   string   `json:"name"`
	Run    int      `json:"run"`
	Line   string   `json:"line"`
	Cursor string   `json:"cursor"` // right behind the match: get_logs takes it as before or after
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

func (r searchResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d matches in %s\n", r.Count, lineCount(r.Scanned))
	if len(r.Matches) > 0 {
		fmt.Fprintf(&b, "[%s]\n", r.Notice)
	}
	for _, m := range r.Matches {
		fmt.Fprintf(&b, "--- %s run %d, cursor %s ---\n", m.Name, m.Run, m.Cursor)
		for _, l := range m.Before {
			b.WriteString("  " + l + "\n")
		}
		b.WriteString("> " + m.Line + "\n")
		for _, l := range m.After {
			b.WriteString("  " + l + "\n")
		}
	}
	if r.More {
		fmt.Fprintf(&b, "more: true; go on with %s: %s\n", r.order, r.NextCursor)
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", r.Hint)
	}
	return b.String()
}

func searchLogsTool() tool {
	return define(tool{
		name: "search_logs", title: "Search logs", toolset: setLogs,
		description: "Finds lines in all logs, with lines around each match and a cursor to it.",
		hints:       hints{readOnly: true, idempotent: true},
		waits:       func(json.RawMessage) bool { return true },
	}, searchLogs)
}

func searchLogs(ctx context.Context, s *Server, a searchLogsArgs) (searchResult, error) {
	base, err := s.logQuery(ctx, getLogsArgs{
		Process: a.Process, Run: a.Run, Stream: a.Stream, Level: a.Level, Since: a.Since, Until: a.Until, Limit: a.Limit,
	})
	if err != nil {
		return searchResult{}, err
	}
	base.Latest, base.Newest = false, false
	base.After, base.Before = a.After, a.Before
	base.Limit, base.MaxBytes = cmp.Or(a.Limit, defaultMatches), cmp.Or(a.MaxBytes, defaultMaxBytes)
	found, err := s.o.Store.Search(ctx, logstore.SearchQuery{
		Query: base, Text: a.Query, Regexp: a.Regex, CaseSensitive: a.CaseSensitive,
		Context: a.Context, OldestFirst: a.Order == "oldest", CountOnly: a.CountOnly, LineBytes: aroundLine,
	})
	if err != nil {
		return searchResult{}, err
	}
	return showMatches(found, a.Order == "oldest", logView{names: len(base.Names) != 1, maxLineBytes: min(defaultMaxLineBytes, base.MaxBytes/2)}), nil
}

// showMatches formats hits.
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
		r.Notice = outputNotice
	}
	if found.ContextCut {
		r.Hint = "context left out; raise max_bytes"
	}
	return r
}

// matchText is a line of a search with its date, since hits come from any day.
// What is at the offset is shown in any case.
func (v logView) matchText(l *logstore.Line, name string, offset int) string {
	return l.At.Local().Format(time.DateOnly) + " " + v.prefix(l, name) + cutAround(l.Text, offset, v.maxLineBytes)
}

func (v logView) contextText(lines []logstore.Line, name string) []string {
	var shown []string
	for i := range lines {
		shown = append(shown, v.matchText(&lines[i], name, 0))
	}
	return shown
}

type clearLogsArgs struct {
	Process string `json:"process" jsonschema:"names with commas, or *"`
	Until   string `json:"until,omitempty" jsonschema:"as in get_logs"`
}

type clearLogsResult struct {
	Lines int64 `json:"lines"`
	Bytes int64 `json:"bytes"`
}

func (r clearLogsResult) text() string {
	return fmt.Sprintf("removed %s, %s\n", lineCount(r.Lines), formatBytes(r.Bytes))
}

func clearLogsTool() tool {
	return define(tool{
		name: "clear_logs", title: "Clear logs", toolset: setLogs,
		description: "Removes log lines for good: all, or those older than until.",
		hints:       hints{destructive: true, idempotent: true},
	}, clearLogs)
}

func clearLogs(ctx context.Context, s *Server, a clearLogsArgs) (clearLogsResult, error) {
	names, err := s.resolveNames(ctx, a.Process)
	if err != nil {
		return clearLogsResult{}, err
	}
	until, err := parseWhen("until", a.Until, time.Now())
	if err != nil {
		return clearLogsResult{}, err
	}
	cleared := names
	if names == nil {
		if cleared, err = s.knownNames(ctx); err != nil {
			return clearLogsResult{}, err
		}
	}
	lines, bytes, err := s.o.Store.Clear(ctx, s.o.Manager.Project(), names, until)
	if err == nil { // without lines as well: errors of ends that printed nothing go too
		for _, name := range cleared {
			s.changed(name)
			if lines > 0 {
				s.cleared(name)
			}
		}
	}
	return clearLogsResult{Lines: lines, Bytes: bytes}, err
}
