package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pmcp/process/guard"
)

// The test binary also contains the programs that pmcp runs in the tests:
//
//	self(t) e2e-program NAME ARGUMENT...
//
// Each program reports on its standard output when it is ready, and exits by itself after
// programLife, so that no program runs for ever if a test breaks.
const programMarker = "e2e-program"

const programLife = 5 * time.Minute

// self returns the path of the test binary, which contains all helper programs.
func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	check(t, err)
	return path
}

// program returns the arguments with which the test binary runs the named helper program.
func program(name string, arguments ...string) []string {
	return append([]string{programMarker, name}, arguments...)
}

func runProgram(name string, arguments []string) int {
	programs := map[string]func([]string) int{
		"http":       httpProgram,       // [PORT [URL]]: serves HTTP, or what URL does: prints "listening on URL", then "GET /path" for each request
		"flood":      floodProgram,      // N [WIDTH]: prints N numbered lines, then exits with 0
		"tree":       treeProgram,       // starts four processes, each detached in a different way; prints "KIND PID" lines, then "ready"
		"ignoreterm": ignoretermProgram, // prints "ready", then ignores SIGTERM, SIGINT and SIGHUP
		"sleep":      sleepProgram,      // prints "ready", then nothing
		"echo":       echoProgram,       // prints "ready", then "got LINE" for each line of its input, and "end of input"
		"exit":       exitProgram,       // CODE [LINE...]: prints the lines on standard error, then exits with CODE
		"noisy":      noisyProgram,      // prints "noise N" twenty times a second
		"clock":      clockProgram,      // [NANOSECONDS]: prints "clock NANOSECONDS", the time since 1970, fifty times a second or as often as given
		"partial":    partialProgram,    // TEXT: prints TEXT without a newline, then nothing
		"orphan":     orphanProgram,     // starts sleep and exits
		"reaper":     reaperProgram,     // ARGV: runs ARGV in a process group of its own and reaps what ARGV leaves
		"mcp":        mcpProgram,        // is a minimal MCP server, to test the client; "mcp noise" breaks the rules
		"mcpbridge":  bridgeProgram,     // URL: posts the messages of its input to an MCP server, and prints the server's
		"mcpodd":     mcpoddProgram,     // is an MCP server whose tools misbehave: see upstream_odd_test.go
		"mcpgo":      mcpgoProgram,      // [FILE [offers]]: runs mcp-go's stdio server, for comparison
		"confined":   confinedProgram,   // CALL ERRNO ARGV...: executes ARGV where a system call is refused; see confined_linux_test.go
		"sole":       soleProgram,       // FILE [LIFE]: holds FILE's lock and prints "ready"; a second process reports itself in FILE.second: see windows_test.go
		"leak":       leakProgram,       // ARGUMENT...: prints its secrets in all ways, then "all said": see secrets_test.go
		"memleak":    memleakProgram,    // serves HTTP and keeps memory of each request of /report
		"watch":      watchProgram,      // FILE COMMAND: runs COMMAND FILE, again whenever FILE is written
		"maprace":    mapraceProgram,    // serves HTTP and writes a map without a lock
	}
	run, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "there is no program %q\n", name)
		return 2
	}
	return run(arguments)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func stay() int {
	time.Sleep(programLife)
	return 3
}

func httpProgram(arguments []string) int {
	port := "0"
	if len(arguments) > 0 {
		port = arguments[0]
	}
	if len(arguments) > 1 {
		upstream, err := url.Parse(arguments[1])
		if err != nil {
			return fail(err)
		}
		return serve(port, httputil.NewSingleHostReverseProxy(upstream).ServeHTTP)
	}
	return serve(port, func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("%s %s\n", r.Method, r.URL.Path)
		fmt.Fprintf(w, "you asked for %s\n", r.URL.Path)
	})
}

// serve serves HTTP on a port until a signal comes. It prints the URL first and returns the exit code.
func serve(port string, handler http.HandlerFunc) int {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return fail(err)
	}
	server := &http.Server{Handler: handler}
	ctx, cancel := context.WithTimeout(context.Background(), programLife)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Printf("listening on http://%s\n", l.Addr())
	if err := server.Serve(l); err != http.ErrServerClosed {
		return fail(err)
	}
	fmt.Println("bye")
	return 0
}

func floodProgram(arguments []string) int {
	n, err := strconv.Atoi(arguments[0])
	if err != nil {
		return fail(err)
	}
	width := 40
	if len(arguments) > 1 {
		if width, err = strconv.Atoi(arguments[1]); err != nil {
			return fail(err)
		}
	}
	// Whole lines are written, and at most as many bytes as a pipe accepts atomically.
	// Otherwise the program could lose the processor in the middle of a line and write the
	// rest 200 ms later, and pmcp would store the line in two parts.
	out := bufio.NewWriterSize(os.Stdout, 4096)
	for i := range n {
		line := floodLine(i, width) + "\n"
		if len(line) > out.Available() {
			if err := out.Flush(); err != nil {
				return fail(err)
			}
		}
		if _, err := out.WriteString(line); err != nil {
			return fail(err)
		}
	}
	if err := out.Flush(); err != nil {
		return fail(err)
	}
	return 0
}

