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
)

const (
	// defaultErrors is how many errors an answer shows without a limit, and
	// allErrors more than there can be.
	defaultErrors = 100
	allErrors     = 1_000_000
	// similarErrors is how many similar ones are named.
	similarErrors = 5
	// contextBytes is the most that addContext makes the text of an error longer.
	contextBytes = 128
)

type getErrorsArgs struct {
	Process  string `json:"process,omitempty"`
	Run      int    `json:"run,omitempty"`
	Category string `json:"category,omitempty"`
	ErrorID  string `json:"error_id,omitempty" jsonschema:"one, with its whole stack"`
	Resolved *bool  `json:"resolved,omitempty"`
	Since    string `json:"since,omitempty"`
	Until    string `json:"until,omitempty"`
	After    string `json:"after,omitempty" jsonschema:"cursor"`
	Limit    int    `json:"limit,omitempty" min:"1" max:"1000"`
	Offset   int    `json:"offset,omitempty" min:"0" max:"1000000"`
}

type getErrorsResult struct {
	Errors  []errorResult  `json:"errors"`
	Total   int            `json:"total"`
	More    bool           `json:"more,omitempty"`
	Summary *errorsSummary `json:"summary,omitempty"`
	Notice  string         `json:"notice,omitempty"`
	Hint    string         `json:"hint,omitempty"`
}

// errorsSummary counts kinds of errors.
type errorsSummary struct {
	ByCategory map[string]int `json:"by_category"`
	ByProcess  map[string]int `json:"by_process"`
	PerHour    int64          `json:"per_hour"` // occurrences, see hourly
	Trend      string         `json:"trend"`
}

func (r getErrorsResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d kinds of errors\n", r.Total)
	if s := r.Summary; s != nil {
		fmt.Fprintf(&b, "by category: %s; by process: %s; %d an hour, %s\n", counts(s.ByCategory), counts(s.ByProcess), s.PerHour, s.Trend)
	}
	if len(r.Errors) > 0 {
		fmt.Fprintf(&b, "[%s]\n", r.Notice)
	}
	b.WriteString(errorsText(r.Errors))
	if r.More {
		b.WriteString("more: true\n")
	}
	if r.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", r.Hint)
	}
	return b.String()
}

func counts(m map[string]int) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		words = append(words, fmt.Sprintf("%s %d", key, m[key]))
	}
	return strings.Join(words, ", ")
}

func getErrorsTool() tool {
	return define(tool{
		name: "get_errors", title: "Errors", toolset: setErrors,
		description: "Errors recognised in output and ends of runs, each kind once, latest first, with a summary.",
		hints:       hints{readOnly: true, idempotent: true},
	}, getErrors)
}

func getErrors(ctx context.Context, s *Server, a getErrorsArgs) (getErrorsResult, error) {
	q, err := s.faultQuery(ctx, a)
	if err != nil {
		return getErrorsResult{}, err
	}
	all, total, err := s.o.Store.Faults(ctx, q)
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
		e := ofFault(&page[i])
		if a.ErrorID != "" {
			e.Stack = page[i].Stack
		}
		if size += len(e.text()) + contextBytes; size > defaultMaxBytes && i > 0 {
			r.Hint = fmt.Sprintf("more would not fit into one answer; get_errors with offset: %d goes on", a.Offset+i)
			break
		}
		r.Errors = append(r.Errors, e)
		r.Notice = outputNotice
	}
	r.More = a.Offset+len(r.Errors) < total
	if err := s.addContext(ctx, r.Errors); err != nil {
		return r, err
	}
	if total == 0 {
		r.Hint = "no errors"
		return r, nil
	}
	later := func(f logstore.Fault) bool { return !slices.Contains(q.Runs, f.LastRun) }
	if q.Runs != nil && slices.ContainsFunc(page[:len(r.Errors)], later) {
		r.Hint = joinNonEmpty(r.Hint, "message, stack and cursor of an error are of the latest run that showed it")
	}
	r.Summary = summarize(all)
	return r, nil
}

