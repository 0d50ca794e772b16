package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/project"
)

type stopProcessArgs struct {
	Process    string `json:"process" jsonschema:"a,b or *"`
	TimeoutMS  int    `json:"timeout_ms,omitempty" schema:"brief" min:"1" max:"600000"`
	Force      bool   `json:"force,omitempty"`
	outputArgs `schema:"brief"`
}

// stopResult is the answer of stop_process: one process, or a list of processes.
type stopResult struct {
	stoppedResult
	WasRunning bool            `json:"was_running"`
	Processes  []stoppedResult `json:"processes,omitempty"`
	NextCursor string          `json:"next_cursor,omitempty"`
	Others     int             `json:"others,omitempty" schema:"extra"` // number of the processes for which there is no room
	Hint       string          `json:"hint,omitempty"`
	Notice     string          `json:"notice,omitempty"`

	reports []reported // of all processes of a list
}

// stoppedResult is a stopped process in an answer.
type stoppedResult struct {
	processResult
	Left    string   `json:"left,omitempty"`                   // what is left of what was running
	Lines   []string `json:"lines,omitempty" schema:"extra"`   // the last ones since the stop began
	Omitted *omitted `json:"omitted,omitempty" schema:"extra"` // of these lines
	Order   string   `json:"order,omitempty" schema:"extra"`

	log logResult // what Lines is from
}

func newStoppedResult(one *project.Stopped) stoppedResult {
	r := stoppedResult{processResult: resultOf(&one.Run), Left: one.Left}
	r.commandResult, r.StartedAt = commandResult{}, "" // the caller started it, or named it
	return r
}

// stopLines is how many lines a run that was stopped shows.
const stopLines = 3

// sinceStop returns the last lines (0: stopLines) that a run has printed since its stop began, except those that were shown.
func sinceStop(ctx context.Context, p *project.Project, shown *project.Shown, name string, run int64, lines, room int) (logResult, error) {
	before, last := p.StopLines(run)
	seen, _ := shown.At(run)
	if before = max(before, seen); last <= before {
		return logResult{}, nil
	}
	e := excerpt{outputArgs: outputArgs{Lines: cmp.Or(lines, stopLines)}, name: name, run: run, after: logstore.CursorAfter(map[int64]int64{run: before}), room: room}
	r, err := e.read(ctx, p)
	r.NextCursor = "" // nothing follows
	return r, err
}

// addLines adds the lines of each of the stopped processes, as far as the answer has room for them.
func (r *stopResult) addLines(ctx context.Context, s *call, stopped []project.Stopped, output outputArgs) error {
	room := sharedRoom{left: output.limit() - answerSize(r) - leftOutBytes, members: len(stopped)}
	for i := range stopped {
		one := &r.stoppedResult
		if len(stopped) > 1 {
			one = &r.Processes[i]
		}
		if room.left < minShare {
			break
		}
		unread, err := unreadHint(one.addLines(ctx, s, &stopped[i], output.Lines, room.share()))
		if err != nil {
			return err
		}
		if r.Hint = prose.Join(" ", r.Hint, unread); len(one.Lines) > 0 {
			r.Notice = outputNotice
			room.left = output.limit() - answerSize(r) - leftOutBytes
		}
	}
	return nil
}

// addLines adds the lines since the stop began, in about room bytes.
func (r *stoppedResult) addLines(ctx context.Context, s *call, one *project.Stopped, lines, room int) (err error) {
	if len(one.Lines) > 0 { // of another window
		r.log = logResult{Lines: one.Lines, source: logSource{view: logView{actionRun: one.Run.RunID}}}
	} else if r.log, err = sinceStop(ctx, s.project, &s.shown, r.Name, one.Run.RunID, lines, room); err != nil {
		return err
	}
	r.Lines, r.Omitted, r.Order = r.log.Lines, r.log.Omitted, r.log.Order
	return nil
}

func (r *stoppedResult) write(t *answerText) {
	t.line("%s", r.line())
	t.output(r.log.texts(), nil)
	r.log.writeOmitted(t)
}

func (r *stoppedResult) line() string {
	return prose.Join(", ", r.processResult.line(), r.Left)
}

func (r stopResult) showed() []project.ShownLines {
	all := r.log.showed()
	for i := range r.Processes {
		all = append(all, r.Processes[i].log.showed()...)
	}
	return all
}

func (r stopResult) about() []reported {
	if len(r.Processes) == 0 {
		return []reported{r.reported()}
	}
	return r.reports
}

