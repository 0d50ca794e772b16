package server

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

const (
	// stackLines is how many lines of a stack an answer shows, but where one
	// error is asked for by its id.
	stackLines = 12
	// answerErrors is how many errors of a run stand in an answer about it.
	answerErrors = 5
)

// errorResult is one kind of error of one process.
type errorResult struct {
	ErrorID     string   `json:"error_id" jsonschema:"one, with its whole stack"`
	Name        string   `json:"name"`
	Fingerprint string   `json:"fingerprint"`
	Category    string   `json:"category"`
	Type        string   `json:"type,omitempty"`
	Message     string   `json:"message"`
	File        string   `json:"file,omitempty"`
	Line        int      `json:"line,omitempty"`
	Column      int      `json:"column,omitempty"`
	Stack       []string `json:"stack,omitempty"`
	Count       int64    `json:"count"`
	Runs        int64    `json:"runs"`
	FirstSeen   string   `json:"first_seen"`
	LastSeen    string   `json:"last_seen"`
	Run         int      `json:"run"`
	PerHour     int64    `json:"per_hour"` // see hourly
	Trend       string   `json:"trend"`
	Resolved    bool     `json:"resolved"`
	ResolvedAt  string   `json:"resolved_at,omitempty"`
	Note        string   `json:"note,omitempty"`
	Regressed   bool     `json:"regressed,omitempty"`
	NotSeenIn   int      `json:"not_seen_in_run,omitempty"` // a later run, without it
	Similar     []string `json:"similar,omitempty"`
	Cursor      string   `json:"cursor"` // right behind it in the log

	seen time.Time // LastSeen
}

// idsOf says which errors an answer shows, and when each was seen last.
func idsOf(errors []errorResult) map[string]time.Time {
	ids := make(map[string]time.Time, len(errors))
	for i := range errors {
		ids[errors[i].ErrorID] = errors[i].seen
	}
	return ids
}

func ofFault(f *logstore.Fault) errorResult {
	r := errorResult{
		ErrorID: f.ID, Name: f.Name, Fingerprint: f.Fingerprint, Category: f.Category, Type: f.Type, Message: f.Message,
		File: f.File, Line: f.Line, Column: f.Column, Count: f.Count, Runs: f.Runs, FirstSeen: formatTime(f.FirstSeen), LastSeen: formatTime(f.LastSeen),
		Run: f.RunNumber, Resolved: !f.Resolved.IsZero(), ResolvedAt: formatTime(f.Resolved),
		Note: f.Note, Regressed: f.Regressed, Cursor: f.Cursor(), Stack: f.Stack, seen: f.LastSeen,
	}
	r.PerHour, r.Trend = hourly(f.PerHour[:], time.Now())
	if len(r.Stack) > stackLines {
		r.Stack = append(slices.Clone(r.Stack[:stackLines-1]), fmt.Sprintf("… %d more lines: get_errors with error_id", len(f.Stack)-stackLines+1))
	}
	return r
}

// hourly is about how often something occurred in the 60 minutes before now, and
// the trend: that beside the five whole hours before the current one. perHour
// counts by hours of the clock, the current one first; of the one before it as
// much counts as belongs to those 60 minutes.
func hourly(perHour []int64, now time.Time) (inHour int64, trend string) {
	elapsed := now.Sub(now.Truncate(time.Hour)).Hours()
	recent, before := float64(perHour[0])+(1-elapsed)*float64(perHour[1]), 0.0
	for _, n := range perHour[1:6] {
		before += float64(n) / 5
	}
	switch {
	case recent > 1.5*before+1:
		trend = "rising"
	case recent < 0.5*before:
		trend = "falling"
	default:
		trend = "steady"
	}
	return int64(math.Round(recent)), trend
}

// text is the error in a few lines; what the program said is indented, so that
// it cannot pass for the lines around it.
func (r *errorResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "error %s: %s in %s run %d, %d times", r.ErrorID, r.Category, r.Name, r.Run, r.Count)
	if r.Count > 1 {
		fmt.Fprintf(&b, " since %s, %d an hour, %s", r.FirstSeen, r.PerHour, r.Trend)
	}
	if r.Regressed {
		b.WriteString(", seen again after it was resolved")
	}
	if r.Resolved {
		fmt.Fprintf(&b, ", resolved at %s %s", r.ResolvedAt, r.Note)
	}
	if r.NotSeenIn > 0 {
		fmt.Fprintf(&b, ", not seen in run %d", r.NotSeenIn)
	}
	fmt.Fprintf(&b, ", last at %s, cursor %s\n", r.LastSeen, r.Cursor)
	title := r.Message
	if r.Type != "" && !strings.HasPrefix(title, r.Type) {
		title = r.Type + ": " + title
	}
	b.WriteString("  " + strings.ReplaceAll(title, "\n", "\n  ") + "\n")
	if r.File != "" {
		fmt.Fprintf(&b, "  at %s:%d", r.File, r.Line)
		if r.Column > 0 {
			fmt.Fprintf(&b, ":%d", r.Column)
		}
		b.WriteString("\n")
	}
	for _, l := range r.Stack {
		b.WriteString("  | " + l + "\n")
	}
	if len(r.Similar) > 0 {
		fmt.Fprintf(&b, "  similar: %s\n", strings.Join(r.Similar, ", "))
	}
	return b.String()
}

func errorsText(errors []errorResult) string {
	var b strings.Builder
	for i := range errors {
		b.WriteString(errors[i].text())
	}
	return b.String()
}

// markedErrors is errorsText of an answer that has lines, or none: then nothing
// before has said that this is output.
func markedErrors(errors []errorResult, lines []string) string {
	text := errorsText(errors)
	if text == "" || len(lines) > 0 {
		return text
	}
	return "[" + outputNotice + "]\n" + text
}

// runErrors are the errors of one run, for an answer about it: without stacks,
// since the answer has the last lines.
type runErrors struct {
	shown []errorResult // at most answerErrors
	total int
}

func (s *Server) runErrors(ctx context.Context, run int64) (r runErrors, err error) {
	all, total, err := s.o.Store.Faults(ctx, logstore.FaultQuery{Runs: []int64{run}, Project: s.o.Manager.Project(), Limit: answerErrors})
	if err != nil {
		return r, err
	}
	r.total = total
	for i := range all {
		e := ofFault(&all[i])
		e.Stack = nil
		r.shown = append(r.shown, e)
	}
	return r, nil
}

// ofRunErrors are the arguments of get_errors that give the errors of a run.
func ofRunErrors(name string, run int) string {
	return fmt.Sprintf("process: %q and run: %d", name, run)
}

// rest says where the errors are that are not shown; "" if all are. where are the
// arguments that ask for them.
func (r runErrors) rest(where string) string {
	if r.total <= len(r.shown) {
		return ""
	}
	return fmt.Sprintf("%d of %d kinds of errors; get_errors with %s shows all", len(r.shown), r.total, where)
}

// endedBadly says whether an answer about a run should carry its errors.
func endedBadly(st *process.Status) bool {
	return st.Exit != nil && !st.Exit.Clean() || st.State == process.Failed || st.State == process.Backoff
}
