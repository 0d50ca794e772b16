package logstore

import (
	"context"
	"math"
)

// runPlace is where a run stands at the start and at the end of a page: behind the line with that number.
type runPlace struct {
	meta     *runMeta
	last     int64 // number of the run's last line; everything = not known without reading
	latest   int64 // no line is later
	finished bool  // no more lines will come
	over     bool  // not read
	dry      bool  // forward: read to its present end; or there is nothing to read, but perhaps a gap
	begin    int64
	end      int64
}

// everything stands for the number of a last line that is not known.
const everything = lastLine

// place gives where each run of a process stands at the page's near end, by the cursor if there is one.
func (p *plan) place(ctx context.Context, servers *servers, runs []*runMeta) ([]*runPlace, error) {
	at := p.after
	if p.before != nil {
		at = p.before
	}
	places := make([]*runPlace, len(runs))
	frontier := -1          // index of the latest run that the cursor names
	latest := len(runs) - 1 // of the latest that is wanted
	for i, m := range runs {
		places[i] = &runPlace{meta: m, last: everything, latest: math.MaxInt64, finished: m.sealed}
		if m.sealed || m.mem != nil {
			places[i].last, places[i].latest = m.lines, m.lastAt
		} else {
			server, err := servers.of(ctx, m.id)
			if err != nil {
				return nil, err
			}
			places[i].finished = !server.lives
		}
		if _, ok := at[m.id]; ok {
			frontier = i
		}
		if m.id == p.q.UpTo {
			latest = i
		}
	}
	if frontier < 0 && len(p.after) > 0 && p.before == nil {
		if err := p.passEarlier(ctx, servers, places); err != nil {
			return nil, err
		}
	}
	for i, place := range places {
		line, named := at[place.meta.id]
		switch {
		case at == nil:
			line = p.placeWithoutCursor(place)
		case named:
		case place.over:
			line = place.last
		case i < frontier && p.before != nil:
			line = place.last
		case i < frontier && place.finished: // it was over when the cursor was made
			line, place.over = place.last, true
		case i > frontier && p.before != nil: // it came after the cursor
			place.over = true
		}
		place.begin, place.end = line, line
		place.over = place.over || i > latest
	}
	return places, nil
}

func (p *plan) placeWithoutCursor(place *runPlace) int64 {
	before := place.meta.sealed && place.latest < p.filter.since
	empty := place.last == 0
	place.over, place.dry = before || empty, empty && !before
	if p.backward || before {
		return place.last
	}
	return 0
}

// cursorAt makes the cursor at which each run stands where at says. done tells whether the run is over there.
func (p *Page) cursorAt(at func(*runPlace) (line int64, done bool)) string {
	c := make(cursor)
	for _, places := range p.places {
		frontier := 0
		for i, place := range places {
			if line, _ := at(place); line > 0 {
				frontier = i
			}
		}
		for i, place := range places[:frontier+1] {
			if line, done := at(place); i == frontier || !done {
				c[place.meta.id] = line
			}
		}
	}
	return c.String()
}

// Next gives the cursor after the last line, or where the page ended if it is empty. It can always be followed.
func (p *Page) Next() string {
	return p.cursorAt(func(r *runPlace) (int64, bool) { return r.end, r.doneAt(r.end) })
}

// Prev gives the cursor before the first line.
func (p *Page) Prev() string {
	return p.cursorAt(func(r *runPlace) (int64, bool) { return r.begin, r.doneAt(r.begin) })
}

// Cursor gives the cursor between Lines[i] and what comes after: as After it continues behind
// Lines[i], as Before it gives Lines[i] and what precedes it.
func (p *Page) Cursor(i int) string {
	if i == len(p.Lines)-1 {
		return p.Next()
	}
	taken := make(map[int64]int64)
	for _, l := range p.Lines[:i+1] {
		taken[l.Run] = l.Number
	}
	toCome := make(map[int64]bool)
	for _, l := range p.Lines[i+1:] {
		toCome[l.Run] = true
	}
	return p.cursorAt(func(r *runPlace) (int64, bool) {
		line := max(r.begin, taken[r.meta.id])
		return line, !toCome[r.meta.id] && r.doneAt(line)
	})
}

// doneAt tells whether nothing of the run comes after a line, now or later.
func (r *runPlace) doneAt(line int64) bool {
	return r.finished && (line >= r.last || line == r.end && r.dry || line == everything)
}
