package logstore

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestLogViewShowsAllLines(t *testing.T) {
	s := openTest(t, Options{})
	run := startRun(s, "/p", "web")
	at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	tricky := `C:\x "quoted" {"a":1}` + "\té 日本 '"
	s.Capture(run, Stdout, at, []byte("first\n\n"))
	s.sealOpen(&scope{})
	flush(t, s)
	s.Capture(run, Stderr, at.Add(1234*time.Millisecond), []byte("ERROR "+tricky+"\n"))
	s.Capture(run, Messages, at.Add(90*time.Second), []byte("in the tail\n"))
	flush(t, s)
	stamp := func(d time.Duration) string { return at.Add(d).Format("2006-01-02 15:04:05.000") }
	want := []string{
		stamp(0) + "|web|1|1|out||first",
		stamp(0) + "|web|1|2|out||",
		stamp(1234*time.Millisecond) + "|web|1|3|err|error|ERROR " + tricky,
		stamp(90*time.Second) + "|web|1|4|mcp||in the tail",
	}
	const query = `SELECT time || '|' || process || '|' || run || '|' || line || '|' || stream || '|' || level || '|' || text FROM log ORDER BY run, line`
	rows, err := raw(t, s).Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			t.Fatal(err)
		}
		got = append(got, row)
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	shell, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("no sqlite3 shell here")
	}
	out, err := exec.Command(shell, s.file.Path, query).CombinedOutput()
	if err != nil || strings.TrimRight(string(out), "\n") != strings.Join(want, "\n") {
		t.Errorf("sqlite3 shell: got %q, %v; want %q", out, err, want)
	}
}
