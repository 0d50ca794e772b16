package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/server/project"
)

// An identity is what a process of pmcp top is recognised by, whatever its run and its place.
type identity struct{ project, name string }

func identityOf(run *project.Run) identity { return identity{run.Project, run.Spec.Name} }

// A lineRef identifies a line of a process. The zero value is no line.
type lineRef struct{ run, number int64 }

func (a lineRef) compare(b lineRef) int {
	return cmp.Or(cmp.Compare(a.run, b.run), cmp.Compare(a.number, b.number))
}

// A topLog is what pmcp top shows of the log of one process, of all its runs. It is a message of
// the program.
type topLog struct {
	of identity
	// anchor is the cursor before the first line shown, or "" if the end is followed.
	anchor string
	// hit is the line that the last search has found, and after the cursor right after it.
	hit   lineRef
	after string

	lines  []logstore.Line
	runs   map[int64]logstore.Run
	faults []logstore.Fault // the latest kinds of errors of the latest run, the latest first
	note   string           // what a move has to say
	err    error
}

// A move changes the position in the log. fits is how many lines the screen shows.
type move func(ctx context.Context, r *reader, l *topLog, fits int) error

// maxTopFaults is how many kinds of errors of one process are read.
const maxTopFaults = 100

// read performs the moves and reads what is shown then: up to rows lines, and the errors since the
// start of a run.
func (l topLog) read(ctx context.Context, r *reader, moves []move, fits, rows int, began time.Time) topLog {
	l.note, l.err = "", nil
	for _, move := range moves {
		if l.err = move(ctx, r, &l, fits); l.err != nil {
			return l
		}
	}
	q := l.query()
	q.After, q.Newest, q.Limit = l.anchor, l.anchor == "", max(1, rows)
	page, err := r.view.Read(ctx, q)
	if err == nil {
		l.lines, l.runs = page.Lines, page.Runs
		l.faults, _, err = r.view.Faults(ctx, logstore.FaultQuery{Project: l.of.project, Names: q.Names, Since: began, Resolved: new(false), SkipFlush: true, Limit: maxTopFaults})
	}
	l.err = err
	return l
}

func (l *topLog) query() logstore.Query {
	return logstore.Query{Project: l.of.project, Names: []string{l.of.name}}
}

// follow returns to the end.
func (l *topLog) follow() { l.anchor, l.hit = "", lineRef{} }

// scroll moves by n lines, up if n is negative. Below the last line the end is followed.
func scroll(n int) move {
	return func(ctx context.Context, r *reader, l *topLog, fits int) error {
		q := l.query()
		switch {
		case n < 0 && l.anchor == "":
			q.Newest, q.Limit = true, fits-n
		case n < 0:
			q.Before, q.Limit = l.anchor, -n
		case l.anchor == "":
			return nil
		default:
			q.After, q.Limit = l.anchor, fits+n
		}
		page, err := r.view.Read(ctx, q)
		l.hit = lineRef{} // a search goes on from the screen
		switch {
		case err != nil:
			return err
		case n < 0 && l.anchor == "" && len(page.Lines) <= fits: // all lines are shown
		case n < 0:
			l.anchor = page.Prev()
		case len(page.Lines) < q.Limit:
			l.follow()
		default:
			q.Limit = n
			if page, err = r.view.Read(ctx, q); err == nil {
				l.anchor = page.Next()
			}
		}
		return err
	}
}

// toStart moves to the oldest line.
func toStart(_ context.Context, _ *reader, l *topLog, _ int) error {
	l.anchor, l.hit = logstore.CursorStart, lineRef{}
	return nil
}

// toEnd follows the end.
func toEnd(_ context.Context, _ *reader, l *topLog, _ int) error {
	l.follow()
	return nil
}

// seek moves to the next line that q finds, or the one before if older is set: from the last hit,
// else from the top of the screen or, where the end is followed, back from the end. With errors,
// the latest line of each kind of error counts as well. what names that for a person.
func seek(q logstore.SearchQuery, what string, older, errors bool) move {
	return func(ctx context.Context, r *reader, l *topLog, fits int) error {
		older, from := older, l.hit
		level := q.MinLevel
		q.Query = l.query()
		switch {
		case l.hit != lineRef{} && older:
			q.Before = l.after
		case l.hit != lineRef{}:
			q.After = l.after
		case l.anchor == "":
			older = true
		case older:
			q.Before = l.anchor
		default:
			q.After = l.anchor
		}
		if from == (lineRef{}) && l.anchor != "" && len(l.lines) > 0 {
			from = lineRef{l.lines[0].Run, l.lines[0].Number}
			if !older {
				from.number-- // the first line shown counts
			}
		}
		q.MinLevel, q.OldestFirst, q.Limit = level, !older, 2
		found, err := r.view.Search(ctx, q)
		if err != nil {
			return err
		}
		var best lineRef
		after := ""
		take := func(at lineRef, cursor string) {
			beyond := from == lineRef{} || older && at.compare(from) < 0 || !older && at.compare(from) > 0
			if beyond && (best == lineRef{} || older == (at.compare(best) > 0)) {
				best, after = at, cursor
			}
		}
		for i := range found.Hits {
			take(lineRef{found.Hits[i].Run, found.Hits[i].Number}, found.Hits[i].Cursor())
		}
		if errors {
			faults, _, err := r.view.Faults(ctx, logstore.FaultQuery{Project: l.of.project, Names: l.query().Names, SkipFlush: true, Limit: maxTopFaults})
			if err != nil {
				return err
			}
			for i := range faults {
				if f := &faults[i]; !f.IsEnd() {
					take(lineRef{f.LastRun, f.LastLine}, f.Cursor())
				}
			}
		}
		if best == (lineRef{}) {
			l.note = fmt.Sprintf("no %s %s", map[bool]string{true: "earlier", false: "later"}[older], what)
			if found.More {
				l.note += ", as far as it was searched"
			}
			return nil
		}
		l.hit, l.after = best, after
		up := l.query() // the hit is in the middle of the screen
		up.Before, up.Limit = after, max(1, (fits+1)/2)
		page, err := r.view.Read(ctx, up)
		if err == nil {
			l.anchor = page.Prev()
		}
		return err
	}
}

// seekText is seek for a text, upper or lower case.
func seekText(text string, older bool) move {
	return seek(logstore.SearchQuery{Text: text}, "line with "+line.Visible(text), older, false)
}

// seekError is seek for errors: lines that say so, and the latest of each kind.
func seekError(older bool) move {
	return seek(logstore.SearchQuery{Query: logstore.Query{MinLevel: line.LevelError}, Text: ".", Regexp: true}, "error", older, true)
}
