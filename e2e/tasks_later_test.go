package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"pmcp/process/proctest"
)

// laterTasks are ten more tasks that agents did, in 27 calls with 8,800 bytes read and 4,100 written with a
// plain shell, and in 47 calls with 18,000 and 3,000 bytes with pmcp as it was on 2026-11-28.
var laterTasks = []agentTask{
	{"a workspace of two servers, one with a config that does not parse", cost{2, 360, 235}, workspace},
	{"a queue test that fails one time in four", cost{1, 975, 140}, flakyTest},
	{"a leak behind one of four routes", cost{3, 480, 162}, leakyRoute},
	{"one order in 400,000 lines fails for good", cost{2, 1640, 126}, lostOrder},
	{"a set-up asks at a terminal", cost{1, 231, 214}, setUp},
	{"a stale copy of the server holds its port", cost{2, 732, 123}, staleCopy},
	{"a type checker's errors hide each other", cost{3, 795, 229}, typeChecker},
	{"a map race under load", cost{2, 1250, 138}, mapRace},
	{"a worker that must drain", cost{2, 420, 116}, drain},
	{"a long build, and a linter while it runs", cost{3, 1298, 161}, lintWhileBuilding},
}

// link makes the test binary the program shop of a directory of the project, which keeps its path out of
// what the agent reads and writes.
func (a *agent) link(t *testing.T, dir string) {
	check(t, os.MkdirAll(dir, 0o755))
	check(t, os.Symlink(self(t), filepath.Join(dir, "shop")))
}

// workspace is a task: of two servers one does not start, because a line of its configuration is misspelled.
func workspace(t *testing.T, a *agent) {
	a.link(t, a.w.project)
	a.write(t, "serve.sh", `awk -F= 'NF != 2 { printf "%s:%d: expected KEY=VALUE, got %s\n", FILENAME, NR, $0; exit 1 }' server.conf >&2 || exit 1
. ./server.conf; exec ../shop e2e-program http "$port"
`)
	config := func(name, line string) { a.write(t, name+"/server.conf", "name="+name+"\n"+line+"\n") }
	config("api", "port 0")
	config("web", "port=0")
	member := func(name string) args {
		return args{"process": name, "cwd": name, "command": "sh ../serve.sh", "ready": args{"http": "/"}}
	}
	a.do(t, "start_group", args{"group": "shop", "members": []args{member("api"), member("web")}}).
		says(`server\.conf:2: expected KEY=VALUE, got port 0`, `api: .*failed`, `web: .*ready`)
	config("api", "port=0")
	a.ok(t, "start_group", args{"group": "shop"}).says(`api: .*ready`, `web: .*ready|web: .*running`).lacks("failed", "partial")
}

// flakyTest is a task: of twenty runs of a test some fail, and the agent finds the case and the message.
func flakyTest(t *testing.T, a *agent) {
	a.write(t, "runs", "0\n")
	a.write(t, "test.sh", `runs=$(($(cat runs) + 1)); echo $runs >runs
echo "=== RUN   TestQueue"
for case in one_worker two_workers retries; do
  echo "=== RUN   TestQueue/$case"
  if [ $case = two_workers ] && [ $((runs % 4)) = 3 ]; then echo "    queue_test.go:31: job $runs was delivered twice"; failed=1; fi
done
if [ "$failed" ]; then
  printf -- '--- FAIL: TestQueue (0.00s)\n    --- PASS: TestQueue/one_worker (0.00s)\n    --- FAIL: TestQueue/two_workers (0.00s)\n    --- PASS: TestQueue/retries (0.00s)\nFAIL\n'
  exit 1
fi
printf -- '--- PASS: TestQueue (0.00s)\n    --- PASS: TestQueue/one_worker (0.00s)\n    --- PASS: TestQueue/two_workers (0.00s)\n    --- PASS: TestQueue/retries (0.00s)\nPASS\n'
`)
	a.do(t, "start_process", args{"command": `for i in $(seq 20); do sh test.sh || bad=$((bad+1)); done; echo $bad of 20 failed; exit $bad`, "wait": "exit"}).
		says(`FAIL: TestQueue/two_workers`, `queue_test\.go:31`, `job \d+ was delivered twice`, "5 of 20 failed", "exit code 5")
}

