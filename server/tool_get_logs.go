package server

import (
	"cmp"
	"context"
	"fmt"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/server/project"
)

// maxPageLines bounds the number of lines in one answer.
const maxPageLines = 10_000

type getLogsArgs struct {
	Process string `json:"process,omitempty"`
	Run     int    `json:"run,omitempty" jsonschema:"-1: latest"`
	Stream  string `json:"stream,omitempty" schema:"brief" enum:"out|err|mcp"`
	Level   string `json:"level,omitempty" schema:"flat" jsonschema:"warn: from warn on" enum:"trace|debug|info|warn|error|fatal"`
	Since   string `json:"since,omitempty" jsonschema:"20:08, 10m, 2d"`
	Until   string `json:"until,omitempty" schema:"brief"`
	After   string `json:"after,omitempty" jsonschema:"cursor or start"`
	Before  string `json:"before,omitempty"`
	pageArgs
	MaxLineBytes int    `json:"max_line_bytes,omitempty" schema:"brief" min:"16" max:"8388608"`
	Times        string `json:"times,omitempty" schema:"brief" enum:"none|s|ms"`
}

// logsResult is the answer of the log tools.
type logsResult struct {
	logResult
	TimedOut bool   `json:"timed_out,omitempty"`
	Hint     string `json:"hint,omitempty"`
}

func (r logsResult) write(t *answerText) {
	r.writeTo(t, nil)
	if r.TimedOut {
		t.line("timed out: nothing new")
	}
	t.hint(r.Hint)
}

func getLogsTool() tool {
	return define(tool{
		name: "get_logs", title: "Read logs", toolset: setLogs,
		description: "Reads logs page by page; by default the end of the latest run. Also stream (out, err, mcp), until, max_line_bytes, times.",
		hints:       hints{readOnly: true},
	}, getLogs)
}

func getLogs(ctx context.Context, s *call, a getLogsArgs) (logsResult, error) {
	q, err := logQuery(ctx, s.project, a)
	if err != nil {
		return logsResult{}, err
	}
	page, err := s.project.Read(ctx, q)
	if err != nil {
		return logsResult{}, err
	}
	view := logView{names: len(q.Names) != 1, maxBytes: a.MaxBytes, maxLineBytes: a.MaxLineBytes, times: a.Times, newest: q.Newest || q.Before != ""}
	r := logsResult{logResult: logSource{page: page, view: view}.renderNoting(s.project)}
	if len(page.Lines) == 0 {
		r.Hint = "no lines"
	}
	r.fit(logLimit(a.MaxBytes), func() int { return answerSize(r) })
	if a.Stream != "" || a.Level != "" {
		r.setFiltered()
	}
	return r, nil
}

// logLimit returns the most bytes of an answer of a log tool beside the events. maxBytes
// is the argument max_bytes.
func logLimit(maxBytes int) int { return withoutEvents(cmp.Or(maxBytes, defaultMaxBytes)) }

func withoutEvents(limit int) int { return limit - min(eventsMaxBytes, limit/4) }

// logQuery returns the query for the arguments of get_logs.
func logQuery(ctx context.Context, p *project.Project, a getLogsArgs) (logstore.Query, error) {
	if a.After != "" && a.Before != "" {
		return logstore.Query{}, fmt.Errorf("arguments after and before: give at most one of them")
	}
	sel, err := p.Select(ctx, a.Process, a.Run, a.Since, a.Until)
	if err != nil {
		return logstore.Query{}, err
	}
	q := logstore.Query{
		Names: sel.Names, Runs: sel.Runs, Since: sel.Since, Until: sel.Until, Streams: streamSet(a.Stream), MinLevel: minLevel(a.Level),
		After: a.After, Before: a.Before, Limit: a.Limit,
	}
	if a.Run == 0 && a.Since == "" && a.Until == "" && a.After == "" && a.Before == "" {
		q.Latest, q.Newest = true, true
	}
	return q, nil
}

// streamSet returns the bit set for a stream argument; 0 stands for all streams.
func streamSet(name string) uint8 {
	for stream, n := range logstore.StreamNames {
		if n == name {
			return 1 << stream
		}
	}
	return 0
}

// minLevel parses a level argument. It ignores errors, since the enum allows only
// known names.
func minLevel(name string) line.Level {
	level, _ := line.ParseLevel(name)
	return level
}
