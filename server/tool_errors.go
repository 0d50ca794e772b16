package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process/prose"
	"pmcp/server/project"
)

const (
	// defaultErrors is how many errors an answer shows if the call has no limit.
	// allErrors is more than the number of errors there can be.
	defaultErrors = 100
	allErrors     = 1_000_000
	// similarErrors is how many similar errors are listed for each.
	similarErrors = 5
	// summaryBytes is about the most that everything beside the errors takes.
	summaryBytes = 500
	// contextBytes bounds what addContext adds to the text of an error, in bytes.
	contextBytes = 128
)

type getErrorsArgs struct {
	Process  string `json:"process,omitempty"`
	Run      int    `json:"run,omitempty" schema:"brief"`
	Category string `json:"category,omitempty" schema:"brief"`
	ErrorID  string `json:"error_id,omitempty" jsonschema:"this one in full"`
	Resolved *bool  `json:"resolved,omitempty"`
	Since    string `json:"since,omitempty" schema:"brief"`
	Until    string `json:"until,omitempty" schema:"brief"`
	After    string `json:"after,omitempty" schema:"brief"`
	Limit    int    `json:"limit,omitempty" min:"1" max:"1000"`
	Offset   int    `json:"offset,omitempty" schema:"brief" min:"0" max:"1000000"`
	MaxBytes int    `json:"max_bytes,omitempty" schema:"brief" min:"512" max:"8388608"`
}

// getErrorsResult is the answer of the error tools.
type getErrorsResult struct {
	Errors  []errorResult  `json:"errors"`
	Total   int            `json:"total"`
	More    bool           `json:"more,omitempty"`
	Summary *errorsSummary `json:"summary,omitempty"`
	Notice  string         `json:"notice,omitempty"`
	Hint    string         `json:"hint,omitempty"`
	seen    []reported     // when each of Errors was last seen, by process
}

func (r getErrorsResult) about() []reported { return r.seen }

// addSeen records that the answer reports an error.
func (r *getErrorsResult) addSeen(f *logstore.Fault) {
	i := slices.IndexFunc(r.seen, func(t reported) bool { return t.name == f.Name })
	if i < 0 {
		i = len(r.seen)
		r.seen = append(r.seen, reported{name: f.Name, errors: make(map[string]time.Time)})
	}
	r.seen[i].errors[f.ID] = f.LastSeen
}

// errorsSummary counts the kinds of errors.
type errorsSummary struct {
	ByCategory map[string]int `json:"by_category"`
	ByProcess  map[string]int `json:"by_process"`
	rateResult
}

func (r getErrorsResult) write(t *answerText) {
	t.line("%s", countNoun(int64(r.Total), "kind of errors", "kinds of errors"))
	if s := r.Summary; s != nil {
		t.part("by category: %s; by process: %s", formatCounts(s.ByCategory), formatCounts(s.ByProcess))
		s.rateResult.write(t, "; ")
		t.line("")
	}
	t.output(nil, r.Errors)
	t.more(r.More)
	t.hint(r.Hint)
}

func formatCounts(m map[string]int) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		words = append(words, fmt.Sprintf("%s %d", key, m[key]))
	}
	return strings.Join(words, ", ")
}

func getErrorsTool() tool {
	return define(tool{
		name: "get_errors", title: "Errors", toolset: setErrors,
		description: "Errors in output and failed runs, each kind once, latest first. Also run, category, since, until, after, offset.",
		hints:       hints{readOnly: true},
	}, getErrors)
}

func getErrors(ctx context.Context, s *call, a getErrorsArgs) (getErrorsResult, error) {
	q, err := faultQuery(ctx, s.project, a)
	if err != nil {
		return getErrorsResult{}, err
	}
	return listErrors(ctx, s, q, a)
}

// listErrors is getErrors for a query that was made.
func listErrors(ctx context.Context, s *call, q logstore.FaultQuery, a getErrorsArgs) (getErrorsResult, error) {
	all, total, err := s.project.Faults(ctx, q)
	if err != nil {
		return getErrorsResult{}, err
	}
	if a.ErrorID != "" && total == 0 {
		return getErrorsResult{}, fmt.Errorf("%w: %q", logstore.ErrUnknownFault, a.ErrorID)
	}
	r := getErrorsResult{Errors: []errorResult{}, Total: total}
	page := all[min(a.Offset, total):]
	page = page[:min(cmp.Or(a.Limit, defaultErrors), len(page))]
	size := 0
	for i := range page {
		e := errorResultOf(&page[i])
		if a.ErrorID != "" {
			e.Stack = page[i].Stack
		}
		e.LatestLine = wholeLine(ctx, s.project, &page[i])
		e.shorten(a.ErrorID != "")
		if size += answerSize(&e) + contextBytes; size > logLimit(a.MaxBytes)-summaryBytes && i > 0 {
			r.Hint = fmt.Sprintf("more would not fit into one answer; get_errors with offset: %d continues", a.Offset+i)
			break
		}
		r.Errors = append(r.Errors, e)
		r.addSeen(&page[i])
		r.Notice = outputNotice
	}
	r.More = a.Offset+len(r.Errors) < total
	if err := addContext(ctx, s.project, r.Errors); err != nil {
		return r, err
	}
	names := slices.Clone(q.Names)
	for i := range r.seen {
		if !slices.Contains(names, r.seen[i].name) {
			names = append(names, r.seen[i].name)
		}
	}
	changed := changedHint(ctx, s.project, names)
	if total == 0 {
		r.Hint = changed
		return r, nil
	}
	hasNewerRun := func(f logstore.Fault) bool { return !slices.Contains(q.Runs, f.LastRun) }
	if q.Runs != nil && slices.ContainsFunc(page[:len(r.Errors)], hasNewerRun) {
		r.Hint = prose.Join(" ", r.Hint, "message, stack and cursor of an error are from the latest run that had it")
	}
	r.Hint = prose.Join("; ", changed, r.Hint)
	r.Summary = summarizeErrors(all)
	return r, nil
}

