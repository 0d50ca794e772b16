package logstore

import (
	"testing"
	"time"
)

// TestEndIsStoredLast: a run that takes several transactions is stored as over in the last of them,
// whether the file has heard of it before or not.
func TestEndIsStoredLast(t *testing.T) {
	for name, known := range map[string]bool{"first heard of": false, "known": true} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{}) // nobody else takes the run's work
			checkError(t, err)
			defer func() { checkError(t, s.Close()) }()
			run := startRun(s, "/p", "web")
			r := s.ownRun(run)
			store := func() (w runWork, more bool) {
				w, more, _ = r.work(false, 2*chunkBytes)
				r.stored(&w)
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
					t.Errorf("batch %d of those that go on says that the run is over: %+v", batches, w.row)
				case !more && (!over || !w.row.sealed || w.row.ended == 0 || w.row.lines != lines):
					t.Errorf("the last batch does not say that the run is over: %+v", w.row)
				case batches == 0 && !known && w.row == nil:
					t.Error("lines are stored of a run that the file does not know")
				}
			}
			if stored != lines || batches < 2 {
				t.Errorf("%d lines in %d batches", stored, batches)
			}
		})
	}
}

// TestPlacesOfTailRowsStayInTheRun: a run that prints for weeks does not write over the next run.
func TestPlacesOfTailRowsStayInTheRun(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	r := s.ownRun(run)
	r.mu.Lock()
	r.tailN = lastOfRun + 1
	r.mu.Unlock()
	put(s, run, 1, 10)
	flush(t, s)
	lo, hi := rowRange(run)
	var in, out int
	checkError(t, s.file.read.QueryRow(`SELECT count(*) FILTER (WHERE id BETWEEN ?1 AND ?2), count(*) FILTER (WHERE id NOT BETWEEN ?1 AND ?2) FROM tail`, lo, hi).Scan(&in, &out))
	if in == 0 || out != 0 {
		t.Errorf("%d tail rows are the run's, and %d are not", in, out)
	}
}

// TestLastLineAfterPlacesBeganAnew: the last line is not that of the last place.
func TestLastLineAfterPlacesBeganAnew(t *testing.T) {
	s := openTest(t, Options{})
	const run = 1 << 30
	for i, place := range []int64{lastOfRun/2 + 1, 0} {
		c := newChunk(int64(i), int64(i)*10+1, 1)
		c.append([]byte("line"), 1, lineFlags(Stdout, LevelNone, false, false), &s.pool)
		checkError(t, saveTail(t.Context(), s.file.write, run, &tailWork{chunk: c, n: place, block: c.snapshot(), maxAt: 1}))
	}
	if last, err := storedLastLine(t.Context(), s.file.read, run); err != nil || last != 11 {
		t.Errorf("line %d, %v", last, err)
	}
}
