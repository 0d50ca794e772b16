package logstore

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"pmcp/logstore/line"
)

// storeLostRun stores what a killed server left of a run: a tail row for each element of rows,
// which is the row's number of lines. The lines are a second apart.
func storeLostRun(t *testing.T, s *Store, start time.Time, rows ...int) {
	t.Helper()
	r := newRunLog(1<<30, processKey{"/p", "web"}, 1, start, &s.pool, s.faultLog, nil)
	err := s.update(t.Context(), func(tx *sql.Tx) error {
		row := r.storedRowLocked()
		for _, lines := range rows {
			for range lines {
				r.readAt = start.Add(time.Duration(r.last) * time.Second).UnixNano()
				r.addLocked(fmt.Appendf(nil, "line %d of the run", r.last+1), lineFlags(Stdout, line.LevelNone, false, false), &s.pool)
			}
			w := runWork{run: r, row: row, tail: r.tailWorkLocked()}
			if err := w.store(t.Context(), tx); err != nil {
				return err
			}
			r.commit(&w)
		}
		return sealRun(t.Context(), tx, r.id, time.Now())
	})
	checkError(t, err)
}

// TestClearUntilCutsLostRunByTime checks that the lines of a killed server's run can be cleared up
// to any time, wherever that time falls in the run's rows.
func TestClearUntilCutsLostRunByTime(t *testing.T) {
	t.Parallel()
	const lines = 10
	for older := range lines + 1 {
		t.Run(fmt.Sprint(older), func(t *testing.T) {
			s := openTest(t, Options{})
			start := time.Now().Add(-time.Hour).Truncate(time.Second)
			storeLostRun(t, s, start, 2, 3, 1, 4)
			before := readAll(t, s, Query{})
			wantNumbered(t, before, 1, lines)
			cleared, bytes, err := s.Clear(t.Context(), "/p", nil, start.Add(time.Duration(older)*time.Second))
			if err != nil || cleared != int64(older) || bytes == 0 != (older == 0) {
				t.Fatalf("got %d lines and %d bytes cleared, %v; want %d lines", cleared, bytes, err, older)
			}
			left := readAll(t, s, Query{})
			wantNumbered(t, left, older+1, lines)
			for i, l := range left {
				if !l.At.Equal(before[older+i].At) {
					t.Errorf("line %d: got time %s, want %s as before", l.Number, l.At, before[older+i].At)
				}
			}
			st, err := s.RunStats(t.Context(), before[0].Run)
			if err != nil || st.Lines != int64(lines-older) || st.DroppedLines != int64(older) || st.DroppedBytes != bytes {
				t.Errorf("got stats %+v, %v; want %d lines and %d dropped with %d bytes", st, err, lines-older, older, bytes)
			}
			if again, _, err := s.Clear(t.Context(), "/p", nil, time.Time{}); err != nil || again != int64(lines-older) {
				t.Errorf("clearing the rest: got %d lines, %v; want %d", again, err, lines-older)
			}
			if left := readAll(t, s, Query{}); len(left) != 0 {
				t.Errorf("got %d lines left, want none", len(left))
			}
		})
	}
}
