package logstore

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pmcp/logstore/line"
	"pmcp/logstore/mask"
)

// realLogs returns the logs of real programs, by name: access and http are access logs, of morgan
// and of Python's http.server, json that of pino, npm that of an installation with --loglevel silly,
// build that of go build -x, test that of go test -v. Their paths are made up.
func realLogs(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/logs/*.log.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d logs, %v, want some", len(files), err)
	}
	logs := make(map[string][]byte)
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		logs[strings.TrimSuffix(filepath.Base(file), ".log.gz")] = text
	}
	return logs
}

// discard is a Sink that does nothing.
type discard struct{}

func (discard) Line([]byte, bool, bool) {}

// BenchmarkRealLogs measures what a line of real logs costs: to clean it, as the baseline, and to
// capture it, which also masks secrets, guesses the level and recognises errors. The two take turns,
// so that a busy machine slows both alike.
func BenchmarkRealLogs(b *testing.B) {
	for name, text := range realLogs(b) {
		b.Run(name, func(b *testing.B) {
			m := mask.New()
			m.LearnEnv(map[string]string{"API_TOKEN": "hunter2-is-my-token"})
			s, err := Open(b.Context(), Options{Mask: m})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			run := s.ownRun(startRun(s, "/p", "web"))
			stream := &run.streams[Stderr]
			lines := float64(bytes.Count(text, []byte("\n")))
			var cleaner line.Cleaner
			var cleaning, capturing []float64
			perLine := func(feed func(part []byte)) float64 {
				begin := cpu()
				for part := text; len(part) > 0; {
					n := min(len(part), 32<<10)
					feed(part[:n])
					part = part[n:]
				}
				return float64(cpu()-begin) / lines
			}
			for b.Loop() {
				cleaning = append(cleaning, perLine(func(p []byte) { cleaner.Feed(p, discard{}) }))
				run.mu.Lock()
				run.readAt = max(time.Now().UnixNano(), run.lastAt)
				capturing = append(capturing, perLine(func(p []byte) { stream.Feed(p, stream) }))
				run.sealLocked()
				for _, c := range run.sealed { // instead of the flusher
					c.release(&s.captureTable.pool)
				}
				run.sealed = nil
				run.mu.Unlock()
			}
			b.ReportMetric(median(cleaning), "cpu-ns/line-clean")
			b.ReportMetric(median(capturing), "cpu-ns/line")
			b.ReportMetric(float64(len(text))/lines, "bytes/line")
			b.ReportMetric(0, "ns/op")
		})
	}
}