// faultQuery returns the query for every error that the arguments select. The limit
// applies only to the answer, since the summary counts all of these errors.
func faultQuery(ctx context.Context, p *project.Project, a getErrorsArgs) (logstore.FaultQuery, error) {
	if a.Category != "" && !slices.Contains(logstore.FaultCategories(), a.Category) {
		return logstore.FaultQuery{}, fmt.Errorf("argument category: want one of %s, got %q", strings.Join(logstore.FaultCategories(), ", "), a.Category)
	}
	sel, err := p.Select(ctx, a.Process, a.Run, a.Since, a.Until)
	return logstore.FaultQuery{
		Names: sel.Names, Runs: sel.Runs, Since: sel.Since, Until: sel.Until,
		Category: a.Category, ID: a.ErrorID, Resolved: a.Resolved, After: a.After, Limit: allErrors,
	}, err
}

// addContext adds to each error what other errors and runs show about it: similar
// errors, and a later run without the error. It must be called just after the
// errors were read.
func addContext(ctx context.Context, p *project.Project, errors []errorResult) error {
	if len(errors) == 0 {
		return nil
	}
	all, _, err := p.Faults(ctx, logstore.FaultQuery{Limit: 1000, SkipFlush: true})
	if err != nil {
		return err
	}
	latest := make(map[string]int) // number of the latest run, keyed by process name; 0: no run
	for i := range errors {
		e := &errors[i]
		for j := range all {
			if len(e.Similar) < similarErrors && isSimilar(e, &all[j]) {
				e.Similar = append(e.Similar, all[j].ID)
			}
		}
		if _, known := latest[e.Name]; !known {
			if latest[e.Name], err = p.LatestRun(ctx, e.Name); err != nil {
				return err
			}
		}
		if n := latest[e.Name]; n > e.Run && !e.Resolved {
			e.NotSeenIn = n
		}
	}
	return nil
}

// isSimilar reports whether other has the same type as e and either the same file
// or the same category.
func isSimilar(e *errorResult, other *logstore.Fault) bool {
	return other.ID != e.ErrorID && e.Type != "" && other.Type == e.Type && (e.File != "" && other.File == e.File || other.Category == e.Category)
}

// summarizeErrors returns the numbers of errors in all, by category and by process,
// and how often the errors occurred in the last hour.
func summarizeErrors(all []logstore.Fault) *errorsSummary {
	sum := &errorsSummary{ByCategory: make(map[string]int), ByProcess: make(map[string]int)}
	var perHour [24]int64
	var count int64
	for i := range all {
		count += all[i].Count
		sum.ByCategory[all[i].Category]++
		sum.ByProcess[all[i].Name]++
		for hour, n := range all[i].PerHour {
			perHour[hour] += n
		}
	}
	sum.rateResult = rateOf(count, perHour[:])
	return sum
}

type latestErrorsArgs struct {
	Limit          int   `json:"limit,omitempty" min:"1" max:"1000"`
	UnresolvedOnly *bool `json:"unresolved_only,omitempty" schema:"brief"`
}

func getLatestErrorsTool() tool {
	return define(tool{
		name: "get_latest_errors", title: "Latest errors", toolset: setErrors,
		description: "The latest errors of all processes. Also unresolved_only: false.",
		hints:       hints{readOnly: true},
	}, getLatestErrors)
}

func getLatestErrors(ctx context.Context, s *call, a latestErrorsArgs) (getErrorsResult, error) {
	query := getErrorsArgs{Limit: cmp.Or(a.Limit, 10)}
	if a.UnresolvedOnly == nil || *a.UnresolvedOnly {
		query.Resolved = new(false)
	}
	return getErrors(ctx, s, query)
}

type resolveErrorArgs struct {
	ErrorID string `json:"error_id"`
	Note    string `json:"note,omitempty"`
	Undo    bool   `json:"undo,omitempty" schema:"brief"`
}

type resolveErrorResult struct {
	errorResult
	Notice string `json:"notice"`
}

func (r resolveErrorResult) write(t *answerText) {
	t.output(nil, []errorResult{r.errorResult})
}

func markErrorResolvedTool() tool {
	return define(tool{
		name: "mark_error_resolved", title: "Resolve error", toolset: setErrors,
		description: "Resolves an error; it is regressed if it recurs. Also undo.",
	}, func(ctx context.Context, s *call, a resolveErrorArgs) (resolveErrorResult, error) {
		f, changed, err := s.project.MarkFault(ctx, a.ErrorID, !a.Undo, a.Note)
		if changed {
			s.events.addMark(&f, s.project.By(), false)
		}
		if err == nil && !a.Undo {
			s.events.setResolved(f.ID)
		}
		return resolveErrorResult{errorResultOf(&f), outputNotice}, err
	})
}
