package server

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
)

const (
	// stackLines is how many lines of a stack trace an answer shows, unless the
	// call asks for one error_id.
	stackLines = 12
	// answerErrors is the most errors that an answer about a run shows.
	answerErrors = 5
)

// An errorResult is one kind of error of one process.
type errorResult struct {
	ErrorID     string `json:"error_id" jsonschema:"one, with its whole stack"`
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Category    string `json:"category"`
	Type        string `json:"type,omitempty"`
	Message     string `json:"message"`
	// Unrecognised is set if the message is only what was printed last before a bad end.
	Unrecognised bool `json:"unrecognised,omitempty"`
	// LatestLine is the line with the message, if it says more.
	LatestLine string `json:"latest_line,omitempty"`
	placeResult
	Stack     []string `json:"stack,omitempty"`
	Count     int64    `json:"count"`
	Runs      int64    `json:"runs"`
	FirstSeen string   `json:"first_seen"`
	LastSeen  string   `json:"last_seen"`
	Run       int      `json:"run"`
	rateResult
	resolutionResult
	NotSeenIn int      `json:"not_seen_in_run,omitempty"` // a later run without this error
	Similar   []string `json:"similar,omitempty"`
	Cursor    string   `json:"cursor"` // just after the error in the log

	above bool // the text that is written has its lines already
}

// placeResult is the place in a source file that an error names. The zero value is
// no place.
type placeResult struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// rateResult is how often errors occurred lately. The zero value belongs to errors
// that occurred too rarely for a rate.
type rateResult struct {
	PerHour int64  `json:"per_hour,omitempty"` // occurrences in the last 60 minutes, about
	Trend   string `json:"trend,omitempty"`
}

// resolutionResult reports whether an error was marked as resolved, and whether it
// came back after that.
type resolutionResult struct {
	Resolved   bool   `json:"resolved"`
	ResolvedAt string `json:"resolved_at,omitempty"`
	Note       string `json:"note,omitempty"`
	Regressed  bool   `json:"regressed,omitempty"`
}

// errorResultOf returns f as an errorResult. One line stands for the frames of libraries in its
// stack, and for the middle of what is still longer than stackLines: some languages print the
// own code first, others last.
func errorResultOf(f *logstore.Fault) errorResult {
	r := errorResult{
		ErrorID: f.ID, Name: f.Name, Fingerprint: f.Fingerprint, Category: f.Category, Type: f.Type, Message: f.Message, Unrecognised: f.IsUnrecognised(),
		placeResult: placeResult{f.File, f.Line, f.Column}, Stack: f.Stack,
		Count: f.Count, Runs: f.Runs, FirstSeen: args.FormatTime(f.FirstSeen), LastSeen: args.FormatTime(f.LastSeen), Run: f.RunNumber,
		rateResult: rateOf(f.Count, f.PerHour[:]), resolutionResult: resolutionResult{!f.Resolved.IsZero(), args.FormatTime(f.Resolved), f.Note, f.Regressed},
		Cursor: f.Cursor(),
	}
	r.Stack = foldStack(f.Stack)
	if n := len(r.Stack); n > stackLines {
		mark := fmt.Sprintf("… %d more lines: get_errors with error_id", n-stackLines+1)
		r.Stack = slices.Concat(r.Stack[:stackLines/2], []string{mark}, r.Stack[n-stackLines/2+1:])
	}
	return r
}

// shorten bounds the error, so that one always fits into an answer: its message, and the
// lines of its stack.
func (r *errorResult) shorten(whole bool) {
	const room = 6000
	r.Message = cutLine(r.Message, 1000)
	each := 200
	if whole {
		each = max(60, (room-len(r.Message))/max(1, 2*len(r.Stack)))
	}
	for i, l := range r.Stack {
		r.Stack[i] = cutLine(l, each)
	}
}

