package logstore

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pmcp/logstore/line"
	"pmcp/logstore/match"
	"pmcp/logstore/pack"
)

// chunkIDs returns the ids of the chunks of a run, oldest first.
func chunkIDs(t *testing.T, s *Store, run int64) []int64 {
	t.Helper()
	ids, err := queryColumn[int64](t.Context(), s.file.ReadDB, "list the chunks", `SELECT id FROM chunk WHERE id >> 24 = ? ORDER BY id`, run)
	checkError(t, err)
	return ids
}

// unpackStored brings the chunks of a file into the form in which versions before schema 5 stored them.
func unpackStored(t *testing.T, s *Store, run int64) {
	t.Helper()
	for _, id := range chunkIDs(t, s, run) {
		b, err := loadChunk(t.Context(), s.file.ReadDB, &s.packer, id)
		checkError(t, err)
		_, err = s.file.WriteDB.Exec(`UPDATE chunk_data SET meta = ?, body = ? WHERE id = ?`, b.meta, b.text, id)
		checkError(t, err)
	}
	_, err := s.file.WriteDB.Exec(`UPDATE chunk SET codec = 0, sum = NULL, stored = NULL; UPDATE tail SET sum = NULL; DELETE FROM chunk_filter`)
	checkError(t, err)
}

func TestChunksOfOlderVersionsAreReadable(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 30_000)
	flush(t, s)
	put(s, run, 30_001, 30_100) // in tail rows
	endRun(s, run)
	flush(t, s)
	unpackStored(t, s, run)
	wantNumbered(t, readAll(t, s, Query{Limit: 5000}), 1, 30_100)
	wantNumbered(t, readBackwards(t, s, Query{Limit: 5000}), 1, 30_100)
	if m, err := s.Search(t.Context(), SearchQuery{Text: "line 77 of"}); err != nil || len(m.Hits) != 1 || m.Hits[0].Number != 77 {
		t.Errorf("search: got %+v, %v; want line 77", m, err)
	}
}

// TestMaintenancePacksChunksOfOlderVersions checks that chunks of an older version are packed together with their
// filters, in slices, and that a chunk that Clear has shortened since it was read is left alone.
func TestMaintenancePacksChunksOfOlderVersions(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	const lines = 45 * 10_000
	checkError(t, putAll(s, run, 1, lines))
	endRun(s, run)
	flush(t, s)
	awaitFilters(t, s)
	unpackStored(t, s, run)
	packed := func() (n int) {
		checkError(t, s.file.ReadDB.QueryRow(`SELECT count(*) FROM chunk WHERE codec = 1 AND stored > 0`).Scan(&n))
		return n
	}
	m := &missingFilters{storage: s.storage}
	all := len(chunkIDs(t, s, run))
	if all <= filterBatch {
		t.Fatalf("got %d chunks, want more than one batch", all)
	}
	for got := 0; got < all; {
		m.filterBacklog.Store(false)
		checkError(t, m.buildMissing(t.Context()))
		now := packed()
		if now <= got || now > got+filterBatch || m.filterBacklog.Load() != (now < all) {
			t.Fatalf("got %d chunks packed after %d of %d and backlog %v, want up to %d more", now, got, all, m.filterBacklog.Load(), filterBatch)
		}
		got = now
	}
	wantNumbered(t, readAll(t, s, Query{Limit: 50_000}), 1, lines)
	found, err := s.Search(t.Context(), SearchQuery{Text: "line 123456 of"})
	if err != nil || len(found.Hits) != 1 || found.ReadBytes > 3*chunkBytes {
		t.Errorf("got %d hits in %d bytes, %v; want 1 in few bytes", len(found.Hits), found.ReadBytes, err)
	}
}

// TestDamagedFilterIsIgnored clears the bits of the filters in the file, and checks that a search still finds lines.
func TestDamagedFilterIsIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pmcp.db")
	first := openTest(t, Options{Path: path})
	run := startRun(first, "/p", "web")
	put(first, run, 1, 30_000)
	endRun(first, run)
	flush(t, first)
	awaitFilters(t, first)
	_, err := first.file.WriteDB.Exec(`UPDATE chunk_filter SET bits = zeroblob(8000)`)
	checkError(t, err)
	second := openTest(t, Options{Path: path, Alive: func(string, string) bool { return true }}) // has no filter in memory
	m, err := second.Search(t.Context(), SearchQuery{Text: "line 77 of"})
	if err != nil || len(m.Hits) != 1 {
		t.Errorf("got %+v, %v; want line 77", m, err)
	}
}

