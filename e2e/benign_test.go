package e2e

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pmcp/process/proctest"
)

var benignRows = flag.String("benign", "", "the programs of TestBenignProgramsAreNotAccused that match are run")

// A benign program does nothing wrong, but looks like something that does.
type benign struct {
	run    string // what runs the script: sh, node or python3
	script string // behind preambles[run]
	more   args   // of the start; the port 1 stands for that in PORT
	ends   bool   // it exits with 0, and the start waits for that
	gaps   bool   // its port closes at times for long enough to be noticed
}

// preambles are what the scripts have in common: serve serves HTTP on PORT.
var preambles = map[string]string{
	"sh": "",
	"node": `const port = +process.env.PORT, http = require('http'), cp = require('child_process'), fs = require('fs')
const server = http.createServer((q, r) => r.end('ok')), serve = () => server.listen(port, '127.0.0.1', () => console.log('up'))
const throwing = () => { try { null.price } catch (e) { console.error(e) } }
`,
	"python3": `import os, sys, time, socket, subprocess, threading, logging, signal, traceback
from http.server import HTTPServer, BaseHTTPRequestHandler
port = int(os.environ["PORT"])
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *a): pass
def listen(option=socket.SO_REUSEADDR):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.setsockopt(socket.SOL_SOCKET, option, 1)
    s.bind(("127.0.0.1", port)); s.listen(); return s
def serve():
    s = HTTPServer(("127.0.0.1", port), Handler)
    print("up", flush=True)
    s.serve_forever()
def failing():
    try: {}["price"]
    except KeyError: traceback.print_exc()
`,
}

var (
	byPort = args{"ready": args{"port": 1}}
	byHTTP = args{"ready": args{"http": "/"}}
	byLog  = args{"ready": args{"log": "^up"}}
	onPTY  = args{"pty": true}
)

// needInterpreters skips a test as a whole, which .ci/long counts as failed: a part of its programs proves little.
func needInterpreters(t *testing.T) {
	t.Helper()
	for _, program := range []string{"node", "npm", "python3", "git"} {
		needs(t, program)
	}
}

func both(a, b args) args {
	c := maps.Clone(a)
	maps.Copy(c, b)
	return c
}

