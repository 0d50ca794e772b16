package server

import (
	"context"
	"fmt"
	"strings"

	"pmcp/process/prose"
	"pmcp/server/project"
	"pmcp/server/sources"
)

// A sourcesResult is what a run has of the code that is there, if a look has found out. Its zero value says nothing.
type sourcesResult struct {
	// Changed names files that were changed since the run has read them: "2 files changed since its start: api.py, db.py".
	Changed string `json:"changed,omitempty" schema:"extra"`
	// Commit is that of the start, Head where HEAD has moved to, unless the code of the run has not changed with it.
	Commit string `json:"commit,omitempty" schema:"extra"`
	Head   string `json:"head,omitempty" schema:"extra"`
}

func sourcesOf(run *project.Run) (r sourcesResult) {
	if r.Head = run.Head; r.Head != "" {
		r.Commit = run.Commit
	}
	c := &run.Changed
	if c.Count == 0 {
		return r
	}
	names := make([]string, len(c.Files))
	for i, name := range c.Files {
		names[i] = quoteUnlessPlain(cut(name, maxShownArg))
	}
	count := countNoun(int64(c.Count), "file", "files")
	if c.Count == sources.MaxCount {
		count += " or more"
	}
	r.Changed = fmt.Sprintf("%s changed since its start: %s", count, strings.Join(names, ", "))
	if more := c.Count - len(names); more > 0 {
		r.Changed += fmt.Sprintf(" and %d more", more)
	}
	return r
}

func (r *sourcesResult) write(t *answerText) {
	t.optPart(", %s", r.Changed)
	if r.Head != "" {
		t.part(", started at %s, HEAD is now %s", r.Commit, r.Head)
	}
}

// changedHint returns what has changed of the sources of the named processes, with their names: "web: 1 file changed since
// its start: api.py".
func changedHint(ctx context.Context, p *project.Project, names []string) string {
	const most = 10
	var runs []*project.Run
	for _, name := range names[:min(len(names), most)] {
		if run, err := p.Find(ctx, name); err == nil {
			runs = append(runs, &run)
		}
	}
	p.LookAtSources(ctx, runs...)
	var hints []string
	for _, run := range runs {
		if changed := sourcesOf(run).Changed; changed != "" {
			hints = append(hints, run.Spec.Name+": "+changed)
		}
	}
	return prose.Join("; ", hints...)
}