// TestDamagedChunkIsGap damages one chunk of several, in each way that SQLite does not notice, and checks that every
// read has all other lines, and a gap with the size of the chunk.
func TestDamagedChunkIsGap(t *testing.T) {
	t.Parallel()
	const all = 40_000 // four chunks
	for name, damage := range map[string]string{
		"body":       `UPDATE chunk_data SET body = CAST(x'00' || substr(body, 2) AS BLOB) WHERE id = ?`,
		"meta":       `UPDATE chunk_data SET meta = CAST(substr(meta, 1, length(meta) - 1) || x'55' AS BLOB) WHERE id = ?`,
		"cut":        `UPDATE chunk_data SET body = substr(body, 1, 100) WHERE id = ?`,
		"codec":      `UPDATE chunk SET codec = 0 WHERE id = ?`,
		"unknown":    `UPDATE chunk SET codec = 7 WHERE id = ?`,
		"sum":        `UPDATE chunk SET sum = NULL WHERE id = ?`,
		"data gone":  `DELETE FROM chunk_data WHERE id = ?`,
		"bytes":      `UPDATE chunk SET bytes = bytes + (1 << 40) WHERE id = ?`,
		"lines":      `UPDATE chunk SET lines = lines + (1 << 40) WHERE id = ?`,
		"first line": `UPDATE chunk SET first_line = first_line + (1 << 40) WHERE id = ?`,
		"lines gone": `DELETE FROM chunk WHERE id = ?`,
		"base":       `UPDATE chunk SET min_at = min_at + 1 WHERE id = ?`,
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Options{})
			run := startRun(s, "/p", "web")
			put(s, run, 1, all)
			endRun(s, run)
			flush(t, s)
			ids := chunkIDs(t, s, run)
			if len(ids) < 4 {
				t.Fatalf("got %d chunks, want at least 4", len(ids))
			}
			b, err := loadChunk(t.Context(), s.file.ReadDB, &s.packer, ids[1])
			checkError(t, err)
			want := Gap{Run: run, After: b.first - 1, Lines: b.lines(), Bytes: int64(len(b.text)), Reason: reasonDamaged}
			searchFinds := 1
			switch name {
			case "bytes", "lines":
				want.Bytes = -1 // the chunks before and after it show the lines only
			case "first line", "lines gone":
				want.Bytes, searchFinds = -1, 0 // it is no longer in its place
			}
			_, err = s.file.WriteDB.Exec(damage, ids[1])
			checkError(t, err)
			for _, q := range []Query{{After: CursorStart, Limit: 7000}, {Newest: true, Limit: 7000}} {
				lines, gaps := readPages(t, s, q)
				for i := range gaps {
					gaps[i].At = want.At
				}
				if !slices.Equal(gaps, []Gap{want}) {
					t.Errorf("got gaps %+v, want %+v", gaps, want)
				}
				wantNumbered(t, lines[:want.After], 1, int(want.After))
				wantNumbered(t, lines[want.After:], int(want.After+want.Lines+1), all)
			}
			m, err := s.Search(t.Context(), SearchQuery{Text: "of the run", CountOnly: true, MaxTime: time.Minute})
			if err != nil || m.Count != all-want.Lines || len(m.Gaps) != searchFinds {
				t.Errorf("search: got %d hits and gaps %+v, %v; want %d and %d", m.Count, m.Gaps, err, all-want.Lines, searchFinds)
			}
			if st := s.Status(); st.State != StateOK {
				t.Errorf("got state %s: %s; want OK", st.State, st.Reason)
			}
		})
	}
}

// readPages reads all pages of a query, in the order of the lines.
func readPages(t *testing.T, s *Store, q Query) (lines []Line, gaps []Gap) {
	t.Helper()
	for {
		p, err := s.Read(t.Context(), q)
		checkError(t, err)
		if !q.Newest {
			lines, gaps = append(lines, p.Lines...), append(gaps, p.Gaps...)
			if q.After = p.Next(); p.MoreAfter {
				continue
			}
			return lines, gaps
		}
		lines, gaps = append(slices.Clone(p.Lines), lines...), append(slices.Clone(p.Gaps), gaps...)
		if q.Before = p.Prev(); !p.MoreBefore {
			return lines, gaps
		}
	}
}

// TestDamagedTailRowIsGap damages a tail row of a run of another server.
func TestDamagedTailRowIsGap(t *testing.T) {
	alive := func(string, string) bool { return true }
	other := openTest(t, Options{Alive: alive})
	run := startRun(other, "/p", "web")
	for n := range 3 {
		put(other, run, 10*n+1, 10*n+10)
		flush(t, other)
	}
	_, err := other.file.WriteDB.Exec(`UPDATE tail SET body = CAST(replace(CAST(body AS TEXT), 'line 15', 'line 16') AS BLOB)`)
	checkError(t, err)
	s := openTest(t, Options{Path: other.opts.Path, Alive: alive})
	for _, q := range []Query{{After: CursorStart}, {Newest: true}} {
		p, err := s.Read(t.Context(), q)
		if err != nil || len(p.Gaps) != 1 || p.Gaps[0].After != 10 || p.Gaps[0].Lines != 10 {
			t.Fatalf("got gaps %+v, %v; want one of 10 lines after line 10", p.Gaps, err)
		}
		wantNumbered(t, p.Lines[:10], 1, 10)
		wantNumbered(t, p.Lines[10:], 21, 30)
	}
}

