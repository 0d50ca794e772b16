package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"context"
)

// TestMain lets the test binary be the MCP server that the tests play with.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "echo-server" {
		s := server.NewMCPServer("echo", "1", server.WithToolCapabilities(false))
		s.AddTool(mcp.NewTool("echo", mcp.WithDescription("Repeats."), mcp.WithString("text")), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultStructured(map[string]string{"said": r.GetString("text", "")}, r.GetString("text", "")), nil
		})
		if err := server.ServeStdio(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestPlayCountsCalls plays with a server that repeats its argument, and checks the answers and
// the count of calls and bytes.
func TestPlayCountsCalls(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ended := make(chan error, 1)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- run(socket, []string{self, "echo-server"}) }()
	ask := func(words ...string) string {
		t.Helper()
		var b strings.Builder
		if err := send(&b, socket, words); err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return b.String()
	}
	awaitSocket(t, socket, ended)
	const arguments = `{"text": "hello"}`
	if got := ask(); !strings.HasPrefix(got, "echo: Repeats.\n") {
		t.Errorf("got the tools %q, want echo", got)
	}
	if got := ask("echo"); !strings.Contains(got, `"text"`) {
		t.Errorf("got the definition %q, want the argument text", got)
	}
	if got, want := ask("echo", arguments), fmt.Sprintf("%s\n-- 1 calls, %d bytes read, %d bytes written\n", "hello", len("hello"), len("echo"+arguments)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := ask("echo", "no object"); !strings.HasPrefix(got, "error: the arguments are not a JSON object") {
		t.Errorf("got %q, want an error", got)
	}
	if got := ask("end"); !strings.HasPrefix(got, "1 calls,") {
		t.Errorf("got %q, want the count", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// awaitSocket waits until the play serves at the socket, or has ended.
func awaitSocket(t *testing.T, socket string, ended <-chan error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(socket); err == nil {
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("play ended before it served: %v", err)
		case <-tick.C:
		}
	}
}

// TestPlayNamesItsUse checks that a command without a socket is refused.
func TestPlayNamesItsUse(t *testing.T) {
	out, err := exec.Command("go", "run", ".").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "usage: play") {
		t.Errorf("got %v and %s, want the usage", err, out)
	}
}
