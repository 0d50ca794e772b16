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

// TestMain runs the test binary as one of the programs below, or the tests.
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
		flood(100 << 20)
	case "forkhang":
		forkAndHang()
	case "serve":
		serve()
	case "sick":
		sick()
	}
}

// flood prints n bytes and then a last line.
func flood(n int) {
	chunk := []byte(strings.Repeat("a line of a command that prints too much\n", 1000))
	for ; n > 0; n -= len(chunk) {
		if _, err := os.Stdout.Write(chunk); err != nil {
			os.Exit(1)
		}
	}
	fmt.Println("the last line")
}

// forkAndHang starts a child that hangs like itself; both hold the output.
func forkAndHang() {
	if len(os.Args) == 1 {
		child := exec.Command(os.Args[0], "child")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			os.Exit(1)
		}
		fmt.Println("child", child.Process.Pid)
	}
	_, _ = io.Copy(io.Discard, os.NewFile(0, "stdin")) // /dev/null: at its end at once
	select {}
}

// serve answers HTTP and takes connections on two ports, which it prints, until
// its input ends.
func serve() {
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

// sick answers every request with an error, on the port that it is given.
func sick() {
	_ = http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the database is gone", http.StatusServiceUnavailable)
	}))
}