// wholeLine returns the line of the latest occurrence of an error, with its message, of at most
// maxErrorLine bytes. It returns "" if the line says no more than the title or cannot be read.
func wholeLine(ctx context.Context, log interface {
	Read(context.Context, logstore.Query) (*logstore.Page, error)
}, f *logstore.Fault) string {
	if f.LastLine == 0 || f.IsEnd() {
		return ""
	}
	page, err := log.Read(ctx, logstore.Query{Runs: []int64{f.LastRun}, Before: f.Cursor(), Newest: true, Limit: int(min(f.LastLine-f.FirstLine+1, maxPageLines))})
	if err != nil {
		return ""
	}
	title, _, _ := strings.Cut(f.Title(), "\n")
	if slices.ContainsFunc(page.Lines, func(l logstore.Line) bool { return strings.TrimSpace(l.Text) == title }) { // another may be the source of it
		return ""
	}
	head := messageHead(f.Message)
	i := slices.IndexFunc(page.Lines, func(l logstore.Line) bool { return head != "" && strings.Contains(l.Text, head) })
	if i < 0 && len(page.Lines) == 1 && f.FirstLine == f.LastLine {
		i = 0
	}
	if i < 0 {
		return ""
	}
	text := strings.TrimSpace(page.Lines[i].Text)
	return cutAround(text, max(0, strings.Index(text, head)), maxErrorLine)
}

// messageHead returns the beginning of the message of an error as its line has it.
func messageHead(message string) string {
	first, _, _ := strings.Cut(message, "\n")
	return prose.Head(first, 100)
}

func namesPlace(text, file string, line int) bool {
	return file == "" || strings.Contains(text, file) && (line == 0 || strings.Contains(text, strconv.Itoa(line)))
}

// minRated is how often an error must have occurred for a rate and a trend.
const minRated = 10

func rateOf(count int64, perHour []int64) rateResult {
	if count < minRated {
		return rateResult{}
	}
	return hourlyRate(perHour, time.Now())
}

// write writes the rate behind other facts.
func (r rateResult) write(t *answerText, separator string) {
	if r.Trend != "" {
		t.part("%s%d an hour, %s", separator, r.PerHour, r.Trend)
	}
}

// hourlyRate returns about how often something occurred in the 60 minutes before
// now, and the trend compared with the average of the five whole hours before the
// current one. perHour holds counts of clock hours, the current hour first. The
// previous hour counts in proportion to its share of the 60 minutes.
func hourlyRate(perHour []int64, now time.Time) rateResult {
	elapsed := now.Sub(now.Truncate(time.Hour)).Hours()
	recent, before := float64(perHour[0])+(1-elapsed)*float64(perHour[1]), 0.0
	for _, n := range perHour[1:6] {
		before += float64(n) / 5
	}
	trend := "steady"
	switch {
	case recent > 1.5*before+1:
		trend = "rising"
	case recent < 0.5*before:
		trend = "falling"
	}
	return rateResult{int64(math.Round(recent)), trend}
}

// write writes the error in a few lines. What the program wrote is indented, so
// that it cannot be mistaken for lines that pmcp wrote.
func (r *errorResult) write(t *answerText) {
	t.part("error %s: %s in %s run %d", r.ErrorID, r.Category, r.Name, r.Run)
	if r.Unrecognised {
		t.part(", unrecognised")
	}
	if r.Count > 1 {
		t.part(", %d times since %s", r.Count, r.FirstSeen)
	}
	r.rateResult.write(t, ", ")
	if r.Regressed {
		t.part(", seen again after it was resolved")
	}
	if r.Resolved {
		t.part(", resolved at %s %s", r.ResolvedAt, r.Note)
	}
	t.optPart(", not seen in run %d", r.NotSeenIn)
	t.line(", last at %s, cursor %s", r.LastSeen, r.Cursor)
	if r.above {
		return
	}
	var f logstore.Fault
	f.Type, f.Message = r.Type, r.Message
	stack, text := strings.Join(r.Stack, "\n"), cmp.Or(r.LatestLine, f.Title())
	if head := messageHead(f.Message); head == "" || !strings.Contains(stack, head) {
		for l := range strings.SplitSeq(text, "\n") {
			t.line("  %s", l)
		}
	}
	if !namesPlace(text, r.File, r.Line) && !slices.ContainsFunc(r.Stack, func(l string) bool { return namesPlace(l, r.File, r.Line) }) {
		t.line("  at %s", r.placeResult)
	}
	for _, l := range r.Stack {
		t.line("  | %s", l)
	}
	t.optLine("  similar: %s", strings.Join(r.Similar, ", "))
}

