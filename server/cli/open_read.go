package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/config"
	"pmcp/server/page"
	"pmcp/server/project"
)

const (
	pageLimit = 2000             // lines, events or errors of one answer to the page
	pageBytes = 1 << 20          // of the text of lines
	pageWait  = 20 * time.Second // for a line
	pageRuns  = 200
	// maxRunErrors is of how many runs that ended badly the page shows the error.
	maxRunErrors = 20
	stepLimit    = 500 // lines of one time
	// usagePoints is into how many spans the usage of a process is divided, usageRuns is how many of its latest
	// runs are read for that.
	usagePoints = 240
	usageRuns   = 50
)

// everyProject stands for all projects in the arguments of the page.
const everyProject = "*"

// A pageReader reads the database for the page, as pmcp logs, errors and events do.
type pageReader struct{ *reader }

// pageReads returns what reads the database for the page, or nil if the server of the page keeps
// its log in memory. done must be called.
func (s *screen) pageReads(ctx context.Context) (read page.Call, done func(), err error) {
	c, err := config.Read()
	if err != nil {
		return nil, nil, err
	}
	r, err := openReader(ctx, &c, place{}, s.err)
	if errors.As(err, new(*noDatabaseError)) {
		return nil, func() {}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return (&pageReader{r}).read, r.Close, nil
}

// pageArguments are the arguments of all reads.
type pageArguments struct {
	Project   string   `json:"project"`   // a path; "" is that of the page
	Processes []string `json:"processes"` // nil: all
	Run       int      `json:"run"`       // a number, of one process
	Limit     int      `json:"limit"`
	Since     string   `json:"since"` // RFC 3339
	Until     string   `json:"until"`

	// Of lines.
	After  string `json:"after"`
	Before string `json:"before"`
	Newest bool   `json:"newest"`
	Level  string `json:"level"`
	WaitMS int    `json:"wait_ms"`
	Query  string `json:"query"`
	Regex  bool   `json:"regex"`
	// RunID and Line select the lines of a run from a number on.
	RunID int64 `json:"run_id"`
	Line  int64 `json:"line"`
	// About selects the lines before and after a time, RFC 3339. With Step, 1 or -1, it selects the next or the
	// previous line from there, and from Line of RunID if that is of this time.
	About string `json:"about"`
	Step  int    `json:"step"`
}

// read is a page.Call.
func (p *pageReader) read(ctx context.Context, what string, arguments json.RawMessage) (json.RawMessage, error) {
	var a pageArguments
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return nil, err
	}
	switch a.Project {
	case "":
		a.Project = p.dir
	case everyProject:
		a.Project = ""
	}
	a.Limit = min(max(a.Limit, 0), pageLimit)
	since, err := parseTime(a.Since)
	if err != nil {
		return nil, err
	}
	until, err := parseTime(a.Until)
	if err != nil {
		return nil, err
	}
	var answer any
	switch what {
	case "lines":
		answer, err = p.lines(ctx, &a, since, until)
	case "events":
		answer, err = p.events(ctx, &a)
	case "errors":
		answer, err = p.faults(ctx, &a, since)
	case "runs":
		answer, err = p.runsOf(ctx, &a)
	default:
		answer, err = p.usage(ctx, &a, since)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

func parseTime(text string) (at time.Time, err error) {
	if text != "" {
		at, err = time.Parse(time.RFC3339Nano, text)
	}
	return at, err
}

// A pageLine is a line, or missing lines, in an answer to the page. Run and Number identify it.
type pageLine struct {
	Run    int64  `json:"run"`
	Number int64  `json:"n"`
	At     string `json:"at"`
	Stream string `json:"stream,omitempty"`
	Level  string `json:"level,omitempty"`
	Text   string `json:"text"`
	Cont   bool   `json:"cont,omitempty"` // of the line before
	Gap    bool   `json:"gap,omitempty"`
}

// A pageRunName is the run of lines.
type pageRunName struct {
	Name    string `json:"name"`
	Project string `json:"project"`
	Run     int    `json:"run"`
}

type linesAnswer struct {
	Lines      []pageLine            `json:"lines"` // oldest first
	Runs       map[int64]pageRunName `json:"runs"`
	Prev       string                `json:"prev"`
	Next       string                `json:"next"`
	MoreBefore bool                  `json:"more_before"`
	MoreAfter  bool                  `json:"more_after"`
	// About is the index of the first line at the time that was asked for, or after it.
	About int `json:"about,omitempty"`
	// Held is why a server could not store its latest lines.
	Held []string `json:"held,omitempty"`
}

func (p *pageReader) lines(ctx context.Context, a *pageArguments, since, until time.Time) (linesAnswer, error) {
	q := logstore.Query{
		Project: a.Project, Names: a.Processes, Since: since, Until: until, After: a.After, Before: a.Before, Newest: a.Newest,
		Limit: cmp.Or(a.Limit, defaultLines), MaxBytes: pageBytes,
	}
	var ok bool
	if q.MinLevel, ok = line.ParseLevel(a.Level); !ok {
		return linesAnswer{}, fmt.Errorf("no such level: %q", a.Level)
	}
	about, err := parseTime(a.About)
	if err != nil {
		return linesAnswer{}, err
	}
	switch {
	case a.Step != 0:
		return p.step(ctx, q, a, about)
	case !about.IsZero():
		return p.about(ctx, q, about)
	case a.RunID > 0:
		q.Runs, q.After = []int64{a.RunID}, logstore.CursorAfter(map[int64]int64{a.RunID: max(0, a.Line-1)})
	case a.Run > 0:
		if q.Runs, err = p.runs(ctx, q, a.Run); err != nil {
			return linesAnswer{}, err
		}
	}
	var held []string
	if a.WaitMS > 0 {
		following, stop := context.WithTimeout(ctx, min(time.Duration(a.WaitMS)*time.Millisecond, pageWait))
		read, err := p.store.Follow(following, q)
		if stop(); err != nil {
			return linesAnswer{}, err
		}
		if a.Query == "" {
			return p.answer(read), nil
		}
	} else if runs, err := p.view.Runs(ctx, logstore.RunFilter{Project: q.Project, Current: true}); err == nil { // else the read below reports it
		held, _ = p.view.AskToStore(ctx, runs)
	}
	if a.Query == "" {
		read, err := p.store.Read(ctx, q)
		if err != nil {
			return linesAnswer{}, err
		}
		r := p.answer(read)
		r.Held = held
		return r, nil
	}
	return p.search(ctx, q, a)
}

// about reads the lines before and after a time.
func (p *pageReader) about(ctx context.Context, q logstore.Query, at time.Time) (r linesAnswer, err error) {
	before, after := q, q
	before.Newest, before.Until = true, at
	after.Since = at
	earlier, err := p.store.Read(ctx, before)
	if err != nil {
		return r, err
	}
	later, err := p.store.Read(ctx, after)
	if err != nil {
		return r, err
	}
	r, rest := p.answer(earlier), p.answer(later)
	r.About = len(r.Lines)
	r.Lines, r.Next, r.MoreAfter = append(r.Lines, rest.Lines...), rest.Next, rest.MoreAfter
	maps.Copy(r.Runs, rest.Runs)
	return r, nil
}

// step reads the next or the previous line of the level from a line at a time.
func (p *pageReader) step(ctx context.Context, q logstore.Query, a *pageArguments, at time.Time) (r linesAnswer, err error) {
	q.Limit = stepLimit
	if a.Step > 0 {
		q.Since = at
	} else {
		q.Until, q.Newest = at.Add(1), true
	}
	read, err := p.store.Read(ctx, q)
	if err != nil {
		return r, err
	}
	r = linesAnswer{Lines: []pageLine{}, Runs: namesOf(read.Runs)}
	if a.Step < 0 {
		slices.Reverse(read.Lines)
	}
	from := 1 + slices.IndexFunc(read.Lines, func(l logstore.Line) bool { return l.Run == a.RunID && l.Number == a.Line })
	if from == 0 { // the line itself has a lower level
		from = slices.IndexFunc(read.Lines, func(l logstore.Line) bool { return l.Run != a.RunID || (l.Number > a.Line) == (a.Step > 0) })
	}
	if from >= 0 && from < len(read.Lines) {
		r.Lines = append(r.Lines, lineOfPage(&read.Lines[from]))
	}
	return r, nil
}

func (p *pageReader) answer(read *logstore.Page) linesAnswer {
	r := linesAnswer{Lines: make([]pageLine, 0, len(read.Lines)), Runs: namesOf(read.Runs), Prev: read.Prev(), Next: read.Next(), MoreBefore: read.MoreBefore, MoreAfter: read.MoreAfter}
	gaps := gapsOf(read)
	for i := range read.Lines {
		for _, g := range gaps[i] {
			r.Lines = append(r.Lines, gapOf(&g))
		}
		r.Lines = append(r.Lines, lineOfPage(&read.Lines[i]))
	}
	for _, g := range gaps[len(read.Lines)] {
		r.Lines = append(r.Lines, gapOf(&g))
	}
	return r
}

// search finds lines: the newest, or with After the oldest.
func (p *pageReader) search(ctx context.Context, q logstore.Query, a *pageArguments) (r linesAnswer, err error) {
	end, err := p.store.End(ctx, q.Project, q.Names)
	if err != nil {
		return r, err
	}
	found, err := p.store.Search(ctx, logstore.SearchQuery{Query: q, Text: a.Query, Regexp: a.Regex, OldestFirst: a.After != ""})
	if err != nil {
		return r, err
	}
	r = linesAnswer{Lines: make([]pageLine, len(found.Hits)), Runs: namesOf(found.Runs)}
	for i := range found.Hits {
		r.Lines[i] = lineOfPage(&found.Hits[i].Line)
	}
	if a.After != "" {
		r.Next, r.MoreAfter = found.Next(), found.More
		return r, nil
	}
	slices.Reverse(r.Lines)
	r.Prev, r.MoreBefore, r.Next = found.Next(), found.More, end
	return r, nil
}

func namesOf(runs map[int64]logstore.Run) map[int64]pageRunName {
	names := make(map[int64]pageRunName, len(runs))
	for id, run := range runs {
		names[id] = pageRunName{run.Name, run.Project, run.Number}
	}
	return names
}

func lineOfPage(l *logstore.Line) pageLine {
	r := pageLine{Run: l.Run, Number: l.Number, At: l.At.UTC().Format(time.RFC3339Nano), Text: line.Visible(l.Text), Cont: l.Continuation}
	if l.Stream != logstore.Stdout {
		r.Stream = logstore.StreamNames[l.Stream]
	}
	if l.Level != line.LevelNone {
		r.Level = l.Level.String()
	}
	return r
}

func gapOf(g *logstore.Gap) pageLine {
	text := "lines are missing: " + g.Reason
	if g.Lines >= 0 {
		text = fmt.Sprintf("%d lines are missing: %s", g.Lines, g.Reason)
	}
	return pageLine{Run: g.Run, Number: g.After, At: g.At.UTC().Format(time.RFC3339Nano), Text: text, Gap: true}
}

// A pageEvent is an event in an answer to the page. Run identifies its run in lines; 0: it is about none.
type pageEvent struct {
	eventRow
	Run int64 `json:"run,omitempty"`
}

func (p *pageReader) events(ctx context.Context, a *pageArguments) (r struct {
	Events []pageEvent `json:"events"`
}, err error) {
	all, err := p.store.Events(ctx, a.Project, a.Processes, cmp.Or(a.Limit, pageLimit))
	r.Events = make([]pageEvent, 0, len(all))
	for _, e := range all {
		text, _, _ := strings.Cut(e.Text, "; get_logs ") // what an agent may call next
		row := eventRow{Time: args.FormatTime(e.At), Project: e.Project, Process: e.Name, Kind: string(e.Kind), By: line.Visible(e.By), Text: line.Visible(text)}
		r.Events = append(r.Events, pageEvent{row, e.Run})
	}
	return r, err
}

// A pageFault is a kind of error in an answer to the page.
type pageFault struct {
	errorRow
	Kind string `json:"kind"` // what it has in common with those that differ in a path, an id or a number
}

// same are the parts of a message in which errors of one kind differ.
var same = []struct {
	pattern *regexp.Regexp
	is      string
}{
	{regexp.MustCompile(`^(\w*(Error|Exception): )+`), ""},
	{regexp.MustCompile(`(?i)(\d+\.){3}\d+(:\d+)?|\[?[\da-f]*::[\da-f:.]*\]?(:\d+)?`), "address"},
	{regexp.MustCompile(`[\w.@~+-]*(/[\w.@~+%-]+)+/?`), "path"},
	{regexp.MustCompile(`(?i)\b[\da-f]{8}-[\da-f-]{27}\b|\b(0x)?[a-f]*\d[\da-f]{5,}\b`), "id"},
	{regexp.MustCompile(`\d+`), "#"},
}

// kindOf returns the kind of an error, in all its processes.
func kindOf(f *logstore.Fault) string {
	text := f.Message
	for _, s := range same {
		text = s.pattern.ReplaceAllString(text, s.is)
	}
	return f.Type + " " + text
}

func (p *pageReader) faults(ctx context.Context, a *pageArguments, since time.Time) (r struct {
	Errors []pageFault `json:"errors"`
	Total  int         `json:"total"`
}, err error) {
	all, total, err := p.store.Faults(ctx, logstore.FaultQuery{Project: a.Project, Names: a.Processes, Since: since, Limit: cmp.Or(a.Limit, pageLimit), SkipFlush: true})
	r.Errors, r.Total = make([]pageFault, 0, len(all)), total
	for i := range all {
		r.Errors = append(r.Errors, pageFault{rowOfFault(&all[i]), kindOf(&all[i])})
	}
	return r, err
}

// A pageRun is a run in an answer to the page.
type pageRun struct {
	Run     int    `json:"run"`
	State   string `json:"state"`
	Started string `json:"started_at"`
	Lasted  string `json:"lasted"`
	How     string `json:"how"`          // it ended, in words
	By      string `json:"by,omitempty"` // see project.Run.By
	// Error is the first line of what went wrong, for the latest runs that ended badly.
	Error string `json:"error,omitempty"`
}

func pageRunOf(run *project.Run, by string) pageRun {
	r := pageRun{Run: run.Status.Run, State: run.State.String(), Started: args.FormatTime(run.StartedAt), By: line.Visible(run.By), How: run.StateText()}
	switch {
	case !run.EndedAt.IsZero():
		r.Lasted = args.FormatAge(run.Duration())
	case run.State.Live():
		r.Lasted = args.FormatAge(time.Since(run.StartedAt))
	} // else when it ended is not known
	if e := run.Exit; e != nil {
		if e.Signal == "" {
			r.How += fmt.Sprintf(", exit code %d", e.Code)
		} else {
			r.How += ", " + e.Signal
		}
		switch e.By {
		case process.BySelf:
		case process.ByUser:
			r.How = prose.Join(", ", r.How, cmp.Or(by, "by user"))
		default:
			r.How = prose.Join(", ", r.How, "by "+string(e.By))
		}
	}
	r.How = line.Visible(prose.Join(", ", r.How, run.Reason))
	return r
}

// endedBy returns who or what asked for the end of a run that next followed, if any, as events tell it: "by cursor", "for
// a restart by cursor", "for a restart: src/web.js changed", or "".
func endedBy(events []logstore.Event, run, next *project.Run) string {
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == logstore.EventStopped && e.Run == run.RunID && e.By != "":
			return "by " + e.By
		case e.Kind != logstore.EventRestarted || next == nil || e.Run != next.RunID:
		case e.By != "":
			return "for a restart by " + e.By
		default:
			return prose.Join(": ", "for a restart", next.By)
		}
	}
	return ""
}

