package server

import (
	"context"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/server/project"
)

// afterShown as a cursor stands for the end of what was shown on this connection.
const afterShown = "shown"

type tailLogsArgs struct {
	Process string `json:"process,omitempty" jsonschema:"a,b"`
	Stream  string `json:"stream,omitempty" schema:"brief" enum:"out|err|mcp"`
	Level   string `json:"level,omitempty" schema:"brief" enum:"trace|debug|info|warn|error|fatal"`
	After   string `json:"after,omitempty" jsonschema:"cursor or shown"`
	WaitMS  int    `json:"wait_ms,omitempty" min:"0" max:"600000"`
	Screen  bool   `json:"screen,omitempty" schema:"brief"`
	outputArgs
	MaxLineBytes int    `json:"max_line_bytes,omitempty" schema:"brief" min:"16" max:"8388608"`
	Times        string `json:"times,omitempty" schema:"brief" enum:"none|s|ms"`
}

func tailLogsTool() tool {
	return define(tool{
		name: "tail_logs", title: "Tail logs", toolset: setLogs,
		description: "The last lines; after: only newer ones; wait_ms: waits for them. screen: what a pty shows. Also stream, level, max_line_bytes, times.",
		hints:       hints{readOnly: true},
	}, tailLogs)
}

func tailLogs(ctx context.Context, s *call, a tailLogsArgs) (logsResult, error) {
	if a.Screen {
		return screenLogs(ctx, s, a)
	}
	names, err := s.project.Resolve(ctx, a.Process, s.reads)
	if err != nil {
		return logsResult{}, err
	}
	return tail(ctx, s, names, a)
}

// tail is tailLogs for processes that were resolved.
func tail(ctx context.Context, s *call, names []string, a tailLogsArgs) (_ logsResult, err error) {
	q := logstore.Query{
		Names: names, Streams: streamSet(a.Stream), MinLevel: minLevel(a.Level),
		After: a.After, Limit: a.Lines, Latest: a.After == "", Newest: a.After == "",
	}
	if q.Limit == 0 {
		q.Limit = 50
	}
	if a.After == afterShown {
		if q.After, err = s.project.AfterShown(ctx, names, &s.shown); err != nil {
			return logsResult{}, err
		}
	}
	page, err := s.project.Read(ctx, q)
	if err != nil {
		return logsResult{}, err
	}
	r := logsResult{}
	if a.WaitMS > 0 && (len(page.Lines) == 0 || a.After != "" && !page.MoreAfter) {
		if a.After == "" {
			q.After, q.Latest, q.Newest = page.Next(), false, false
		}
		defer reportProgress(ctx, func() string { return "no line yet" })()
		page, r.TimedOut, err = s.project.Follow(ctx, q, time.Duration(a.WaitMS)*time.Millisecond)
		if err != nil {
			return r, err
		}
	}
	view := logView{names: len(names) != 1, maxBytes: a.MaxBytes, maxLineBytes: a.MaxLineBytes, times: a.Times, newest: q.Newest}
	r.logResult = logSource{page: page, view: view}.renderNoting(s.project)
	r.fit(logLimit(a.MaxBytes), func() int { return answerSize(r) })
	if a.Stream != "" || a.Level != "" {
		r.setFiltered()
	}
	if !q.Newest || !r.More { // the caller has the earlier lines, or there are none
		r.PrevCursor = ""
	}
	if len(page.Lines) == 0 {
		r.Hint = silenceReason(ctx, s.project, names)
	} else if a.After == "" {
		r.Hint = changedHint(ctx, s.project, names)
	}
	return r, nil
}

// silenceReason returns the hint for an answer without lines. The hint states the
// state of each process.
func silenceReason(ctx context.Context, p *project.Project, names []string) string {
	var states []string
	for _, name := range names {
		if run, err := p.Find(ctx, name); err == nil && (!run.Stored || run.RunID != 0) {
			p.LookAtSources(ctx, &run)
			states = append(states, lineOf(&run))
		}
	}
	return strings.Join(append([]string{"no lines"}, states...), "; ")
}
