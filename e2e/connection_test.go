package e2e

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	mcpclient "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestServerExitsWhenClientStopsReading closes the client's end of pmcp's standard output
// and checks that the server exits. A client that dies closes that end even if another
// process still holds the server's stdin open.
func TestServerExitsWhenClientStopsReading(t *testing.T) {
	w := newWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.closeOutput()
	s.send(t, `{"jsonrpc":"2.0","id":"x","method":"ping"}`)
	if code := s.exit(t); code != 0 {
		t.Errorf("got exit code %d, want 0; stderr:\n%s", code, s.stderr)
	}
	w.awaitEmpty(t)
}

// TestServerExitsWhenGuardianIsKilled kills the guardian, the process that clients launch
// and may kill, and checks that the server exits.
func TestServerExitsWhenGuardianIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.start(t)
	s.initialize(t)
	s.signal(t, syscall.SIGKILL)
	s.exit(t)
	if !s.outputEnds() {
		t.Errorf("the inner server's output has not ended after %v", endsWithin)
	}
	w.awaitEmpty(t)
}

// TestBadLinesAreAnswered checks that the server answers each malformed line and keeps
// running.
func TestBadLinesAreAnswered(t *testing.T) {
	t.Parallel()
	s := newWorld(t).start(t)
	for line, code := range map[string]int{
		`{"jsonrpc":"2.0",`: -32700, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`: -32600,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`: -32600, strings.Repeat("x", 11<<20): -32600,
	} {
		s.send(t, line)
		if m := s.stray(t); *m.Error.Code != code {
			t.Errorf("%.60s: got %s, want code %d", line, m.Raw, code)
		}
	}
	if m := s.call(t, "no/such/method", nil); m.Error == nil || *m.Error.Code != -32601 {
		t.Errorf("got %s, want code -32601", m.Raw)
	}
	if m := s.call(t, "tools/call", args{"name": "no_such_tool"}); m.Error == nil || *m.Error.Code != -32602 {
		t.Errorf("got %s, want code -32602", m.Raw)
	}
	s.initialize(t)
}

// TestPipelinedRequestsAreAllAnswered ends the input right after the last request, which
// has no newline, and checks that the server answers every request. A session has one
// second to finish its calls, which is plenty for the few requests of this test.
func TestPipelinedRequestsAreAllAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := exec.Command(binary(t))
	cmd.Dir, cmd.Env = w.project, w.env
	var in strings.Builder
	in.WriteString(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"v"}}}`)
	const n = 200
	for i := range n {
		fmt.Fprintf(&in, "\n"+`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i+1)
	}
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	check(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != n+1 {
		t.Fatalf("got %d answers, want %d", len(lines), n+1)
	}
	for i, line := range lines {
		m, err := parse(line)
		check(t, err)
		if m.Error != nil || i == 0 && string(m.ID) != "0" {
			t.Fatalf("answer %d: got %s, want a result", i, line)
		}
	}
}

// TestGoClientsConnect checks that the MCP clients mcp-go and go-sdk can connect, list the
// tools and disconnect.
func TestGoClientsConnect(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run("mcp-go/"+version, func(t *testing.T) {
			in, out, wait := newWorld(t).pipes(t)
			ctx, cancel := context.WithTimeout(t.Context(), answersWithin)
			defer cancel()
			c := mcpclient.NewClient(transport.NewIO(out, in, io.NopCloser(strings.NewReader(""))), mcpclient.WithProtocolVersion(version))
			check(t, c.Start(ctx))
			_, err := c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
				ProtocolVersion: version, ClientInfo: mcp.Implementation{Name: "mcp-go", Version: "1"}}})
			check(t, err)
			tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
			check(t, err)
			if len(tools.Tools) == 0 {
				t.Error("got no tools, want some")
			}
			check(t, c.Close())
			wait()
		})
		t.Run("go-sdk/"+version, func(t *testing.T) {
			in, out, wait := newWorld(t).pipes(t)
			ctx, cancel := context.WithTimeout(t.Context(), answersWithin)
			defer cancel()
			c := sdk.NewClient(&sdk.Implementation{Name: "go-sdk", Version: "1"}, nil)
			s, err := c.Connect(ctx, &sdk.IOTransport{Reader: out, Writer: in}, &sdk.ClientSessionOptions{ProtocolVersion: version})
			check(t, err)
			tools, err := s.ListTools(ctx, nil)
			check(t, err)
			if len(tools.Tools) == 0 || s.InitializeResult().ProtocolVersion != version {
				t.Errorf("got %d tools, version %s, want some, version %s", len(tools.Tools), s.InitializeResult().ProtocolVersion, version)
			}
			check(t, s.Close())
			wait()
		})
	}
}

// pipes starts pmcp for a client that does its own reading and writing. The returned wait
// closes the pipes that the client has left open and checks that pmcp exits with code 0.
func (w *world) pipes(t testing.TB) (in io.WriteCloser, out io.ReadCloser, wait func()) {
	t.Helper()
	cmd := exec.Command(binary(t))
	cmd.Dir, cmd.Env, cmd.WaitDelay = w.project, w.env, answersWithin
	stderr := &record{}
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err = cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	return in, out, func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("got %v, want exit code 0; stderr:\n%s", err, stderr)
		}
	}
}