// leakyRoute is a task: one of four routes of a server keeps memory. The agent looks at the memory after
// requests of two routes, and then of a third.
func leakyRoute(t *testing.T, a *agent) {
	a.link(t, a.w.project)
	port := a.ok(t, "start_process", args{"name": "shop", "command": "./shop e2e-program memleak", "ready": args{"port": 0}}).port()
	memory := func(routes ...string) float64 {
		for _, route := range routes {
			for range 25 {
				resp, err := http.Get("http://127.0.0.1:" + port + "/" + route)
				check(t, err)
				check(t, resp.Body.Close())
			}
		}
		mib, err := strconv.ParseFloat(a.ok(t, "get_process_stats", args{"process": "shop"}).find(`now: .* ([\d.]+) MiB`), 64)
		check(t, err)
		return mib
	}
	before := memory("orders", "users")
	if after := memory("report"); after < before+90 {
		t.Errorf("got %.1f MiB after the requests of /report and %.1f before, want 100 more", after, before)
	}
}

// memleakProgram serves HTTP and keeps 4 MiB of each request of /report.
func memleakProgram([]string) int {
	var mu sync.Mutex
	var kept [][]byte
	return serve("0", func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/report" {
			mu.Lock()
			defer mu.Unlock()
			kept = append(kept, bytes.Repeat([]byte{1}, 4<<20))
		}
	})
}

// lostOrder is a task: a worker prints 400,000 lines of failures and retries, and one order never succeeds.
func lostOrder(t *testing.T, a *agent) {
	a.write(t, "worker.sh", `awk 'BEGIN { for (i = 1; i <= 100000; i++) { tries = i == 48211 ? 5 : 3
	for (try = 1; try <= tries; try++) printf "WARN order %d, attempt %d failed: connection reset by customer-%d\n", i, try, i % 907
	if (tries < 5) print "INFO order " i " shipped" }; print "99999 of 100000 orders shipped, 1 not after 5 attempts" }'
exit 1
`)
	a.do(t, "start_process", args{"name": "worker", "command": "sh worker.sh", "wait": "exit", "timeout_ms": longWait}).says("1 not after 5 attempts", "exit code 1")
	a.ok(t, "search_logs", args{"query": "attempt 5"}).says("order 48211, attempt 5 failed: connection reset by customer-140")
}

// setUp is a task: a program asks for a host and a password at a terminal.
func setUp(t *testing.T, a *agent) {
	a.write(t, "setup.sh", `[ -t 0 ] || { echo "setup.sh needs a terminal" >&2; exit 1; }
printf 'Database host [localhost]: '; read -r host
printf 'Password: '; stty -echo; read -r password; stty echo; echo
printf 'Write db.conf? [y/N] '; read -r yes; [ "$yes" = y ] || exit 3
echo "$password@$host" >db.conf; echo "wrote db.conf for ${host:-localhost}"
`)
	a.ok(t, "start_process", args{"command": "sh setup.sh", "pty": true, "wait": "exit", "steps": []args{
		{"expect": "host", "send": "db.local"}, {"expect": "Password", "send": "correct-horse-battery", "secret": true}, {"expect": "y/N", "send": "y"},
	}}).says("wrote db.conf for db.local", "exit code 0").lacks("correct-horse")
	got, err := os.ReadFile(filepath.Join(a.w.project, "db.conf"))
	check(t, err)
	if string(got) != "correct-horse-battery@db.local\n" {
		t.Errorf("got %q in db.conf, want the password and the host", got)
	}
}

