package logstore

import (
	"testing"
	"time"

	"pmcp/logstore/db"
	"pmcp/logstore/line"
)

// TestEndIsStoredInLastBatch stores a run in several transactions, and checks that only the last
// one marks the run as ended, whether the file already has a row for the run or not.
func TestEndIsStoredInLastBatch(t *testing.T) {
	for name, known := range map[string]bool{"new": false, "known": true} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{}) // in memory only: the flusher does not collect the work of the run
			checkError(t, err)
			defer func() { checkError(t, s.Close()) }()
			run := startRun(s, "/p", "web")
			r := s.ownRun(run)
			store := func() (w runWork, more bool) {
				w, more, _ = r.collectWork(false, 2*chunkBytes)
				r.commit(&w)
				return w, more
			}
			if known {
				store()
			}
			const lines = 80_000
			put(s, run, 1, lines)
			s.EndCapture(run)
			s.SaveRun(run, time.Now(), time.Now(), nil)
			stored, batches := int64(0), 0
			for more := true; more; batches++ {
				var w runWork
				w, more = store()
				for _, c := range w.chunks {
					stored += c.lines()
				}
				switch over := w.row != nil && (w.row.sealed || w.row.ended != 0 || w.row.lines != 0); {
				case more && over:
					t.Errorf("batch %d of several: got a row that ended %+v, want it open", batches, w.row)
				case !more && (!over || !w.row.sealed || w.row.ended == 0 || w.row.lines != lines):
					t.Errorf("last batch: got row %+v, want it ended", w.row)
				case batches == 0 && !known && w.row == nil:
					t.Error("first batch: got lines without a row of the run, want the row too")
				}
			}
			if stored != lines || batches < 2 {
				t.Errorf("got %d lines in %d batches, want %d in at least 2", stored, batches, lines)
			}
		})
	}
}

// TestRunReusesIDsOfItsTailRows checks that a run that has used up the ids of its tail rows reuses
// the first ids, so that a run that prints for weeks does not overwrite rows of the next run.
func TestRunReusesIDsOfItsTailRows(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	r := s.ownRun(run)
	r.mu.Lock()
	r.tailN = db.MaxRowIndex + 1
	r.mu.Unlock()
	put(s, run, 1, 10)
	flush(t, s)
	lo, hi := db.RowRange(run)
	var in, out int
	checkError(t, s.file.ReadDB.QueryRow(`SELECT count(*) FILTER (WHERE id BETWEEN ?1 AND ?2), count(*) FILTER (WHERE id NOT BETWEEN ?1 AND ?2) FROM tail`, lo, hi).Scan(&in, &out))
	if in == 0 || out != 0 {
		t.Errorf("got %d tail rows in the run's range and %d outside, want all inside", in, out)
	}
}

// TestLastLineIsFoundAfterTailRowIDsWrapAround checks that the last line of a run is found although
// its tail row does not have the largest id.
func TestLastLineIsFoundAfterTailRowIDsWrapAround(t *testing.T) {
	s := openTest(t, Options{})
	const run = 1 << 30
	for i, pos := range []int64{db.MaxRowIndex/2 + 1, 0} {
		c := newChunk(int64(i), int64(i)*10+1, 1)
		c.append([]byte("line"), 1, lineFlags(Stdout, line.LevelNone, false, false), &s.pool)
		first, _ := db.RowRange(run)
		tail := c.snapshot()
		checkError(t, saveTail(t.Context(), s.file.WriteDB, first+pos, &tail))
	}
	if last, err := storedLastLine(t.Context(), s.file.ReadDB, run); err != nil || last != 11 {
		t.Errorf("got line %d, %v; want 11", last, err)
	}
}
