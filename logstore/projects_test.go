package logstore

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pmcp/logstore/db"
)

// TestProjectLabelIsShortestUniqueTail checks the labels of projects in the order in which they are seen, with a file
// and without, and that another Store has the same labels.
func TestProjectLabelIsShortestUniqueTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	memory, err := Open(t.Context(), Options{})
	checkError(t, err)
	defer memory.Close()
	labels := []struct{ path, label string }{
		{"/home/u/repo", "repo"},
		{"/home/u/repo/.worktrees/feature", "feature"},
		{"/home/u/other/feature", "other/feature"},
		{"/srv/repo", "srv/repo"},
		{"/repo", "/repo"}, // its only tail is taken
		{"/mnt/home/u/repo", "mnt/home/u/repo"},
		{"/x/other/feature", "x/other/feature"},
		{"/", "/"},
	}
	for name, s := range map[string]*Store{"file": openTest(t, Options{Path: path, Session: "one"}), "memory": memory} {
		for range 2 {
			for _, l := range labels {
				if got := s.ProjectLabel(t.Context(), l.path); got != l.label {
					t.Errorf("%s: label of %s: got %q, want %q", name, l.path, got, l.label)
				}
			}
		}
		for _, c := range []struct {
			name string
			want []string
		}{
			{"repo", []string{"/home/u/repo"}}, // a label is exact
			{"u/repo", []string{"/home/u/repo", "/mnt/home/u/repo"}},
			{"/srv/repo", []string{"/srv/repo"}},
			{"home/u/repo", []string{"/home/u/repo", "/mnt/home/u/repo"}},
			{"/feature", nil},
			{"eature", nil},
			{"", nil},
		} {
			if got, err := s.ProjectPaths(t.Context(), c.name); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: projects named %q: got %v, %v; want %v", name, c.name, got, err, c.want)
			}
		}
	}
	again := openTest(t, Options{Path: path, Session: "two"})
	for _, l := range slices.Backward(labels) {
		if got := again.ProjectLabel(t.Context(), l.path); got != l.label {
			t.Errorf("another server: label of %s: got %q, want %q", l.path, got, l.label)
		}
	}
}

// TestProjectLabelsAreUniqueAcrossServers labels projects with the same last elements from two servers at once.
func TestProjectLabelsAreUniqueAcrossServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	stores := []*Store{openTest(t, Options{Path: path, Session: "one"}), openTest(t, Options{Path: path, Session: "two"})}
	const projects = 10
	var got [2][projects]string
	var all sync.WaitGroup
	for i, s := range stores {
		for j := range projects {
			all.Go(func() { got[i][j] = s.ProjectLabel(t.Context(), fmt.Sprintf("/p%d/feature", j)) })
		}
	}
	all.Wait()
	seen := make(map[string]bool)
	for j := range projects {
		if label := got[0][j]; label != got[1][j] || seen[label] {
			t.Errorf("project %d: got labels %q and %q, taken already %v; want one of its own", j, label, got[1][j], seen[label])
		}
		seen[got[0][j]] = true
	}
	if !seen["feature"] {
		t.Errorf("got labels %v, want feature among them", seen)
	}
}

// TestProjectLabelOfBlockedFileIsPath checks that a project has an address while its label cannot be stored, and gets
// its label later.
func TestProjectLabelOfBlockedFileIsPath(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	s.ProjectLabel(t.Context(), "/a/old")
	tx, err := s.file.WriteDB.Begin()
	checkError(t, err)
	if got := s.ProjectLabel(t.Context(), "/a/web"); got != "/a/web" {
		t.Errorf("blocked: got label %q, want the path", got)
	}
	if got := s.ProjectLabel(t.Context(), "/a/old"); got != "old" {
		t.Errorf("known label: got %q, want old", got)
	}
	checkError(t, tx.Rollback())
	s.projectTable.mu.Lock()
	s.projectTable.pausedUntil = time.Time{}
	s.projectTable.mu.Unlock()
	if got := s.ProjectLabel(t.Context(), "/a/web"); got != "web" {
		t.Errorf("afterwards: got label %q, want web", got)
	}
}

// TestMigrationToSchema4 checks that the projects of a file of the third schema version get labels when they are seen
// and are found by their tails before that, and that documents and statistics that nothing uses are deleted.
func TestMigrationToSchema4(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmcp.db")
	raw := db.WritePool.Open(path)
	_, err := raw.Exec(db.SchemaV1 + db.SchemaV2 + db.SchemaV3 + fmt.Sprintf(`; PRAGMA application_id = %d; PRAGMA user_version = 3;
		INSERT INTO process (project, name, runs) VALUES ('/p/feature', 'web', 1), ('/q/feature', 'web', 1);
		INSERT INTO run (id, process, number, started, ended, sealed) VALUES (65537, 1, 1, %d, 1, 1);
		INSERT INTO document VALUES (1, '/r/main', 'web', x'7b7d'), (2, '/p/feature', 'web', x'7b7d'), (3, '/p/feature', 'all', x'7b7d');
		ANALYZE`, db.ApplicationID, time.Now().UnixNano()))
	checkError(t, err)
	checkError(t, raw.Close())
	s := openTest(t, Options{Path: path})
	for name, want := range map[string][]string{"feature": {"/p/feature", "/q/feature"}, "main": {"/r/main"}} {
		if got, err := s.ProjectPaths(t.Context(), name); err != nil || !slices.Equal(got, want) {
			t.Errorf("projects named %s: got %v, %v; want %v", name, got, err, want)
		}
	}
	for _, want := range []string{"/p/feature p/feature", "/q/feature q/feature", "/r/main main"} {
		path, _, _ := strings.Cut(want, " ")
		if got := path + " " + s.ProjectLabel(t.Context(), path); got != want {
			t.Errorf("got label %q, want %q", got, want)
		}
	}
	if got, err := s.ProjectPaths(t.Context(), "feature"); err != nil || len(got) != 2 {
		t.Errorf("projects named feature, once both have labels: got %v, %v; want two", got, err)
	}
	if runs, err := s.Runs(t.Context(), RunFilter{Project: "/p/feature"}); err != nil || len(runs) != 1 {
		t.Errorf("got runs %v, %v; want one", runs, err)
	}
	if groups, err := s.Groups(t.Context(), "/p/feature"); err != nil || len(groups) != 1 {
		t.Errorf("got groups %v, %v; want one", groups, err)
	}
	for query, want := range map[string]int{
		`SELECT count(*) FROM document WHERE kind = 2`:                                  0,
		`SELECT count(*) FROM document`:                                                 2,
		`SELECT count(*) FROM sqlite_schema WHERE name LIKE 'sqlite\_stat%' ESCAPE '\'`: 0,
	} {
		var got int
		if err := s.file.ReadDB.QueryRow(query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", query, got, err, want)
		}
	}
}