// faultQuery asks for all that the arguments mean, for the summary: the limit is for the answer.
func (s *Server) faultQuery(ctx context.Context, a getErrorsArgs) (logstore.FaultQuery, error) {
	now := time.Now()
	q := logstore.FaultQuery{
		Project: s.o.Manager.Project(), Category: a.Category, ID: a.ErrorID, Resolved: a.Resolved, After: a.After, Limit: allErrors,
	}
	if a.Category != "" && !slices.Contains(logstore.FaultCategories(), a.Category) {
		return q, fmt.Errorf("argument category: want one of %s, got %q", strings.Join(logstore.FaultCategories(), ", "), a.Category)
	}
	var err error
	if q.Names, err = s.resolveNames(ctx, a.Process); err != nil {
		return q, err
	}
	if q.Since, q.Until, err = parseSpan(a.Since, a.Until, now); err != nil {
		return q, err
	}
	if a.Run != 0 {
		q.Runs, err = s.runIDs(ctx, q.Names, a.Run)
	}
	return q, err
}

// addContext adds what other rows tell of each error: similar ones, and a later
// run that does not have it. The errors were read just before.
func (s *Server) addContext(ctx context.Context, errors []errorResult) error {
	if len(errors) == 0 {
		return nil
	}
	all, _, err := s.o.Store.Faults(ctx, logstore.FaultQuery{Project: s.o.Manager.Project(), Limit: 1000, Settled: true})
	if err != nil {
		return err
	}
	latest := make(map[string]int) // by process, the number of its latest run; 0: none
	for i := range errors {
		e := &errors[i]
		for j := range all {
			if len(e.Similar) < similarErrors && isSimilar(e, &all[j]) {
				e.Similar = append(e.Similar, all[j].ID)
			}
		}
		if _, known := latest[e.Name]; !known {
			run, _, err := s.latestRun(ctx, e.Name)
			if err != nil {
				return err
			}
			latest[e.Name] = run.Number
		}
		if n := latest[e.Name]; n > e.Run && !e.Resolved {
			e.NotSeenIn = n
		}
	}
	return nil
}

// isSimilar: the same type, in the same file or of the same category.
func isSimilar(e *errorResult, other *logstore.Fault) bool {
	return other.ID != e.ErrorID && e.Type != "" && other.Type == e.Type && (other.File == e.File || other.Category == e.Category)
}

func summarize(all []logstore.Fault) *errorsSummary {
	sum := &errorsSummary{ByCategory: make(map[string]int), ByProcess: make(map[string]int)}
	var perHour [24]int64
	for i := range all {
		sum.ByCategory[all[i].Category]++
		sum.ByProcess[all[i].Name]++
		for hour, n := range all[i].PerHour {
			perHour[hour] += n
		}
	}
	sum.PerHour, sum.Trend = hourly(perHour[:], time.Now())
	return sum
}

type latestErrorsArgs struct {
	Limit          int   `json:"limit,omitempty" min:"1" max:"1000"`
	UnresolvedOnly *bool `json:"unresolved_only,omitempty" jsonschema:"default true"`
}

func getLatestErrorsTool() tool {
	return define(tool{
		name: "get_latest_errors", title: "Latest errors", toolset: setErrors,
		description: "The errors seen latest in all processes of the project.",
		hints:       hints{readOnly: true, idempotent: true},
	}, getLatestErrors)
}

func getLatestErrors(ctx context.Context, s *Server, a latestErrorsArgs) (getErrorsResult, error) {
	given := getErrorsArgs{Limit: a.Limit}
	if given.Limit == 0 {
		given.Limit = 10
	}
	if a.UnresolvedOnly == nil || *a.UnresolvedOnly {
		unresolved := false
		given.Resolved = &unresolved
	}
	return getErrors(ctx, s, given)
}

type resolveErrorArgs struct {
	ErrorID string `json:"error_id" jsonschema:"one, with its whole stack"`
	Note    string `json:"note,omitempty" jsonschema:"what was done"`
}

type resolveErrorResult struct {
	errorResult
	Notice string `json:"notice"`
}

func (r resolveErrorResult) text() string {
	return markedErrors([]errorResult{r.errorResult}, nil)
}

func markErrorResolvedTool() tool {
	return define(tool{
		name: "mark_error_resolved", title: "Resolve error", toolset: setErrors,
		description: "Marks an error as resolved; seen again, it says regressed.",
		hints:       hints{idempotent: true},
	}, func(ctx context.Context, s *Server, a resolveErrorArgs) (resolveErrorResult, error) {
		f, err := s.o.Store.ResolveFault(ctx, a.ErrorID, a.Note)
		if err == nil && f.Project == s.o.Manager.Project() {
			s.changed(f.Name)
		}
		return resolveErrorResult{ofFault(&f), outputNotice}, err
	})
}