var benigns = map[string]benign{
	// Servers.
	"plain":                 {run: "node", script: "serve()", more: byHTTP},
	"plain-any-port":        {run: "python3", script: "serve()", more: args{"ready": args{"port": 0}}},
	"plain-unchecked":       {run: "node", script: "serve()"},
	"plain-pty":             {run: "python3", script: "serve()", more: both(byPort, onPTY)},
	"plain-pty-unchecked":   {run: "node", script: "serve()", more: onPTY},
	"no-stdin":              {run: "node", script: "serve()", more: both(byPort, args{"stdin": false})},
	"below-shell":           {run: "sh", script: "node -e \"require('http').createServer().listen($PORT,'127.0.0.1')\"; echo ended", more: byPort},
	"cluster":               {run: "node", script: "const c = require('cluster'); if (c.isPrimary) { c.fork(); c.fork() } else serve()", more: byHTTP},
	"cluster-dying-workers": {run: "node", script: "const c = require('cluster'); if (c.isPrimary) { c.on('exit', () => c.fork()); c.fork(); c.fork() } else { serve(); setTimeout(() => { throw new Error('worker') }, 3000) }", more: byPort},
	"late-worker":           {run: "node", script: "const c = require('cluster'); if (c.isPrimary) { c.on('exit', () => setTimeout(() => c.fork(), 5000)); c.fork(); c.fork() } else { serve(); if (c.worker.id == 2) setTimeout(() => { throw new Error('worker') }, 2000) }", more: byLog},
	"prefork": {run: "python3", script: `s = listen()
print("up", flush=True)
for _ in range(3):
    if os.fork() == 0:
        while True: s.accept()[0].close()
signal.pause()`, more: byPort},
	"prefork-recycled": {run: "python3", script: `s = listen()
print("up", flush=True)
while True:
    if os.fork() == 0:
        time.sleep(2); failing(); os._exit(1)
    os.wait()`, more: byLog},
	"socket-to-child": {run: "python3", script: `s = listen(); s.set_inheritable(True)
c = subprocess.Popen([sys.executable, "-c", "import socket,time\ns=socket.socket(fileno=%d)\nwhile True: s.accept()[0].close()" % s.fileno()], pass_fds=[s.fileno()])
s.close(); c.wait()`, more: byPort},
	"socket-across-exec": {run: "python3", script: `if len(sys.argv) > 1: s = socket.socket(fileno=int(sys.argv[1]))
else: s = listen()
s.set_inheritable(True); time.sleep(3); os.execv(sys.executable, [sys.executable, __file__, str(s.fileno())])`, more: byPort},
	"reuseport-rolling": {run: "python3", script: `if len(sys.argv) > 1:
    s = listen(socket.SO_REUSEPORT)
    print("up", flush=True); signal.pause()
old = None
while True:
    new = subprocess.Popen([sys.executable, __file__, "child"], stdout=subprocess.PIPE); new.stdout.readline()
    if old: old.terminate(); old.wait()
    old = new; time.sleep(3)`, more: byPort},
	"reopens-quickly":           {run: "node", script: "serve(); setInterval(() => { server.close(() => setTimeout(serve, 100)); server.closeAllConnections() }, 3000)", more: byPort},
	"reopens-at-once":           {run: "node", script: "serve(); setInterval(() => { server.close(serve); server.closeAllConnections() }, 500)", more: byPort},
	"replaced-by-parent":        {run: "node", script: "if (process.argv[2]) return serve(); let c; const go = () => { c = cp.spawn(process.execPath, [__filename, 'child'], {stdio: 'inherit'}) }; go(); setInterval(() => { c.once('exit', go); c.kill() }, 5000)", more: byPort, gaps: true},
	"binds-late":                {run: "node", script: "setTimeout(serve, 12000)", more: byPort},
	"binds-late-busy":           {run: "python3", script: "e = time.time() + 8\nwhile time.time() < e: pass\nserve()", more: byHTTP},
	"retries-database":          {run: "node", script: "let n = 0; const t = setInterval(() => { require('net').connect(1, '127.0.0.1').on('error', e => { console.error(e); if (++n == 4) { clearInterval(t); serve() } }) }, 2500)", more: byPort},
	"retries-traceback":         {run: "python3", script: "for _ in range(3):\n    try: socket.create_connection((\"127.0.0.1\", 1))\n    except OSError: logging.exception('database')\n    time.sleep(3)\nserve()", more: byPort},
	"retries-by-child":          {run: "sh", script: "for i in 1 2 3; do node -e 'throw new Error(\"no database\")'; sleep 3; done; exec node -e \"require('http').createServer().listen($PORT,'127.0.0.1')\"", more: byPort},
	"supervisor-pauses":         {run: "node", script: "if (process.argv[2] == 3) return serve(); if (process.argv[2]) throw new Error('not yet'); let n = 0; const go = () => cp.spawn(process.execPath, [__filename, ++n], {stdio: 'inherit'}).on('exit', () => setTimeout(go, 4000)); go()", more: byPort},
	"pauses-after-error":        {run: "sh", script: "node -e 'throw new Error(\"optional\")' ; sleep 9; exec python3 -m http.server $PORT --bind 127.0.0.1", more: byPort},
	"error-then-child":          {run: "node", script: "serve(); setTimeout(() => { throwing(); cp.execFile('git', ['--version'], () => {}) }, 2000)", more: byPort},
	"error-then-child-log":      {run: "node", script: "serve(); setTimeout(() => { throwing(); cp.execFile('git', ['--version'], () => {}) }, 2000)", more: byLog},
	"traceback-then-child":      {run: "python3", script: "threading.Thread(target=serve).start()\ntime.sleep(2); failing(); subprocess.run(['ls', '/'], stdout=subprocess.DEVNULL)\nsignal.pause()", more: byPort},
	"traceback-then-child-log":  {run: "python3", script: "threading.Thread(target=serve).start()\ntime.sleep(2); failing(); subprocess.run(['ls', '/'], stdout=subprocess.DEVNULL)\nsignal.pause()", more: byLog},
	"watches-files-itself":      {run: "node", script: "fs.watch('.'); serve(); setTimeout(() => { throwing(); cp.execFile('git', ['--version'], () => {}) }, 2000)", more: byLog},
	"error-before-ready":        {run: "node", script: "throwing(); cp.execFileSync('ls'); setTimeout(serve, 9000)", more: byPort},
	"logs-exit-status":          {run: "sh", script: "python3 -m http.server $PORT --bind 127.0.0.1 & sleep 3; false; echo 'hook: ' ; sh -c 'sleep 0.1; echo exit status 1'; wait", more: byPort},
	"worker-ends-later":         {run: "node", script: "if (process.argv[2]) return setTimeout(() => {}, 8000); serve(); cp.spawn(process.execPath, [__filename, 'worker']); setTimeout(throwing, 2500)", more: byLog},
	"silent":                    {run: "python3", script: "serve()", more: byHTTP},
	"chatty":                    {run: "node", script: "serve(); setInterval(() => console.log('GET / 200'), 20)", more: byPort},
	"chatty-errors":             {run: "node", script: "serve(); setInterval(throwing, 700)", more: byPort},
	"asks-and-goes-on":          {run: "sh", script: "printf 'Continue? '; sleep 1; exec node -e \"require('http').createServer().listen($PORT,'127.0.0.1')\"", more: byPort},
	"asks-and-goes-on-pty":      {run: "sh", script: "printf 'Continue? '; sleep 1; exec node -e \"require('http').createServer().listen($PORT,'127.0.0.1')\"", more: both(byPort, onPTY)},
	"password-in-log":           {run: "node", script: "serve(); process.stdout.write('Password: ')", more: byPort},
	"password-unchecked":        {run: "python3", script: "sys.stdout.write('Password: '); sys.stdout.flush(); serve()", more: onPTY},
	"reads-stdin":               {run: "node", script: "serve(); process.stdin.on('data', () => {})", more: byPort},
	"reads-stdin-pty":           {run: "node", script: "serve(); process.stdin.setRawMode?.(true); process.stdin.on('data', () => {})", more: both(byPort, onPTY)},
	"reads-stdin-pty-unchecked": {run: "node", script: "serve(); require('readline').createInterface(process.stdin).on('line', () => {})", more: onPTY},
	"blocks-on-stdin":           {run: "python3", script: "threading.Thread(target=serve).start()\nsys.stdin.readline()", more: byPort},
	"blocks-on-stdin-pty":       {run: "python3", script: "threading.Thread(target=serve).start()\nsys.stdin.readline()", more: both(byPort, onPTY)},
	"blocks-on-stdin-unchecked": {run: "python3", script: "threading.Thread(target=serve, daemon=True).start()\nsys.stdin.readline()", more: onPTY},
	"forks-all-the-time":        {run: "sh", script: "python3 -m http.server $PORT --bind 127.0.0.1 & while :; do git --version >/dev/null; ls >/dev/null; sleep 0.1; done", more: byPort},
	"forks-failing-tools":       {run: "sh", script: "python3 -m http.server $PORT --bind 127.0.0.1 & while :; do sleep 4; git rev-parse --verify nothing^; ls /nowhere; done", more: byPort},
	"changes-name":              {run: "node", script: "serve(); let n = 0; setInterval(() => process.title = 'worker ' + ++n, 500)", more: byPort},
	"double-fork":               {run: "sh", script: "(setsid python3 -m http.server $PORT --bind 127.0.0.1 &); exec sleep 1000", more: byPort},
	"keeps-zombie":              {run: "python3", script: "if os.fork() == 0: os._exit(1)\nserve()", more: byPort},
	"second-port-closes":        {run: "node", script: "serve(); const t = http.createServer().listen(0, '127.0.0.1'); setTimeout(() => t.close(), 4000)", more: args{"ready": args{"port": 0}}},
	"throttled":                 {run: "sh", script: "python3 -m http.server $PORT --bind 127.0.0.1 & p=$!; sleep 2; while kill -STOP $p; do sleep 0.2; kill -CONT $p; sleep 0.05; done", more: byPort},
	"socket-activated": {run: "python3", script: `s = listen(); print("up", flush=True)
c, _ = s.accept(); s.set_inheritable(True)
subprocess.run([sys.executable, "-c", "import socket,time\\ns=socket.socket(fileno=%d)\\nwhile True: s.accept()[0].close()" % s.fileno()], pass_fds=[s.fileno()])`, more: byPort},
	"spawn-pool": {run: "python3", script: `import multiprocessing
def work(n): time.sleep(0.5); return n
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    threading.Thread(target=serve, daemon=True).start()
    while True:
        with multiprocessing.Pool(2) as p: p.map(work, range(4))
        time.sleep(1)`, more: byPort},
	"npm-script":   {run: "sh", script: `echo '{"scripts": {"dev": "node dev.js"}}' > package.json; echo 'require("http").createServer().listen(process.env.PORT, "127.0.0.1")' > dev.js; exec npm run dev`, more: byPort},
	"watch-option": {run: "node", script: "if (!process.argv[2]) { cp.spawn(process.execPath, [__filename, '--watch'], {stdio: 'inherit'}); return } serve(); setTimeout(() => { throwing(); cp.execFile('ls', () => {}) }, 3000)", more: byPort},
	"bursts":       {run: "python3", script: "threading.Thread(target=serve, daemon=True).start()\nfor _ in range(3):\n    e = time.time() + 1.5\n    while time.time() < e: pass\n    time.sleep(4)\nos._exit(0)", ends: true},
	"debug-port":   {run: "sh", script: "exec node --inspect=127.0.0.1:0 -e \"require('http').createServer().listen($PORT,'127.0.0.1')\"", more: byPort},

	// Watchers.
	"watch":             {run: "sh", script: "printf '%s\\n' \"require('http').createServer().listen($PORT,'127.0.0.1',()=>console.log('up'))\" > watched.js; exec node --watch watched.js", more: byPort},
	"watch-compiles":    {run: "sh", script: "sh -c 'sleep 0.5; echo compiled'; echo up; exec sleep 1000", more: byLog},
	"watch-type-errors": {run: "node", script: "fs.watch('.'); console.log(\"src/a.ts(4,7): error TS2322: Type 'string' is not assignable to type 'number'.\\n\\nup: Found 1 error. Watching for file changes.\")", more: byLog},
	"watch-polls":       {run: "python3", script: "print('up', flush=True)\nwhile True: os.stat('.'); time.sleep(0.1)", more: byLog},
	"restarts-children": {run: "node", script: "if (process.argv[2]) return setTimeout(() => process.exit(1), 1500); const go = () => cp.spawn(process.execPath, [__filename, 'child'], {stdio: 'inherit'}).on('exit', c => { console.log('exited with code', c); go() }); go(); console.log('up')", more: byLog},

	// What ends.
	"sleeps":                 {run: "sh", script: "sleep 12", ends: true},
	"sleeps-pty":             {run: "sh", script: "sleep 12", more: onPTY, ends: true},
	"busy":                   {run: "python3", script: "e = time.time() + 12\nwhile time.time() < e: pass", ends: true},
	"busy-server":            {run: "python3", script: "threading.Thread(target=serve, daemon=True).start()\ne = time.time() + 14\nwhile time.time() < e: sum(range(1000))", ends: true},
	"test-runner":            {run: "node", script: "if (process.argv[2]) { const e = Date.now() + 13000; while (Date.now() < e); } else { serve(); cp.spawn(process.execPath, [__filename, 'child'], {stdio: 'inherit'}).on('exit', () => process.exit(0)) }", ends: true},
	"server-with-dots":       {run: "node", script: "serve(); let n = 0; setInterval(() => { process.stdout.write('.'); if (++n == 5) process.exit(0) }, 3000)", ends: true},
	"partial-line":           {run: "sh", script: "printf 'Compiling... '; sleep 12; echo done", ends: true},
	"partial-line-pty":       {run: "sh", script: "printf 'Compiling... '; sleep 12; echo done", more: onPTY, ends: true},
	"asks-nobody":            {run: "sh", script: "printf 'Overwrite? [y/N] '; sleep 5; echo no answer, going on", more: onPTY, ends: true},
	"progress-and-keys":      {run: "python3", script: "threading.Thread(target=sys.stdin.readline, daemon=True).start()\nfor i in range(40): sys.stdout.write('\\rBuilding %d' % i); sys.stdout.flush(); time.sleep(0.3)\nos._exit(0)", ends: true},
	"progress-and-keys-node": {run: "node", script: "process.stdin.on('data', () => {}); let n = 0; setInterval(() => { process.stdout.write('\\rBuilding ' + n); if (++n == 40) process.exit(0) }, 300)", more: onPTY, ends: true},
	"keys-behind-prompt":     {run: "node", script: "process.stdout.write('press h for help: '); serve(); process.stdin.on('data', () => {})", more: onPTY},
	"pipeline":               {run: "sh", script: "printf 'working '; { sleep 11; echo data; } | cat", ends: true},
	"errors-and-exits":       {run: "node", script: "throwing(); cp.execFileSync('ls'); setTimeout(() => console.log('done'), 11000)", ends: true},
	"many-children":          {run: "sh", script: "for i in $(seq 200); do ls / >/dev/null; sleep 0.05; done", ends: true},
}