// at returns the project that arguments are about.
func (p *pageReader) at(ctx context.Context, a *pageArguments) (*project.Project, error) {
	if len(a.Processes) != 1 || a.Project == "" {
		return nil, errors.New("want one process of one project")
	}
	at, _, err := p.project.At(ctx, a.Project, "", "")
	return at, err
}

func (p *pageReader) runsOf(ctx context.Context, a *pageArguments) (r struct {
	Runs []pageRun `json:"runs"` // latest first
}, err error) {
	at, err := p.at(ctx, a)
	if err != nil {
		return r, err
	}
	all, err := at.History(ctx, a.Processes[0], min(cmp.Or(a.Limit, pageRuns), pageRuns))
	if err != nil {
		return r, err
	}
	events, err := p.store.Events(ctx, a.Project, a.Processes, pageLimit)
	if err != nil {
		return r, err
	}
	r.Runs = make([]pageRun, 0, len(all))
	bad := 0
	var next *project.Run
	for i := range all {
		run := pageRunOf(&all[i], endedBy(events, &all[i], next))
		next = &all[i]
		if all[i].EndedBadly() {
			if bad++; bad <= maxRunErrors {
				if run.Error, err = p.errorOf(ctx, a, all[i].RunID); err != nil {
					return r, err
				}
			}
		}
		r.Runs = append(r.Runs, run)
	}
	return r, nil
}

