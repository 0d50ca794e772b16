package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// onDemand returns the arguments of call_mcp_tool that address mcpoddProgram by its
// command, so that pmcp starts the server on demand.
func onDemand(t testing.TB, tool string, arguments ...string) args {
	return args{"command": self(t), "args": program("mcpodd", arguments...), "tool": tool}
}

// TestSixteenMCPServersOnDemandAreKept checks that the start of a 17th MCP server on
// demand stops the least recently used one, with all its processes.
func TestSixteenMCPServersOnDemandAreKept(t *testing.T) {
	t.Parallel()
	w := newUpstreamWorld(t)
	s := w.start(t)
	s.initialize(t)
	const most = 16
	for i := range most {
		s.must(t, "call_mcp_tool", onDemand(t, "echo", "tree", strconv.Itoa(i)))
	}
	oldest := s.onlyName(t, "mcpodd tree 0")
	var pids []int
	if !poll(answersWithin, func() bool {
		pids = nil
		for _, m := range orphanLine.FindAllStringSubmatch(s.must(t, "tail_logs", args{"process": oldest, "stream": "err"}).Text, -1) {
			pid, err := strconv.Atoi(m[1])
			check(t, err)
			pids = append(pids, pid)
		}
		return len(pids) == 2
	}) {
		t.Fatalf("got the pids %v of the oldest, want 2", pids)
	}
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "tree", strconv.Itoa(most)))
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d of the oldest server is alive, want it killed", pid)
		}
	}
	if r := s.must(t, "get_server_info", nil); r.Data["mcp_connections"] != float64(most) {
		t.Errorf("got %v connections, want %d", r.Data["mcp_connections"], most)
	}
	s.closeInput(t)
	s.exit(t)
	w.awaitEmpty(t)
}

// fullWithTwo returns a session that may run only two processes and already runs two: the
// MCP servers on demand a and b.
func fullWithTwo(t *testing.T) *session {
	t.Helper()
	w := newUpstreamWorld(t)
	w.set("PM_MAX_PROCESSES", "2")
	s := w.start(t)
	s.initialize(t)
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "a"))
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "b"))
	return s
}

// TestMCPServerOnDemandCountsTowardsLimit checks that MCP servers on demand count towards
// PM_MAX_PROCESSES like any other process. At that limit the least recently used server
// must be stopped for the next server; other processes must not be.
func TestMCPServerOnDemandCountsTowardsLimit(t *testing.T) {
	t.Parallel()
	s := fullWithTwo(t)
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "a"))
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "c"))
	for _, kept := range []string{"a", "c"} {
		s.must(t, "stop_process", args{"process": s.onlyName(t, "mcpodd  "+kept)})
	}
	for _, name := range []string{"one", "two"} {
		s.must(t, "start_process", args{"name": name, "command": "sleep", "args": []string{"100"}})
	}
	if r := s.tool(t, "call_mcp_tool", onDemand(t, "echo", "", "d")); !r.Error || !strings.Contains(r.Text, "PM_MAX_PROCESSES allows 2") {
		t.Errorf("got %s, want the limit", r.Text)
	}
}

// TestCallByNameIsUseOfMCPServerOnDemand checks that a call with the name of an MCP server
// on demand counts as a use of that server. If the server is gone, the error must advise
// to give the server's command.
func TestCallByNameIsUseOfMCPServerOnDemand(t *testing.T) {
	t.Parallel()
	s := fullWithTwo(t)
	a, b := s.onlyName(t, "mcpodd  a"), s.onlyName(t, "mcpodd  b")
	s.must(t, "call_mcp_tool", args{"process": a, "tool": "echo"})
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "c"))
	s.must(t, "call_mcp_tool", args{"process": a, "tool": "echo"})
	r := s.tool(t, "call_mcp_tool", args{"process": b, "tool": "echo"})
	if !r.Error || !strings.Contains(r.Text, "call it with its command again") || strings.Contains(r.Text, "_process") {
		t.Errorf("got %s, want the advice to call it with its command", r.Text)
	}
	s.must(t, "stop_process", args{"process": a})
	r = s.tool(t, "call_mcp_tool", args{"process": a, "tool": "echo"})
	if !r.Error || !strings.Contains(r.Text, "call it with its command again") || strings.Contains(r.Text, "_process") {
		t.Errorf("got %s, want the advice to call it with its command", r.Text)
	}
}
