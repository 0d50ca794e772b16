package server

import (
	"context"
	"fmt"
	"time"

	"pmcp/logstore"
)

// maxPageLines bounds the lines of one answer.
const maxPageLines = 10_000

type getLogsArgs struct {
	Process      string `json:"process,omitempty" jsonschema:"names with commas; default all"`
	Run          int    `json:"run,omitempty" jsonschema:"number; -1: latest"`
	Stream       string `json:"stream,omitempty" enum:"out|err|mcp"`
	Level        string `json:"level,omitempty" jsonschema:"at least" enum:"trace|debug|info|warn|error|fatal"`
	Since        string `json:"since,omitempty" jsonschema:"RFC 3339, date, or 10m, 1d, 2w"`
	Until        string `json:"until,omitempty"`
	After        string `json:"after,omitempty" jsonschema:"cursor, or start"`
	Before       string `json:"before,omitempty" jsonschema:"cursor"`
	Limit        int    `json:"limit,omitempty" min:"1" max:"10000"`
	MaxBytes     int    `json:"max_bytes,omitempty" min:"256" max:"8388608"`
	MaxLineBytes int    `json:"max_line_bytes,omitempty" min:"16" max:"8388608"`
}

// logsResult is the answer of the log tools.
type logsResult struct {
	logResult
	TimedOut bool   `json:"timed_out,omitempty"`
	Hint     string `json:"hint,omitempty"`
}

func (r logsResult) text() string {
	text := r.logResult.text()
	if r.TimedOut {
		text += "timed out: nothing new\n"
	}
	if r.Hint != "" {
		text += "hint: " + r.Hint + "\n"
	}
	return text
}

func getLogsTool() tool {
	return define(tool{
		name: "get_logs", title: "Read logs", toolset: setLogs,
		description: "Reads logs page by page, oldest line first. Alone: the end of the latest run.",
		hints:       hints{readOnly: true, idempotent: true},
	}, getLogs)
}

func getLogs(ctx context.Context, s *Server, a getLogsArgs) (logsResult, error) {
	q, err := s.logQuery(ctx, a)
	if err != nil {
		return logsResult{}, err
	}
	page, err := s.o.Store.Read(ctx, q)
	if err != nil {
		return logsResult{}, err
	}
	view := logView{names: len(q.Names) != 1, maxBytes: a.MaxBytes, maxLineBytes: a.MaxLineBytes, newest: q.Newest || q.Before != ""}
	r := logsResult{logResult: view.render(page)}
	if len(page.Lines) == 0 {
		r.Hint = "no lines"
	}
	return r, nil
}

// logQuery is the query that the arguments of get_logs mean.
func (s *Server) logQuery(ctx context.Context, a getLogsArgs) (logstore.Query, error) {
	now := time.Now()
	q := logstore.Query{Project: s.o.Manager.Project(), After: a.After, Before: a.Before, Limit: a.Limit}
	if a.After != "" && a.Before != "" {
		return q, fmt.Errorf("arguments after and before: give at most one of them")
	}
	var err error
	if q.Names, err = s.resolveNames(ctx, a.Process); err != nil {
		return q, err
	}
	if q.Since, q.Until, err = parseSpan(a.Since, a.Until, now); err != nil {
		return q, err
	}
	q.Streams, q.MinLevel = streamSet(a.Stream), minLevel(a.Level)
	if a.Run != 0 {
		if q.Runs, err = s.runIDs(ctx, q.Names, a.Run); err != nil {
			return q, err
		}
	}
	if a.Run == 0 && a.Since == "" && a.Until == "" && a.After == "" && a.Before == "" {
		q.Latest, q.Newest = true, true
	}
	return q, nil
}

// runIDs are the runs that a number means for each of names (nil: all).
func (s *Server) runIDs(ctx context.Context, names []string, number int) ([]int64, error) {
	runs, err := s.o.Store.Runs(ctx, logstore.RunFilter{Project: s.o.Manager.Project(), Names: names, Number: number})
	if err != nil {
		return nil, fmt.Errorf("cannot list runs: %w", err)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("argument run: there is no run %d%s", number, s.runRange(ctx, names))
	}
	ids := make([]int64, len(runs))
	for i, run := range runs {
		ids[i] = run.ID
	}
	return ids, nil
}

// runRange says which runs there are, for an error.
func (s *Server) runRange(ctx context.Context, names []string) string {
	if len(names) != 1 {
		return ""
	}
	latest, ok, err := s.latestRun(ctx, names[0])
	if err != nil || !ok {
		return fmt.Sprintf(" of %s: it never ran", names[0])
	}
	return fmt.Sprintf(" of %s; the latest is %d", names[0], latest.Number)
}

// streamSet is the bit set of a stream argument; 0 for all.
func streamSet(name string) uint8 {
	for stream, n := range streamNames {
		if n == name {
			return 1 << stream
		}
	}
	return 0
}

// minLevel reads a level argument, whose enum only holds names that are known.
func minLevel(name string) logstore.Level {
	level, _ := logstore.ParseLevel(name)
	return level
}