// floodLine returns line i, counted from 0, of the output of the helper program flood.
func floodLine(i, width int) string {
	line := fmt.Sprintf("line %07d ", i)
	return line + strings.Repeat("x", max(0, width-len(line)))
}

func treeProgram([]string) int {
	fmt.Printf("leader %d\n", os.Getpid())
	for kind, attr := range map[string]*syscall.SysProcAttr{
		"child": {}, "group": {Setpgid: true}, "session": {Setsid: true},
	} {
		cmd := ownProgram("sleep")
		cmd.SysProcAttr = attr
		if err := cmd.Start(); err != nil {
			return fail(err)
		}
		fmt.Printf("%s %d\n", kind, cmd.Process.Pid)
	}
	out, err := ownProgram("orphan").Output()
	if err != nil {
		return fail(err)
	}
	fmt.Printf("orphan %s\n", strings.TrimSpace(string(out)))
	fmt.Println("ready")
	return stay()
}

func ownProgram(name string) *exec.Cmd {
	return exec.Command(os.Args[0], program(name)...)
}

func orphanProgram([]string) int {
	cmd := ownProgram("sleep")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	fmt.Println(cmd.Process.Pid)
	return 0
}

// gate is a shell script that executes its arguments once descriptor 3 has reached end of
// file.
const gate = `read -r nothing <&3; exec "$@" 3<&-`

// reaperProgram closes its stdin before its child executes ARGV. pmcp recognizes its
// launcher by the launcher's stdin, and could otherwise start before reaperProgram closes
// that stdin.
func reaperProgram(argv []string) int {
	if err := guard.Subreaper(); err != nil {
		return fail(err)
	}
	wait, released, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", gate, "gate"}, argv...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{wait}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	os.Stdin.Close()
	os.Stdout.Close()
	wait.Close()
	released.Close()
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && err != syscall.EINTR {
			return 0
		}
	}
}

func ignoretermProgram([]string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	fmt.Println("ready")
	return stay()
}

func sleepProgram([]string) int {
	fmt.Println("ready")
	return stay()
}

func echoProgram([]string) int {
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Printf("got %s\n", lines.Text())
	}
	fmt.Println("end of input")
	return 0
}

func exitProgram(arguments []string) int {
	code, err := strconv.Atoi(arguments[0])
	if err != nil {
		return fail(err)
	}
	for _, line := range arguments[1:] {
		fmt.Fprintln(os.Stderr, line)
	}
	return code
}

func watchProgram(arguments []string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	written := func() (at time.Time) {
		if info, err := os.Stat(arguments[0]); err == nil {
			at = info.ModTime()
		}
		return at
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		ran := written()
		cmd := exec.Command(arguments[1], arguments[0])
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return fail(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		end := func(sig os.Signal) {
			if ended != nil {
				_ = cmd.Process.Signal(sig)
				fmt.Println("Process Exit with:", <-ended)
			}
		}
		for again := false; !again; {
			select {
			case err := <-ended:
				fmt.Println("Process Exit with:", err)
				ended = nil
			case <-look.C:
				if again = written() != ran; again {
					fmt.Println(arguments[0], "has changed")
					end(syscall.SIGTERM)
				}
			case sig := <-asked:
				end(sig)
				return 0
			}
		}
	}
}

func clockProgram(arguments []string) int {
	period := 20 * time.Millisecond
	if len(arguments) > 0 {
		n, err := strconv.Atoi(arguments[0])
		if err != nil {
			return fail(err)
		}
		period = time.Duration(n)
	}
	end := time.After(programLife)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		fmt.Println("clock", time.Now().UnixNano())
		select {
		case <-tick.C:
		case <-end:
			return 3
		}
	}
}

func noisyProgram([]string) int {
	end := time.After(programLife)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
			fmt.Printf("noise %d\n", n)
		case <-end:
			return 3
		}
	}
}

func partialProgram(arguments []string) int {
	fmt.Print(strings.Join(arguments, " "))
	return stay()
}

func mcpProgram(arguments []string) int {
	if len(arguments) > 0 {
		fmt.Println("this is not JSON")
		fmt.Println(`{"jsonrpc":"2.0","id":1}`)
		fmt.Print(`{"jsonrpc":`)
		return 0
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var m message
		switch err := json.Unmarshal(lines.Bytes(), &m); {
		case err != nil:
			fmt.Println(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no JSON"}}`)
		case m.ID == nil:
		case m.Method == "tools/call" && m.Params["name"] == "never":
		case m.Method == "tools/call":
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`)
			fmt.Println(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"isError":%t,"structuredContent":{"a":1},"content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}}`+"\n",
				m.ID, m.Params["name"] == "bad")
		case m.Method != "":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
		}
	}
	return 0
}
