package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// onDemand are the arguments that address the odd server on demand.
func onDemand(t testing.TB, tool string, arguments ...string) args {
	return args{"command": self(t), "args": program("mcpodd", arguments...), "tool": tool}
}

// TestUpstreamOnDemandKeepsSixteen: with the 17th server the one that was used
// longest ago is gone, with what it had started.
func TestUpstreamOnDemandKeepsSixteen(t *testing.T) {
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
		t.Fatalf("the pids of the oldest: %v", pids)
	}
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "tree", strconv.Itoa(most)))
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("%d of the oldest is alive", pid)
		}
	}
	if r := s.must(t, "get_server_info", nil); r.Data["mcp_connections"] != float64(most) {
		t.Errorf("connections: %v", r.Data["mcp_connections"])
	}
	s.closeInput(t)
	s.exit(t)
	w.awaitEmpty(t)
}

// fullWithTwo is a session whose two processes are the servers on demand a and b,
// and which may have no more.
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

// TestUpstreamOnDemandCounts: servers on demand are processes like any other for
// PM_MAX_PROCESSES. There the one that was used longest ago makes room for the
// next; other processes do not.
func TestUpstreamOnDemandCounts(t *testing.T) {
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
		t.Error(r.Text)
	}
}

// TestUpstreamOnDemandByName: a call by the name of a server on demand is a use
// of it, and where it is gone the advice is what starts it again.
func TestUpstreamOnDemandByName(t *testing.T) {
	t.Parallel()
	s := fullWithTwo(t)
	a, b := s.onlyName(t, "mcpodd  a"), s.onlyName(t, "mcpodd  b")
	s.must(t, "call_mcp_tool", args{"process": a, "tool": "echo"})
	s.must(t, "call_mcp_tool", onDemand(t, "echo", "", "c"))
	s.must(t, "call_mcp_tool", args{"process": a, "tool": "echo"})
	r := s.tool(t, "call_mcp_tool", args{"process": b, "tool": "echo"})
	if !r.Error || !strings.Contains(r.Text, "call it with its command again") || strings.Contains(r.Text, "_process") {
		t.Error(r.Text)
	}
	s.must(t, "stop_process", args{"process": a})
	r = s.tool(t, "call_mcp_tool", args{"process": a, "tool": "echo"})
	if !r.Error || !strings.Contains(r.Text, "call it with its command again") || strings.Contains(r.Text, "_process") {
		t.Error(r.Text)
	}
}
