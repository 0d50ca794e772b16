package server

import (
	"context"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

type tailLogsArgs struct {
	Process      string `json:"process,omitempty"`
	Lines        int    `json:"lines,omitempty" min:"1" max:"10000"`
	Stream       string `json:"stream,omitempty" enum:"out|err|mcp"`
	Level        string `json:"level,omitempty" enum:"trace|debug|info|warn|error|fatal"`
	After        string `json:"after,omitempty" jsonschema:"cursor: only what is new"`
	WaitMS       int    `json:"wait_ms,omitempty" jsonschema:"wait for a line" min:"0" max:"600000"`
	MaxBytes     int    `json:"max_bytes,omitempty" min:"256" max:"8388608"`
	MaxLineBytes int    `json:"max_line_bytes,omitempty" min:"16" max:"8388608"`
}

func tailLogsTool() tool {
	return define(tool{
		name: "tail_logs", title: "Tail logs", toolset: setLogs,
		description: "The last lines of the latest run; with after what is new, with wait_ms waiting for it.",
		hints:       hints{readOnly: true, idempotent: true},
		waits:       waitsIf(func(a tailLogsArgs) bool { return a.WaitMS > 0 }),
	}, tailLogs)
}

func tailLogs(ctx context.Context, s *Server, a tailLogsArgs) (logsResult, error) {
	names, err := s.resolveNames(ctx, a.Process)
	if err != nil {
		return logsResult{}, err
	}
	q := logstore.Query{
		Project: s.o.Manager.Project(), Names: names, Streams: streamSet(a.Stream), MinLevel: minLevel(a.Level),
		After: a.After, Limit: a.Lines, Latest: a.After == "", Newest: a.After == "",
	}
	if q.Limit == 0 {
		q.Limit = 50
	}
	page, err := s.o.Store.Read(ctx, q)
	if err != nil {
		return logsResult{}, err
	}
	r := logsResult{}
	if len(page.Lines) == 0 && a.WaitMS > 0 {
		q.After, q.Latest, q.Newest = page.Next(), false, false
		defer report(ctx, func() string { return "no line yet" })()
		page, r.TimedOut, err = s.follow(ctx, q, time.Duration(a.WaitMS)*time.Millisecond)
		if err != nil {
			return r, err
		}
	}
	view := logView{names: len(names) != 1, maxBytes: a.MaxBytes, maxLineBytes: a.MaxLineBytes, newest: q.Newest}
	r.logResult = view.render(page)
	if !q.Newest || !r.More { // the caller has what was before, or there is nothing
		r.PrevCursor = ""
	}
	if len(page.Lines) == 0 {
		r.Hint = s.whySilent(ctx, names)
	}
	return r, nil
}

// follow waits for lines until patience is over or, where single processes are
// followed, all of them have ended.
func (s *Server) follow(ctx context.Context, q logstore.Query, patience time.Duration) (page *logstore.Page, timedOut bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(q.Names) > 0 {
		watching, watched := context.WithCancel(waiting)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if s.awaitSilent(watching, q.Names) {
				cancel()
			}
		}()
		defer func() { watched(); <-ended }()
	}
	page, err = s.o.Store.Follow(waiting, q)
	if err != nil || len(page.Lines) > 0 {
		return page, false, err
	}
	if ctx.Err() != nil {
		return page, false, ctx.Err()
	}
	timedOut = waiting.Err() == context.DeadlineExceeded
	page, err = s.o.Store.Read(ctx, q) // what came while the waiting was ended
	return page, timedOut && err == nil && len(page.Lines) == 0, err
}

// awaitSilent returns true when none of names can print any more in this
// session, false when ctx ends. What another server runs may always print.
func (s *Server) awaitSilent(ctx context.Context, names []string) bool {
	for _, name := range names {
		_, _ = s.o.Manager.Await(ctx, name, func(st process.Status) bool { return !st.GoesOn() }) // unknown: it never ran here
		if foreign, _ := s.foreignRun(ctx, name); foreign != nil {
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// whySilent says for an answer without lines what the processes are doing.
func (s *Server) whySilent(ctx context.Context, names []string) string {
	var states []string
	for _, name := range names {
		if st, own := s.ownNow(ctx, name); own {
			p := ofStatus(&st)
			states = append(states, p.line())
		} else if run, ok, err := s.latestRun(ctx, name); err == nil && ok {
			p := ofRun(&run)
			states = append(states, p.line())
		}
	}
	return strings.Join(append([]string{"no lines"}, states...), "; ")
}
