package logstore

import (
	"database/sql"
	"fmt"
	"testing"
	"time"
)

// lostRun puts into the file what a killed server left of a run: a tail row for each number of
// lines, of which each was printed a second after the one before.
func lostRun(t *testing.T, s *Store, start time.Time, rows ...int) {
	t.Helper()
	r := newRunLog(1<<30, processKey{"/p", "web"}, 1, start, &s.pool, s.faults, nil)
	err := s.update(t.Context(), func(tx *sql.Tx) error {
		row := r.storedRow()
		for _, lines := range rows {
			for range lines {
				r.now = start.Add(time.Duration(r.last) * time.Second).UnixNano()
				r.add(fmt.Appendf(nil, "line %d of the run", r.last+1), lineFlags(Stdout, LevelNone, false, false), &s.pool)
			}
			w := runWork{run: r, row: row, tail: r.tailWork()}
			if err := w.store(t.Context(), tx, nil, make(map[processKey]int64)); err != nil {
				return err
			}
			r.stored(&w)
		}
		return sealRun(t.Context(), tx, r.id, time.Now())
	})
	checkError(t, err)
}

// TestClearUntilOfALostRun: what a killed server left goes by its time as well, wherever in its rows that falls.
func TestClearUntilOfALostRun(t *testing.T) {
	const lines = 10
	for older := range lines + 1 {
		t.Run(fmt.Sprint(older), func(t *testing.T) {
			s := openTest(t, Options{})
			start := time.Now().Add(-time.Hour).Truncate(time.Second)
			lostRun(t, s, start, 2, 3, 1, 4)
			before := readAll(t, s, Query{})
			wantNumbered(t, before, 1, lines)
			cleared, bytes, err := s.Clear(t.Context(), "/p", nil, start.Add(time.Duration(older)*time.Second))
			if err != nil || cleared != int64(older) || bytes == 0 != (older == 0) {
				t.Fatalf("%d lines, %d bytes, %v", cleared, bytes, err)
			}
			left := readAll(t, s, Query{})
			wantNumbered(t, left, older+1, lines)
			for i, l := range left {
				if !l.At.Equal(before[older+i].At) {
					t.Errorf("line %d is at %s, and was at %s", l.Number, l.At, before[older+i].At)
				}
			}
			st, err := s.RunStats(t.Context(), before[0].Run)
			if err != nil || st.Lines != int64(lines-older) || st.DroppedLines != int64(older) || st.DroppedBytes != bytes {
				t.Errorf("stats %+v, %v", st, err)
			}
			if again, _, err := s.Clear(t.Context(), "/p", nil, time.Time{}); err != nil || again != int64(lines-older) {
				t.Errorf("%d lines cleared of the rest, %v", again, err)
			}
			if left := readAll(t, s, Query{}); len(left) != 0 {
				t.Errorf("%d lines are left", len(left))
			}
		})
	}
}
