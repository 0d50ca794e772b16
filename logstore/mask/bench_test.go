package mask

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLine measures masking of lines without secrets: the same mixture of lines as in the
// benchmarks of logstore, with up to as many learned values as a process inherits from a
// well-equipped shell.
func BenchmarkLine(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var lines [][]byte
	size := 0
	for i := range 5000 {
		var line string
		switch k := rnd.IntN(100); {
		case k < 10:
			line = fmt.Sprintf("127.0.0.1 - - [05/Jan/2026:10:00:%02d] \"GET /api/users/%d HTTP/1.1\" 200 %d \"-\" \"curl/8.5.0 (x86_64-pc-linux-gnu)\"", i%60, rnd.IntN(1e6), rnd.IntN(9000))
		case k < 40:
			line = fmt.Sprintf(`{"level":"info","time":%d,"msg":"request completed","method":"POST","status":%d,"id":"%08x"}`, 1767600000000+i, 200+rnd.IntN(5), rnd.Uint32())
		case k < 70:
			line = fmt.Sprintf("2026-01-05T10:00:00.%06dZ INFO  worker-%d processed job %d of batch %d in %dms req=%08x", i%1e6, rnd.IntN(32), rnd.IntN(1e6), rnd.IntN(1000), rnd.IntN(900), rnd.Uint32())
		case k < 90:
			line = fmt.Sprintf("[vite] hmr update /src/components/Panel%d.tsx, /src/styles/main.css?direct x%d (%d modules transformed)", rnd.IntN(100), rnd.IntN(9), rnd.IntN(2000))
		default:
			line = fmt.Sprintf("    at Object.handler%d (/home/user/project/node_modules/express/lib/router/layer.js:%d:%d)", rnd.IntN(100), rnd.IntN(300), rnd.IntN(80))
		}
		lines = append(lines, []byte(line))
		size += len(line)
	}
	for _, values := range []int{0, 10, 200} {
		b.Run(fmt.Sprintf("values-%d", values), func(b *testing.B) {
			m := New()
			env := map[string]string{}
			for i := range values {
				env[fmt.Sprintf("TOKEN_%d", i)] = fmt.Sprintf("%016x%016x", rnd.Uint64(), rnd.Uint64())
			}
			m.LearnEnv(env)
			l := m.Lines()
			b.SetBytes(int64(size))
			start := cpu()
			for b.Loop() {
				for _, line := range lines {
					if &l.Line(line)[0] != &line[0] {
						b.Fatalf("%s was changed, want it as it is", line)
					}
				}
			}
			b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(b.N*len(lines)), "cpu-ns/line")
		})
	}
}

// BenchmarkRows measures masking of long lines that repeat a text. Every text except "#" may
// announce a secret.
func BenchmarkRows(b *testing.B) {
	for _, row := range []string{"#", "@", "://@", "://a:@@@@@@@@@@@@@@@@", "PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY----------END ",
		"password=", "password=a1", "a=a1b2c3d4e5", `"token":"9f86d081884c",`, "AKIAIOSFODNN7EXAMPLE "} {
		b.Run(row, func(b *testing.B) {
			text := []byte(strings.Repeat(row, 256<<10/len(row)))
			set := New().set.Load()
			var spans []span
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				spans = set.find(text, spans[:0])
			}
		})
	}
}

// BenchmarkLearnArgs measures learning secrets from arguments of 256 KiB that repeat a text.
func BenchmarkLearnArgs(b *testing.B) {
	for _, row := range []string{"x", "x ", "=", "=:", "a=b", "a=b ", "x y=\\ ", "://a:@", "password=a1", "token: ", "/curl ", "curl -u ", "a1b2c3d4e5", "PASSWORD=a1b2c3d4e5 "} {
		b.Run(row, func(b *testing.B) {
			arg := strings.Repeat(row, 256<<10/len(row))
			b.SetBytes(int64(len(arg)))
			for b.Loop() {
				New().LearnArgs(arg)
			}
		})
	}
}

// cpu returns the processor time that this process has used so far. Other load on the machine does
// not affect it.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