// TestBenignProgramsAreNotAccused runs programs that do nothing wrong, and checks for 15 s that no answer calls one of
// them not ready, stalled, suspended, waiting for input or without an end.
func TestBenignProgramsAreNotAccused(t *testing.T) {
	proctest.Long(t, "load")
	needInterpreters(t)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(benigns)), func(name string) bool { return !regexp.MustCompile(*benignRows).MatchString(name) })
	const sessions, together = 4, 5
	for s := range sessions {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.set("PM_RATE_LIMIT", "0")
			c := w.open(t)
			var running sync.WaitGroup
			slots := make(chan struct{}, together)
			for i := s; i < len(names); i += sessions {
				name, b := names[i], benigns[names[i]]
				port := proctest.FreePort(t)
				running.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					c.acquit(t, w, name, port, b)
				})
			}
			running.Wait()
		})
	}
}

// script writes a script for the program run into a directory of its own and returns the arguments of its start, with
// more, in which the readiness port 1 stands for port.
func (w *world) script(name string, port int, run, script string, more args) (start args, err error) {
	dir := filepath.Join(w.project, name)
	file := filepath.Join(dir, "program")
	start = both(args{"name": name, "command": run, "args": []string{file}, "cwd": dir, "env": args{"PORT": fmt.Sprint(port)}, "timeout_ms": longWait}, more)
	if ready, ok := start["ready"].(args); ok && ready["port"] == 1 {
		start["ready"] = args{"port": port}
	}
	return start, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte(preambles[run]+script+"\n"), 0o644))
}

