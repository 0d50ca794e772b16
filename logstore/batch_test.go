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