// errorTexts writes the texts of errors, one after another.
type errorTexts []errorResult

func (e errorTexts) write(t *answerText) {
	for i := range e {
		e[i].write(t)
	}
}

// A runError is an error in an answer about a run, where one line is enough: the output
// has the rest, or the cursor leads to it.
type runError struct {
	ErrorID string `json:"error_id"`
	Type    string `json:"type,omitempty"`
	Message string `json:"message"` // its first line
	placeResult
	Cursor string `json:"cursor,omitempty"` // just after the error, if its lines are not in the answer

	run, first, last int64  // the run and the lines of the error
	head             string // the beginning of its message as its line shows it
	after            string // what Cursor is if its lines are not in the answer
}

// place sets the cursor of the error for an answer that has the lines of log.
func (r *runError) place(log *logResult) {
	if r.Cursor = r.after; log.has(r.run, r.first) {
		r.Cursor = ""
	}
}

// maxErrorLine bounds the message of a runError, and its file, in bytes.
const maxErrorLine = 240

func newRunError(f *logstore.Fault, log *logResult) runError {
	first, _, _ := strings.Cut(f.Message, "\n")
	r := runError{ErrorID: f.ID, Type: cutLine(f.Type, maxErrorLine), Message: cutLine(first, maxErrorLine), placeResult: placeResult{cutLine(f.File, maxErrorLine), f.Line, f.Column}, run: f.LastRun, first: f.FirstLine, last: f.LastLine, head: line.Visible(messageHead(f.Message)), after: f.Cursor()}
	r.place(log)
	return r
}

// String returns the place as FILE:LINE:COLUMN, without what is not known.
func (r placeResult) String() string {
	if r.File == "" {
		return ""
	}
	var t answerText
	t.part("%s", quoteUnlessPlain(r.File))
	t.optPart(":%d", r.Line)
	t.optPart(":%d", r.Column)
	return t.l.String()
}

// text returns the error on one line, with its place if place is set. It ends with what the
// program wrote: "error at cart.js:3:17: SyntaxError: Unexpected token '='".
func (r *runError) text(place bool) string {
	var t answerText
	t.part("error")
	if place {
		t.optPart(" at %s", r.placeResult.String())
	}
	t.optPart(", get_logs before: %s", r.Cursor)
	var f logstore.Fault
	f.Type, f.Message = r.Type, r.Message
	t.part(": %s", f.Title())
	return t.l.String()
}

// runErrors holds the errors of one run for an answer about that run.
type runErrors struct {
	shown    []runError // at most answerErrors of them
	total    int
	reported map[string]time.Time // when each error that the answer has, in whatever form, was last seen, by id
}

// withErrors returns the lines of an action's answer as they stand in its text, and the
// errors that none of them shows, one a line. In front of a line with the message of an error
// stands what is known beyond it: the place, if no line of the error has it, and, if failed is
// set, which one of several is the first, the one that a person would name as the cause.
func (r *logResult) withErrors(errors []runError, failed bool) (lines, others []string) {
	marks := make([]string, len(r.Lines))
	for i := range errors {
		e, first := &errors[i], ""
		if failed && i == 0 && len(errors) > 1 {
			first = "first "
		}
		at, placed := r.find(e)
		switch {
		case at < 0 && slices.ContainsFunc(errors[:i], func(other runError) bool { return e.isSame(&other) }):
		case at < 0:
			others = append(others, first+e.text(!placed))
		case first != "" && placed:
			marks[at] = "first error "
		case !placed:
			marks[at] = first + "error at " + e.placeResult.String() + " "
		}
	}
	for i, l := range r.Lines {
		if !ownLine.MatchString(l) {
			l = marks[i] + outputMark + l
		}
		lines = append(lines, l)
	}
	return lines, others
}