// TestChunkOverBoundIsGap stores a chunk that claims to be larger than any, with a checksum that fits.
func TestChunkOverBoundIsGap(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	put(s, run, 1, 20_000)
	endRun(s, run)
	flush(t, s)
	id := chunkIDs(t, s, run)[0]
	b, err := loadChunk(t.Context(), s.file.ReadDB, &s.packer, id)
	checkError(t, err)
	c := b.header(id)
	c.Bytes = 1 << 40
	stored := pack.Stored{Codec: pack.Packed, Meta: []byte("x"), Body: []byte("y")}
	_, err = s.file.WriteDB.Exec(`UPDATE chunk SET bytes = ?, sum = ? WHERE id = ?; UPDATE chunk_data SET meta = ?, body = ? WHERE id = ?`,
		c.Bytes, stored.Checksum(c), id, stored.Meta, stored.Body, id)
	checkError(t, err)
	p, err := s.Read(t.Context(), Query{After: CursorStart, Limit: 1})
	if err != nil || len(p.Gaps) != 1 || p.Gaps[0].Lines != b.lines() || len(p.Lines) != 1 || p.Lines[0].Text != fmt.Sprintf("line %d of the run", b.last()+1) {
		t.Errorf("got %+v and gaps %+v, %v; want the line after the chunk", p.Lines, p.Gaps, err)
	}
}

// TestRealFilesOfOlderVersions opens files that released versions wrote, each killed while a process ran: testdata has
// one for each schema. It reads them before and after maintenance packs them, and with two servers.
func TestRealFilesOfOlderVersions(t *testing.T) {
	t.Parallel()
	for version := 1; version <= 4; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pmcp.db")
			checkError(t, os.WriteFile(path, unpackFile(t, fmt.Sprintf("testdata/versions/%d.db.gz", version)), 0o600))
			mine, other := "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
			alive := func(_, id string) bool { return id == mine || id == other }
			s := openTest(t, Options{Path: path, Session: mine, RetentionDays: 36_500, Alive: alive})
			check := func(s *Store) {
				t.Helper()
				for _, read := range []func(testing.TB, *Store, Query) []Line{readAll, readBackwards} {
					wantNumbered(t, read(t, s, Query{Names: []string{"web"}, Limit: 3000}), 1, 11_000)
					wantNumbered(t, read(t, s, Query{Names: []string{"api"}, Limit: 3000, Streams: 1 << Stdout}), 1, 100)
				}
				m, err := s.Search(t.Context(), SearchQuery{Text: "line 10077 of"})
				if err != nil || len(m.Hits) != 1 || m.Hits[0].Number != 10_077 {
					t.Errorf("search: got %+v, %v; want line 10077", m, err)
				}
				all, _, err := s.Faults(t.Context(), FaultQuery{})
				if err != nil || len(all) != 1 || all[0].Message != "connect ECONNREFUSED 127.0.0.1:5432" {
					t.Errorf("faults: got %+v, %v; want the one of api", all, err)
				}
			}
			check(s)
			m := &missingFilters{storage: s.storage}
			checkError(t, m.buildMissing(t.Context()))
			var unpacked int
			checkError(t, s.file.ReadDB.QueryRow(`SELECT count(*) FROM chunk WHERE stored IS NULL AND bytes >= ?`, match.FilterMinText).Scan(&unpacked))
			if unpacked > 0 {
				t.Errorf("got %d chunks as they were, want all packed", unpacked)
			}
			check(s)
			check(openTest(t, Options{Path: path, Session: other, RetentionDays: 36_500, Alive: alive}))
		})
	}
}

// TestFilterReadsChunkWithDamagedCard damages the numbers by which filters exclude chunks, and checks that reads and
// searches with filters still find every line.
func TestFilterReadsChunkWithDamagedCard(t *testing.T) {
	t.Parallel()
	for _, damage := range []string{"max_at = max_at - (1 << 50)", "streams = 2", "l0 = 0, l4 = 0", "l4 = l4 - 100", "streams = 0"} {
		t.Run(damage, func(t *testing.T) {
			s := openTest(t, Options{})
			run, began := startRun(s, "/p", "web"), time.Now().Add(-time.Minute)
			s.Capture(run, Stdout, time.Now(), []byte(strings.Repeat("WARN line of the run\n", 100)))
			endRun(s, run)
			flush(t, s)
			checkError(t, execute(t.Context(), s.file.WriteDB, "damage", `UPDATE chunk SET `+damage))
			for _, q := range []Query{{Streams: 1 << Stdout}, {MinLevel: line.LevelWarn}, {Since: began}} {
				if n := len(readAll(t, s, q)); n != 100 {
					t.Errorf("%+v: got %d lines, want 100", q, n)
				}
				m, err := s.Search(t.Context(), SearchQuery{Query: q, Text: "of the run", CountOnly: true})
				if err != nil || m.Count != 100 {
					t.Errorf("%+v: search found %d lines, %v; want 100", q, m.Count, err)
				}
			}
		})
	}
}
