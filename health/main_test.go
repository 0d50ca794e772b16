package health

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the test binary as one of the programs below, or runs the
// tests.
func TestMain(m *testing.M) {
	switch os.Getenv("HEALTH_TEST_PROGRAM") {
	case "":
		goleak.VerifyTestMain(m)
	case "exit":
		fmt.Println("all is", os.Args[1])
		if os.Args[1] != "well" {
			os.Exit(3)
		}
	case "flood":
		runFlood(100 << 20)
	case "forkhang":
		runForkAndHang()
	case "serve":
		runServe()
	case "sick":
		runSick()
	}
}

// runFlood prints n bytes and then a last line.
func runFlood(n int) {
	chunk := []byte(strings.Repeat("a line of a command that prints too much\n", 1000))
	for ; n > 0; n -= len(chunk) {
		if _, err := os.Stdout.Write(chunk); err != nil {
			os.Exit(1)
		}
	}
	fmt.Println("the last line")
}

// runForkAndHang starts a child, prints the pid of the child and hangs. The child
// hangs too, and both hold the output open.
func runForkAndHang() {
	if len(os.Args) == 1 {
		child := exec.Command(os.Args[0], "child")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			os.Exit(1)
		}
		fmt.Println("child", child.Process.Pid)
	}
	_, _ = io.Copy(io.Discard, os.NewFile(0, "stdin")) // ends at once, because stdin is /dev/null
	select {}
}

// runServe serves HTTP on two ports, which it prints, until its input ends.
func runServe() {
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			os.Exit(1)
		}
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
		go func() {
			_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// runSick answers every request on the port os.Args[1] with an error.
func runSick() {
	_ = http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the database is gone", http.StatusServiceUnavailable)
	}))
}