// find returns the index of the line that shows the message of e, or -1, and reports whether
// the lines name its place. A message of several lines is at the first of them, if all are
// shown.
func (r *logResult) find(e *runError) (at int, placed bool) {
	at, placed = -1, e.File == ""
	first, elsewhere, begins, ends := -1, -1, false, false
	for i, ref := range r.refs {
		text := r.Lines[i]
		if ref.run != e.run {
			continue
		}
		shows := e.head != "" && strings.Contains(text, e.head)
		if ref.last < e.first || ref.first > e.last { // a program may say it again, as in a summary
			placed = placed || strings.Contains(text, fmt.Sprintf("%s:%d", e.File, e.Line))
			if elsewhere < 0 && shows && len(e.head) >= minHead {
				elsewhere = i
			}
			continue
		}
		placed = placed || namesPlace(text, e.File, e.Line) || e.Column > 0 && strings.Contains(text, fmt.Sprintf("%s:%d:%d", path.Base(e.File), e.Line, e.Column))
		if at < 0 && shows {
			at = i
		}
		if first < 0 {
			first = i
		}
		begins, ends = begins || ref.first <= e.first, ends || ref.last >= e.last
	}
	switch {
	case at >= 0:
	case begins && ends:
		at = first
	default:
		at = elsewhere
	}
	if !placed && at >= 0 && e.Column > 0 && strings.Contains(r.Lines[at], fmt.Sprintf("%d:%d", e.Line, e.Column)) { // below a line with the file
		placed = slices.ContainsFunc(r.Lines, func(l string) bool { return strings.Contains(l, e.File) })
	}
	return at, placed
}

// minHead is the least length of a message, in bytes, that is the error wherever it stands.
const minHead = 12

// isSame reports whether e and other say the same of the same place, whose file one may name by a
// longer path.
func (r *runError) isSame(other *runError) bool {
	return r.Message == other.Message && r.Line == other.Line && r.Column == other.Column && path.Base(r.File) == path.Base(other.File)
}

// findRunErrors returns the errors of a run for an answer that has the given lines of it:
// if the run has failed, those after the cursor after, the cause first, else only those
// in the lines. A bad exit is not repeated below the line that states it. If there are
// too many errors for an answer, the last one shown is the last that happened.
func findRunErrors(ctx context.Context, p *project.Project, run int64, after string, log *logResult, failed bool) (r runErrors, err error) {
	all, err := p.RunFaults(ctx, run, after)
	if err != nil {
		return r, err
	}
	r.reported = make(map[string]time.Time)
	above := func(f *logstore.Fault) bool { return log.has(f.LastRun, f.FirstLine) }
	all = slices.DeleteFunc(all, func(f logstore.Fault) bool {
		isOld := !failed && !above(&f)
		if !isOld {
			r.reported[f.ID] = f.LastSeen
		}
		return isOld || f.IsEnd() && (above(&f) || f.LastLine == 0)
	})
	if r.total = len(all); r.total > answerErrors {
		all[answerErrors-1] = all[max(answerErrors-1, lastOwn(all))]
		all = all[:answerErrors]
	}
	for i := range all {
		r.shown = append(r.shown, newRunError(&all[i], log))
	}
	return r, nil
}

// lastOwn returns the index of the last of the errors, sorted by cause, that does not
// only follow from others.
func lastOwn(sorted []logstore.Fault) int {
	for i := range slices.Backward(sorted) {
		if !sorted[i].IsConsequence() {
			return i
		}
	}
	return 0
}

// runErrorsArguments returns the arguments with which get_errors shows the errors
// of a run.
func runErrorsArguments(name string, run int) string {
	return fmt.Sprintf("process: %q and run: %d", name, run)
}

// restHint returns a hint on how to get the errors that are not shown, or "" if all
// are shown. where holds the arguments of get_errors that select the errors of the
// run.
func (r runErrors) restHint(where string) string {
	if r.total <= len(r.shown) {
		return ""
	}
	return fmt.Sprintf("%d of %s; get_errors with %s shows all", len(r.shown), countNoun(int64(r.total), "kind of errors", "kinds of errors"), where)
}
