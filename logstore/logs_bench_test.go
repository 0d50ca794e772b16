package logstore

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"math/rand/v2"
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
		logs[strings.TrimSuffix(filepath.Base(file), ".log.gz")] = unpackFile(t, file)
	}
	return logs
}

// unpackFile returns what gzip packed into a file.
func unpackFile(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	checkError(t, err)
	defer f.Close()
	packed, err := gzip.NewReader(f)
	checkError(t, err)
	text, err := io.ReadAll(packed)
	checkError(t, err)
	return text
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

// BenchmarkDisk measures what real logs take on disk, the write-ahead log included and the reserve excluded, and how
// many of their lines the default cap holds. The logs are short, so they repeat, each time with other digits.
func BenchmarkDisk(b *testing.B) {
	logs := realLogs(b)
	mark, most := int64(64<<20), int64(math.MaxInt64)
	if benchCorpus().lines < 1_000_000 {
		mark, most = 1<<20, 1<<20
	}
	for _, name := range []string{"access", "build", "json"} {
		b.Run(name, func(b *testing.B) {
			text := logs[name]
			for b.Loop() {
				s, err := Open(b.Context(), Options{Path: filepath.Join(b.TempDir(), "pmcp.db")})
				checkError(b, err)
				run := startRun(s, "/p", name)
				random := rand.New(rand.NewPCG(1, 2))
				var fed int64
				for fed < most && s.maintainer.retired.lines.Load() == 0 {
					s.Capture(run, Stdout, time.Now(), otherDigits(text, random))
					before := fed
					if fed += int64(len(text)); before < mark && fed >= mark {
						checkError(b, s.Flush(b.Context()))
						b.ReportMetric(float64(s.file.Size()-s.limits.Reserve)/float64(fed), "disk/text")
					}
				}
				checkError(b, s.Flush(b.Context()))
				stats, err := s.RunStats(b.Context(), run)
				checkError(b, err)
				b.ReportMetric(float64(stats.Lines), "lines")
				checkError(b, s.Close())
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// otherDigits returns the text with its digits exchanged, each for the same one everywhere.
func otherDigits(text []byte, random *rand.Rand) []byte {
	digits := random.Perm(10)
	other := bytes.Clone(text)
	for i, c := range other {
		if c >= '0' && c <= '9' {
			other[i] = '0' + byte(digits[c-'0'])
		}
	}
	return other
}