// staleCopy is a task: the port of a server is held by a copy of it that a crashed tool has left, and another
// project runs the same program on another port.
func staleCopy(t *testing.T, a *agent) {
	other := t.TempDir()
	launch := func(dir string) (int, *exec.Cmd) {
		a.link(t, dir)
		port := proctest.FreePort(t)
		cmd := exec.Command("./shop", program("http", strconv.Itoa(port))...)
		cmd.Dir = dir
		check(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if !poll(answersWithin, func() bool { return get(port, 1) == nil }) {
			t.Fatalf("port %d does not answer after %v", port, answersWithin)
		}
		return port, cmd
	}
	port, stale := launch(a.w.project)
	otherPort, _ := launch(other)
	start := args{"name": "web", "command": fmt.Sprint("./shop e2e-program http ", port), "ready": args{"http": "/"}}
	pid := a.do(t, "start_process", start).says("address already in use", "in the same directory").find(fmt.Sprintf(`port %d is held by pid (\d+)`, port))
	if pid != strconv.Itoa(stale.Process.Pid) {
		t.Errorf("got the holder %s, want %d", pid, stale.Process.Pid)
	}
	check(t, stale.Process.Signal(syscall.SIGTERM))
	_ = stale.Wait()
	a.ok(t, "start_process", args{"name": "web"}).says("ready", strconv.Itoa(port))
	if err := get(otherPort, 1); err != nil {
		t.Errorf("the server of the other project: got %v, want an answer", err)
	}
}

// typeChecker is a task: a checker that watches shows an error only when the one before it is mended.
func typeChecker(t *testing.T, a *agent) {
	a.write(t, "main.ts", "const n: number = twelve\nconst s: string = n\n")
	a.write(t, "tsc.sh", `while :; do
now=$(cat main.ts)
if [ "$now" != "$last" ]; then last=$now count="1 error"; echo "File change detected. Starting incremental compilation..."
  case $now in
  *twelve*) echo "main.ts(1,19): error TS2304: Cannot find name 'twelve'." ;;
  *"= n"*) echo "main.ts(2,7): error TS2322: Type 'number' is not assignable to type 'string'." ;;
  *) count="0 errors" ;;
  esac; echo "Found $count. Watching for file changes."
fi
sleep 0.05
done
`)
	a.ok(t, "start_process", args{"name": "types", "command": "sh tsc.sh", "ready": args{"log": "Watching"}}).says(`main\.ts\(1,19\): error TS2304: Cannot find name 'twelve'`)
	wait := func() view {
		return a.ok(t, "wait_for_process", args{"process": "types", "until": "log", "pattern": "Watching"})
	}
	a.write(t, "main.ts", "const n: number = 12\nconst s: string = n\n")
	wait().says(`main\.ts\(2,7\): error TS2322: Type 'number' is not assignable to type 'string'`).lacks("twelve")
	a.write(t, "main.ts", "const n: number = 12\nconst s: string = `${n}`\n")
	wait().says("Found 0 errors").lacks("TS2322", "TS2304")
}

// mapRace is a task: a server dies under load, because two requests write a map at once. The trace names files
// in the directory of Go, which is longer on some machines.
func mapRace(t *testing.T, a *agent) {
	if raceDetector {
		t.Skip("the race detector reports the race first")
	}
	a.link(t, a.w.project)
	port := a.ok(t, "start_process", args{"name": "shop", "command": "./shop e2e-program maprace", "ready": args{"port": 0}}).port()
	var load sync.WaitGroup
	for range 2 {
		load.Go(func() {
			for {
				resp, err := http.Get("http://127.0.0.1:" + port + "/hit")
				if err != nil {
					return
				}
				_ = resp.Body.Close()
			}
		})
	}
	load.Wait()
	a.ok(t, "wait_for_process", args{"process": "shop", "until": "exit"}).says("fatal error: concurrent map writes", "recordHits", `tasks_later_test\.go:\d+`, "exit code 2")
}

// mapraceProgram serves HTTP and writes a map without a lock.
func mapraceProgram([]string) int {
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))) // otherwise no two goroutines write at once
	return serve("0", recordHits)
}

var hits = map[int]int{}

// recordHits writes the map for some milliseconds.
func recordHits(http.ResponseWriter, *http.Request) {
	for i := range 1 << 20 {
		hits[i%8] = i
	}
}

// drain is a task: a worker that is told to stop finishes its jobs, and the agent sees that it did.
func drain(t *testing.T, a *agent) {
	a.write(t, "worker.sh", `trap 'echo "draining 3 jobs"; for job in 7 8 9; do echo "job $job done"; done; echo "drained, 3 jobs done"; exit 0' TERM
echo "worker ready"; while :; do sleep 0.05; done
`)
	a.ok(t, "start_process", args{"name": "worker", "command": "sh worker.sh", "ready": args{"log": "ready"}})
	a.ok(t, "stop_process", args{"process": "worker"}).says("drained, 3 jobs done", "exit code 0")
}

// lintWhileBuilding is a task: a build runs for long, and the agent runs a linter before it waits for the build.
func lintWhileBuilding(t *testing.T, a *agent) {
	a.write(t, "build.sh", `awk 'BEGIN { for (i = 1; i <= 3000; i++) printf "[%d/3000] CC src/part%d.o\n", i, i }'
while [ ! -e linted ]; do sleep 0.05; done
echo "built shop, 3000 objects"
`)
	a.write(t, "lint.sh", `echo "src/cart.js:12:7: warning: total is never used"
echo "src/cart.js:40:3: error: return is missing"
echo "2 problems (1 error, 1 warning)"
exit 1
`)
	a.ok(t, "start_process", args{"name": "build", "command": "sh build.sh"}).says("running")
	a.do(t, "start_process", args{"command": "sh lint.sh", "wait": "exit"}).says("total is never used", `src/cart\.js:40:3`, "return is missing", "exit code 1")
	a.write(t, "linted", "") // the build takes longer than the linter
	a.ok(t, "wait_for_process", args{"process": "build", "until": "exit"}).says("built shop, 3000 objects", "exit code 0")
}