// acquit runs a benign program and fails the test if an answer accuses it of something.
func (c *caller) acquit(t *testing.T, w *world, name string, port int, b benign) {
	start, err := w.script(name, port, b.run, b.script, b.more)
	if err != nil {
		t.Error(err)
		return
	}
	_, checked := start["ready"]
	if b.ends {
		start["wait"] = "exit"
	}
	accused := false
	read := func(call string, r result, text string) {
		for _, word := range []string{"not ready", "waits for input", "its watcher waits", "is suspended", "may never exit"} {
			if strings.Contains(text, word) && !accused && !(b.gaps && strings.Contains(text, " closed ")) {
				accused = true
				t.Errorf("%s: %s says %q:\n%s", name, call, word, text)
			}
		}
		if r.Error && !accused {
			accused = true
			t.Errorf("%s: %s fails:\n%s", name, call, text)
		}
	}
	began := time.Now()
	r := c.do(t, "start_process", start)
	_, own, _ := strings.Cut("\n"+r.Text, "\n"+name) // without events of others
	own, _, _ = strings.Cut(own, "\nevents since")
	read("start_process", r, own)
	switch {
	case b.ends:
		r.want(t, args{"state": "exited", "exit_code": 0})
		return
	case checked:
		r.want(t, args{"ready": true})
	}
	for time.Since(began) < 15*time.Second {
		list := c.do(t, "list_processes", args{})
		found := false
		for line := range strings.Lines(list.Text) {
			if strings.HasPrefix(line, name+": ") {
				found = true
				read("list_processes", list, line)
				break
			}
		}
		if !found {
			t.Errorf("%s is not listed:\n%s", name, list.Text)
			return
		}
		for _, until := range []string{"idle", "ready", "exit"} {
			if until == "ready" && !checked {
				continue
			}
			r := c.do(t, "wait_for_process", args{"process": name, "until": until, "timeout_ms": 700})
			text, _, _ := strings.Cut(r.Text, "\nevents since")
			read("wait_for_process until "+until, r, text)
		}
	}
	r = c.do(t, "list_processes", args{})
	want := name + ": running"
	if checked {
		want += ", ready"
	}
	if !strings.Contains(r.Text, want) {
		t.Errorf("%s: the last list is without %q:\n%s", name, want, r.Text)
	}
	for _, e := range c.eventsOf(name) {
		if strings.Contains(e, "ready") && !b.gaps && (strings.Contains(e, "not ready") || strings.Contains(e, "closed")) {
			t.Errorf("%s: event %q", name, e)
		}
	}
	c.do(t, "stop_process", args{"process": name, "force": true})
}

