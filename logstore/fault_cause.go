package logstore

import (
	"cmp"
	"slices"

	"pmcp/logstore/fault"
)

// SortByCause sorts the errors of the runs that one answer is about, so that the first is the one that a person
// would name: the errors of a run in the order of their lines, then those that only follow from others
// (fault.IsConsequence). The runs follow each other in the order of their latest errors' times; runs that only
// could not connect, perhaps to the process of another run, come last.
func SortByCause(faults []Fault) {
	runs := make(map[int64]*runCause)
	for i := range faults {
		f := &faults[i]
		r := runs[f.LastRun]
		if r == nil {
			r = &runCause{first: f}
			runs[f.LastRun] = r
		}
		r.add(f)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(runs[a.LastRun].compare(runs[b.LastRun]), cmp.Compare(a.LastRun, b.LastRun),
			cmp.Compare(rankOf(&a), rankOf(&b)), cmp.Compare(a.FirstLine, b.FirstLine), cmp.Compare(a.LastLine, b.LastLine))
	})
}

// A runCause is what decides which of several runs failed first.
type runCause struct {
	first                 *Fault // the error that was seen first
	connecting, otherwise bool   // it has errors of connections, and other errors that are not mere consequences
}

func (r *runCause) add(f *Fault) {
	if f.LastSeen.Before(r.first.LastSeen) {
		r.first = f
	}
	switch {
	case f.Category == fault.CategoryConnection:
		r.connecting = true
	case !f.IsConsequence():
		r.otherwise = true
	}
}

func (r *runCause) compare(other *runCause) int {
	return cmp.Or(cmp.Compare(r.rank(), other.rank()), r.first.LastSeen.Compare(other.first.LastSeen))
}

func (r *runCause) rank() int {
	if r.connecting && !r.otherwise {
		return 1
	}
	return 0
}

// rankOf is 1 for an error that only follows from others, else 0.
func rankOf(f *Fault) int {
	if f.IsConsequence() {
		return 1
	}
	return 0
}