// errorOf returns the first line of the error of a run that ended badly.
func (p *pageReader) errorOf(ctx context.Context, a *pageArguments, run int64) (string, error) {
	faults, _, err := p.store.Faults(ctx, logstore.FaultQuery{Project: a.Project, Names: a.Processes, Runs: []int64{run}, SkipFlush: true})
	slices.Reverse(faults) // the first error is the cause
	i := max(0, slices.IndexFunc(faults, func(f logstore.Fault) bool { return !f.IsEnd() }))
	if err != nil || len(faults) == 0 {
		return "", err
	}
	first, _, _ := strings.Cut(faults[i].Title(), "\n")
	return line.Visible(first), nil
}

// A pageUsage is the most that a process used in a span, and when that was measured.
type pageUsage struct {
	At          time.Time `json:"at"` // of the memory
	Run         int       `json:"run"`
	CPUPercent  float64   `json:"cpu_percent"` // of one core
	CPUAt       time.Time `json:"cpu_at"`
	MemoryBytes uint64    `json:"memory_bytes"`
}

func (p *pageReader) usage(ctx context.Context, a *pageArguments, since time.Time) (r struct {
	Usage []pageUsage `json:"usage"` // oldest first, at most usagePoints and one for each change of the run
	Rise  *pageUsage  `json:"rise,omitempty"`
}, err error) {
	if len(a.Processes) != 1 || a.Project == "" {
		return r, errors.New("want one process of one project")
	}
	runs, err := p.store.Runs(ctx, logstore.RunFilter{Project: a.Project, Names: a.Processes, Limit: usageRuns})
	if err != nil {
		return r, err
	}
	width := spanOf(time.Since(since))
	r.Usage = []pageUsage{}
	for _, run := range slices.Backward(runs) {
		if !run.Ended.IsZero() && run.Ended.Before(since) {
			continue
		}
		all, err := p.store.Samples(ctx, run.ID, since)
		if err != nil {
			return r, err
		}
		for i := range all {
			r.Usage = addSample(r.Usage, run.Number, &all[i], width)
		}
	}
	r.Rise = riseOf(r.Usage)
	return r, nil
}

