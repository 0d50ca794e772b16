package logstore

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"pmcp/logstore/db"
)

// TestFaultIsReturnedForEveryRunThatShowedIt checks that a query for a run returns every error that
// the run showed, also if a later run showed the error again.
func TestFaultIsReturnedForEveryRunThatShowedIt(t *testing.T) {
	for _, where := range []string{"file", "memory"} {
		t.Run(where, func(t *testing.T) {
			o := Options{Path: filepath.Join(t.TempDir(), "pmcp.db")}
			if where == "memory" {
				o.Path = ""
			}
			s, err := Open(t.Context(), o)
			checkError(t, err)
			t.Cleanup(func() { checkError(t, s.Close()) })
			var runs []int64
			for i := range 5 {
				run := startRun(s, "/p", "web")
				runs = append(runs, run)
				if i != 2 {
					throw(s, run, i)
				}
				endRun(s, run)
				if i == 1 {
					flush(t, s) // the errors of the other runs are stored in one commit
				}
			}
			for range 2 {
				for i, run := range runs {
					all, total, err := s.Faults(t.Context(), FaultQuery{Runs: []int64{run}})
					if want := i != 2; err != nil || (total == 1) != want || total > 1 {
						t.Errorf("run %d: got %d kinds %+v, %v; want one %v", i+1, total, all, err, want)
					}
				}
				flush(t, s)
			}
		})
	}
}

func TestFaultRunsAreBounded(t *testing.T) {
	s := openTest(t, Options{})
	var runs []int64
	for i := range maxFaultRuns + 3 {
		run := startRun(s, "/p", "web")
		runs = append(runs, run)
		throw(s, run, 1)
		endRun(s, run)
		if i%7 == 0 {
			flush(t, s)
		}
	}
	flush(t, s)
	var kept int
	checkError(t, s.file.ReadDB.QueryRow(`SELECT count(*) FROM fault_run`).Scan(&kept))
	if kept != maxFaultRuns {
		t.Errorf("got %d runs stored, want %d", kept, maxFaultRuns)
	}
	for i, want := range map[int]int{0: 1, 1: 0, 2: 0, 3: 1, maxFaultRuns + 2: 1} {
		if _, total, err := s.Faults(t.Context(), FaultQuery{Runs: runs[i : i+1]}); err != nil || total != want {
			t.Errorf("run %d: got %d kinds, %v; want %d", i+1, total, err, want)
		}
	}
	if _, _, err := s.Clear(t.Context(), "/p", nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	checkError(t, s.file.ReadDB.QueryRow(`SELECT count(*) FROM fault_run`).Scan(&kept))
	if kept != 0 {
		t.Errorf("got %d runs stored of a cleared error, want none", kept)
	}
}

// TestMigrationKeepsFaultsOfFirstSchema checks that the errors in a file of the first schema
// version are kept when the file is migrated.
func TestMigrationKeepsFaultsOfFirstSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	raw := db.WritePool.Open(path)
	_, err := raw.Exec(db.SchemaV1 + fmt.Sprintf(`; PRAGMA application_id = %d; PRAGMA user_version = 1;
		INSERT INTO fault VALUES ('f1', '/p', 'web', '', '', '', 'oh', '', 0, 0, NULL, 3, 3, 1, %d, 65537, 65541, 5, 1, 1, 0, '', 0)`, db.ApplicationID, time.Now().UnixNano()))
	checkError(t, err)
	checkError(t, raw.Close())
	s := openTest(t, Options{Path: path})
	for run, want := range map[int64]int{65537: 1, 65539: 0, 65541: 1} {
		if _, total, err := s.Faults(t.Context(), FaultQuery{Runs: []int64{run}}); err != nil || total != want {
			t.Errorf("run %d: got %d kinds, %v; want %d", run, total, err, want)
		}
	}
}