// fit drops processes of a list until the answer has room: first those of which nothing
// is left and without a hint.
func (r *stopResult) fit(limit int) {
	r.Hint = cut(r.Hint, limit/4)
	slices.SortStableFunc(r.Processes, func(a, b stoppedResult) int { return cmp.Compare(a.rank(), b.rank()) })
	if answerSize(r) > limit {
		r.Others = dropLast(&r.Processes, limit-leftOutBytes, func() int { return answerSize(r) })
	}
}

// rank returns 0 for a process that a caller must look at, else 1.
func (r *stoppedResult) rank() int {
	if len(r.Survivors) > 0 || isLive(r.State) || strings.Contains(r.Left, " is held by ") {
		return 0
	}
	return 1
}

func (r stopResult) write(t *answerText) {
	if len(r.Processes) == 0 {
		r.stoppedResult.write(t)
	}
	for i := range r.Processes {
		r.Processes[i].write(t)
	}
	if r.Others > 0 {
		t.line("and %s; list_processes shows them", countNoun(int64(r.Others), "more process", "more processes"))
	}
	t.hint(r.Hint)
}

func stopProcessTool() tool {
	return define(tool{
		name: "stop_process", title: "Stop process", toolset: setLifecycle,
		description: "Stops a process and all it started, within timeout_ms.",
		hints:       hints{destructive: true},
	}, stopProcess)
}

func stopProcess(ctx context.Context, s *call, a stopProcessArgs) (stopResult, error) {
	names, err := s.project.Resolve(ctx, a.Process, s.reads)
	if err != nil {
		return stopResult{}, err
	}
	none := ""
	if names == nil {
		names, none = s.allRunning(ctx)
	}
	defer s.reportStatus(ctx, names...)()
	stopped := s.project.Stop(ctx, names, process.StopOptions{Timeout: time.Duration(a.TimeoutMS) * time.Millisecond, Force: a.Force})
	if err := stopErrors(stopped); err != nil {
		return stopResult{}, err
	}
	cursor, unread := "", ""
	if slices.ContainsFunc(stopped, func(one project.Stopped) bool { return !one.Run.Stored }) {
		cursor, err = s.project.EndOfStopped(ctx, names, stopped)
		if unread, err = unreadHint(err); err != nil {
			return stopResult{}, err
		}
	}
	if len(stopped) == 1 {
		one := &stopped[0]
		r := stopResult{stoppedResult: newStoppedResult(one), NextCursor: cursor, WasRunning: one.WasRunning, Hint: prose.Join(" ", prose.Join("; ", one.Hint, none), unread)}
		return r, r.addLines(ctx, s, stopped, a.outputArgs)
	}
	all := stopResult{stoppedResult: stoppedResult{processResult: processResult{Name: cut(a.Process, maxClientName), State: process.Stopped.String()}}}
	hints := []string{none}
	for i := range stopped {
		all.Processes = append(all.Processes, newStoppedResult(&stopped[i]))
		all.WasRunning = all.WasRunning || stopped[i].WasRunning
		hints = append(hints, stopped[i].Hint)
		all.reports = append(all.reports, all.Processes[i].reported())
	}
	all.Hint = prose.Join(" ", prose.Join("; ", hints...), unread)
	err = all.addLines(ctx, s, stopped, a.outputArgs)
	all.fit(a.limit())
	return all, err
}

// allRunning returns the processes that a stop of * stops, and a hint if there are none or the
// daemon keeps others of the project.
func (s *call) allRunning(ctx context.Context) (names []string, hint string) {
	names, started := s.project.Running()
	runs, err := s.project.Kept(ctx)
	var kept []string
	for i := range runs {
		if err == nil && runs[i].Owner != nil && runs[i].Project == s.project.Dir() {
			kept = append(kept, runs[i].Spec.Name)
		}
	}
	switch {
	case len(kept) > 0:
		return names, "kept, and not stopped by *: " + strings.Join(boundWords(kept, maxStopError), ", ")
	case !started:
		return names, "no process of this project was started in this session"
	case len(names) == 0:
		return names, "no process of this project is running in this session"
	}
	return names, ""
}

// stopErrors returns the errors of a stop of several processes, with a line for each
// process that was stopped nevertheless, or nil if there are no errors.
func stopErrors(stopped []project.Stopped) error {
	var errs []error
	var texts, lines []string
	for i := range stopped {
		if err := stopped[i].Err; err != nil {
			text := errorText(err)
			errs, texts = append(errs, err), append(texts, cut(text, maxStopError))
		} else {
			lines = append(lines, line.Visible(lineOf(&stopped[i].Run)))
		}
	}
	if errs == nil {
		return nil
	}
	return &composedError{text: strings.Join(boundWords(append(texts, lines...), outputArgs{}.limit()-leftOutBytes), "\n"), cause: errors.Join(errs...)}
}

// maxStopError is the most bytes of the error of one of several processes.
const maxStopError = 800