// eventsOf returns the events reported so far that begin with the name of a process.
func (c *caller) eventsOf(name string) (events []string) {
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	for _, e := range c.events {
		if strings.Contains(e, name+" ") || strings.Contains(e, name+":") {
			events = append(events, e)
		}
	}
	return events
}

// A faulty program does what the benign ones only seem to do: it must be called what it is.
type faulty struct {
	run, script string
	more        args
	refused     bool   // the start fails with says; otherwise it is answered at once
	says        string // of a wait for the end or the list, some time later
}

const (
	waitsForChange = "not ready: it failed, and its watcher waits for a change"
	asksForName    = `waits for input: "Name: "; send_input answers it`
)

var faulties = map[string]faulty{
	"port-closes":       {run: "node", script: "serve(); setTimeout(() => server.close(), 3000); setInterval(() => {}, 9999)", more: byPort, says: " closed "},
	"child-dies":        {run: "node", script: "if (process.argv[2]) { serve(); setTimeout(() => process.exit(1), 3000) } else { cp.spawn(process.execPath, [__filename, 'child'], {stdio: 'inherit'}); setInterval(() => {}, 9999) }", more: byPort, says: " closed "},
	"watched-dies":      {run: "node", script: "if (process.argv[2]) { serve(); setTimeout(() => { throw new Error('late') }, 3000) } else { fs.watch('.'); cp.spawn(process.execPath, [__filename, 'child'], {stdio: 'inherit'}) }", more: byLog, says: waitsForChange},
	"watched-dies-pty":  {run: "node", script: "if (process.argv[2]) { serve(); setTimeout(() => { throw new Error('late') }, 3000) } else { fs.watch('.'); cp.spawn(process.execPath, [__filename, 'child'], {stdio: 'inherit'}) }", more: both(byLog, onPTY), says: waitsForChange},
	"watched-is-broken": {run: "node", script: "if (process.argv[2]) { throw new Error('early') } else { fs.watch('.'); cp.spawn(process.execPath, [__filename, 'child'], {stdio: 'inherit'}) }", more: byPort, refused: true, says: waitsForChange},
	"polling-watcher": {run: "sh", script: `cat > app.py <<'END'
import os, socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", int(os.environ["PORT"]))); s.listen()
if os.fork() == 0:
    print("up", flush=True)
    time.sleep(3); raise KeyError("price")
os.wait()
while True: os.stat("app.py"); time.sleep(0.25)
END
exec python3 app.py --reload`, more: byPort, says: waitsForChange},
	"suspends-child":  {run: "sh", script: "python3 -m http.server $PORT --bind 127.0.0.1 & sleep 3; kill -STOP $!; wait", more: byPort, says: "is suspended; SIGCONT continues it"},
	"suspends-itself": {run: "sh", script: "kill -STOP $$", more: onPTY, says: "is suspended; SIGCONT continues it"},
	"never-ends":      {run: "python3", script: "serve()", says: "it may never exit by itself"},
	"asks":            {run: "python3", script: "input('Name: ')", says: asksForName},
	"asks-pty":        {run: "python3", script: "input('Name: ')", more: onPTY, says: asksForName},
	"asks-shell":      {run: "sh", script: "printf 'Name: '; read name", more: onPTY, says: asksForName},
	"asks-terminal":   {run: "python3", script: "import getpass; getpass.getpass('Name: ')", more: onPTY, says: asksForName},
	"asks-node":       {run: "node", script: "require('readline').createInterface(process.stdin, process.stdout).question('Name: ', () => {})", says: asksForName},
	"asks-node-pty":   {run: "node", script: "require('readline').createInterface(process.stdin, process.stdout).question('Name: ', () => {})", more: onPTY, says: asksForName},
	"asks-below-npm":  {run: "sh", script: `echo '{"scripts": {"ask": "node ask.js"}}' > package.json; echo 'require("readline").createInterface(process.stdin, process.stdout).question("Name: ", () => {})' > ask.js; exec npm run ask`, more: onPTY, says: asksForName},
}

// TestFaultyProgramsAreNamed is the other side of TestBenignProgramsAreNotAccused.
func TestFaultyProgramsAreNamed(t *testing.T) {
	proctest.Long(t, "load")
	needInterpreters(t)
	w := newWorld(t)
	w.set("PM_RATE_LIMIT", "0")
	c := w.open(t)
	for name, f := range faulties {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start, err := w.script(name, proctest.FreePort(t), f.run, f.script, f.more)
			check(t, err)
			if f.refused {
				c.refused(t, "start_process", start, f.says)
			} else {
				c.ok(t, "start_process", start)
			}
			text := ""
			if !poll(answersWithin/2, func() bool {
				r := c.do(t, "wait_for_process", args{"process": name, "until": "exit", "timeout_ms": 12_000})
				text = r.Text
				return strings.Contains(text, f.says)
			}) {
				t.Errorf("got no answer that says %q, the last one:\n%s", f.says, text)
			}
		})
	}
}