// spanOf returns how long the spans of a time are: as long each time that is looked at the last hour or day.
func spanOf(all time.Duration) time.Duration {
	return max((all / usagePoints).Truncate(time.Second), 10*time.Second)
}

// addSample adds a sample of a run, later than those before, to spans of a width.
func addSample(usage []pageUsage, run int, s *logstore.Sample, width time.Duration) []pageUsage {
	last := len(usage) - 1
	if last < 0 || usage[last].Run != run || !usage[last].At.Truncate(width).Equal(s.At.Truncate(width)) {
		return append(usage, pageUsage{s.At, run, s.CPUPercent, s.At, s.MemoryBytes})
	}
	u := &usage[last]
	if s.MemoryBytes > u.MemoryBytes {
		u.At, u.MemoryBytes = s.At, s.MemoryBytes
	}
	if s.CPUPercent > u.CPUPercent {
		u.CPUAt, u.CPUPercent = s.At, s.CPUPercent
	}
	return usage
}

// riseOf returns the span in which a rise of the memory of the latest run begins that still goes on: by more than a
// quarter, and not in one step. It returns nil if there is none. The span is the one farthest below the line from the
// first to the last, so that neither a start nor a level time before counts.
func riseOf(usage []pageUsage) *pageUsage {
	if len(usage) == 0 {
		return nil
	}
	last := &usage[len(usage)-1]
	run := usage[slices.IndexFunc(usage, func(u pageUsage) bool { return u.Run == last.Run }):]
	begin, most := 0, 0.0
	for i := range run {
		part := float64(run[i].At.Sub(run[0].At)) / float64(max(1, last.At.Sub(run[0].At)))
		line := float64(run[0].MemoryBytes) + part*(float64(last.MemoryBytes)-float64(run[0].MemoryBytes))
		if below := line - float64(run[i].MemoryBytes); below > most {
			begin, most = i, below
		}
	}
	rise, from := run[begin:], float64(run[begin].MemoryBytes)
	by := float64(last.MemoryBytes) - from
	half := float64(rise[len(rise)/2].MemoryBytes) - from
	if len(rise) < 4 || by < from/4 || half < by/5 || half > by*4/5 {
		return nil
	}
	return &rise[0]
}

// callForPage returns own.call, but a group is started as pmcp start does it: what the server of the page started would
// end with it.
func (s *screen) callForPage(own *session) page.Call {
	return func(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
		if tool != startGroup {
			return own.call(ctx, tool, arguments)
		}
		var given callArguments
		if err := json.Unmarshal(arguments, &given); err != nil {
			return nil, err
		}
		at := *s
		at.where = place{project: given.Project}
		a := action{verb: "open", group: startGroup, starts: true}
		err := at.perform(ctx, a, []target{{name: given.Group, group: true}}, true, func(string) error { return nil })
		return json.RawMessage("{}"), err
	}
}
