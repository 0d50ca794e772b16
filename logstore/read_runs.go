package logstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"pmcp/logstore/db"
)

// A runMeta is the metadata of a run, known without reading its lines.
type runMeta struct {
	id            int64
	process       int64 // row id; 0 for a run that is in memory only
	key           processKey
	number        int
	started       int64
	ended         int64
	sealed        bool  // lines and lastAt are final
	lines, lastAt int64 // of a sealed run or one in memory
	removedLines  int64 // lines 1 to removedLines were removed
	removedBytes  int64
	info          []byte   // only of a scope with infos
	mem           *memView // of a run in this Store's memory
}

// order compares two runs by start, then id. The runs of one process follow each other in this order.
func (m *runMeta) order(o *runMeta) int {
	return cmp.Or(cmp.Compare(m.started, o.started), cmp.Compare(m.id, o.id))
}

const (
	metaOnly    = `r.id, r.process, p.project, p.name, r.number, r.started, r.ended, r.sealed, r.lines, r.last_at, r.gone_lines, r.gone_bytes`
	metaColumns = metaOnly + `, NULL`
	metaAndInfo = metaOnly + `, r.info`
)

// A scope selects the runs that a query covers.
type scope struct {
	project string
	names   []string
	runs    []int64
	after   cursor // the position to read from; nil: none
	latest  bool   // only each name's latest run
	maxRuns int    // only this many of the latest runs of each name; 0 = all
	infos   bool   // read the infos of the runs, too
}

// columns returns the columns of a run that a read in scope needs.
func (c *scope) columns() string {
	if c.infos {
		return metaAndInfo
	}
	return metaColumns
}

func (c *scope) matches(r *runLog) bool { return r.matches(c.project, c.names, c.runs) }

// where returns the condition that a row belongs to a process in scope, given the columns of its project
// and name. The scope must not list runs.
func (c *scope) where(project, name string) (condition string, args []any) {
	condition = "true"
	if c.project != "" {
		condition, args = project+" = ?", append(args, c.project)
	}
	if c.names != nil {
		in, names := inList(name, c.names)
		condition, args = condition+" AND "+in, append(args, names...)
	}
	return condition, args
}

// snapshotRuns returns snapshots of this Store's own runs in scope.
func (t *captureTable) snapshotRuns(c *scope) []memView {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var views []memView
	for _, r := range t.runs {
		if c.matches(r) {
			views = append(views, r.snapshot(&t.pool))
		}
	}
	return views
}

// overlayLate applies the rows that SaveRun recorded after a run left memory and that the file does not have
// yet.
func (t *captureTable) overlayLate(metas map[int64]*runMeta) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for id, row := range t.late {
		if m := metas[id]; m != nil {
			m.started, m.ended = max(m.started, row.started), row.ended
		}
	}
}

// storedMetas returns the runs in the file that are in scope.
func storedMetas(ctx context.Context, q db.Querier, c *scope) ([]*runMeta, error) {
	if c.runs != nil {
		where, args := inList("r.id", c.runs)
		return queryMetas(ctx, q, `SELECT `+metaColumns+` FROM run r JOIN process p ON p.id = r.process WHERE `+where, args)
	}
	// This is one statement, since one for each process took 2 ms for fifty processes. CROSS JOIN keeps SQLite
	// from reading the table run first. IN builds a table for each process, so it is used only for more than one
	// run. The limit is no parameter: SQLite compiles a statement again, in 40 µs, each time that of a LIMIT is set.
	const latest = `(SELECT id FROM run WHERE process = p.id ORDER BY started DESC, id DESC LIMIT `
	which := `r.process = p.id`
	switch {
	case c.latest, c.maxRuns == 1:
		which = `r.id = ` + latest + `1)`
	case c.maxRuns > 0:
		which = `r.id IN ` + latest + strconv.Itoa(c.maxRuns) + `)`
	}
	where, args := c.where("p.project", "p.name")
	return queryMetas(ctx, q, `SELECT `+c.columns()+` FROM process p CROSS JOIN run r ON `+which+` WHERE `+where, args)
}

func queryMetas(ctx context.Context, q db.Querier, query string, args []any) ([]*runMeta, error) {
	return queryAll(ctx, q, "read the runs", func(row *sql.Rows, m **runMeta) error {
		r := &runMeta{}
		*m = r
		var runNumber, sealed strictNumber
		err := row.Scan((*strictNumber)(&r.id), (*strictNumber)(&r.process), &r.key.project, &r.key.name, &runNumber, (*strictNumber)(&r.started), (*strictNumber)(&r.ended), &sealed,
			(*strictNumber)(&r.lines), (*strictNumber)(&r.lastAt), (*strictNumber)(&r.removedLines), (*strictNumber)(&r.removedBytes), &r.info)
		r.number, r.sealed = int(runNumber), sealed != 0
		return err
	}, query, args...)
}

// maxCursorRuns is the maximum number of runs of a cursor that are looked up. It is more than any cursor of
// ours has, and less than the number of parameters that SQLite accepts.
const maxCursorRuns = 10_000

// A cursorScope says what a cursor implies for the processes that it does not cover: the cursor was made after
// the latest of its runs started, so a run that had ended by then is not after the cursor. A read looks up the
// runs of the cursor once, and only if it meets such a process.
type cursorScope struct {
	loaded    bool
	stored    []int64             // the runs of the cursor that were not in memory
	processes map[processKey]bool // the processes that the cursor covers
	run       int64               // the latest of the cursor's runs
	started   int64               // when that run started; 0: unknown, since one of the runs is no longer stored
}

// newCursorScope looks up the runs of a cursor in memory. The caller must call it before the read transaction
// begins, so that the transaction sees the runs that leave memory later.
func (t *captureTable) newCursorScope(at cursor) *cursorScope {
	c := &cursorScope{processes: make(map[processKey]bool)}
	if c.loaded = len(at) == 0 || len(at) > maxCursorRuns; c.loaded {
		return c
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for id := range at {
		r := t.runs[id]
		if r == nil {
			c.stored = append(c.stored, id)
			continue
		}
		r.mu.Lock()
		c.add(id, r.key, r.row.started)
		r.mu.Unlock()
	}
	return c
}

// load looks up the remaining runs in the file. q is nil if there is no file.
func (c *cursorScope) load(ctx context.Context, q db.Querier) error {
	if c.loaded {
		return nil
	}
	c.loaded = true
	stored := c.stored
	if len(stored) > 0 && q != nil {
		metas, err := storedMetas(ctx, q, &scope{runs: stored})
		if err != nil {
			return fmt.Errorf("cannot read the runs of a cursor: %w", err)
		}
		for _, m := range metas {
			c.add(m.id, m.key, m.started)
		}
		stored = stored[len(metas):]
	}
	if len(stored) > 0 || c.started > time.Now().UnixNano() { // later than now: the clock was set back
		c.started = 0
	}
	return nil
}

func (c *cursorScope) add(run int64, key processKey, started int64) {
	c.processes[key] = true
	if started > c.started {
		c.run, c.started = run, started
	}
}
