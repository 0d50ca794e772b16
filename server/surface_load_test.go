package server

import (
	"io"
	"runtime"
	"testing"
	"time"

	"pmcp/process/proctest"
	"pmcp/server/stdio"
	"pmcp/server/stdio/stdiotest"
)

// TestManyWaitingCallsCanBeCancelled cancels two hundred waiting calls, and checks that none is
// answered, although the awaited process ends afterwards, and that no call leaves a
// goroutine.
func TestManyWaitingCallsCanBeCancelled(t *testing.T) {
	s := hello(t)
	s.script("sleeper", "echo one; echo two >&2; exec sleep 100")
	for _, line := range []string{"one", "two"} { // when both lines arrived, all goroutines of the process are running
		s.waitFor("sleeper", "log", "pattern", line, "after", "start")
	}
	before := runtime.NumGoroutine()
	var ids []string
	for range 200 {
		ids = append(ids, s.begin("tools/call", map[string]any{"name": "wait_for_process", "arguments": map[string]any{"process": "sleeper", "until": "exit"}}))
	}
	waiting := s.server.served.Load().conn.Requests
	proctest.Await(t, "all to wait", func() bool { return waiting() == len(ids) })
	s.do("list_processes", nil)
	for _, id := range ids {
		s.Cancel(id)
	}
	proctest.Await(t, "all to be cancelled", func() bool { return waiting() == 0 })
	proctest.Await(t, "their goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	s.do("stop_process", map[string]any{"process": "sleeper"})
	s.ask("ping", nil)
	for _, n := range s.notes {
		if n.Method == "" {
			t.Errorf("got the answer %s, want none", n.Raw)
		}
	}
}

// FuzzServer sends any bytes to the whole server, in a mode that can only read: a
// damaged start_process could start anything.
func FuzzServer(f *testing.F) {
	call := func(tool, arguments string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
	}
	for _, seed := range []string{
		call("get_logs", `{"process":"web","run":-1,"since":"10m","limit":3}`), call("get_logs", `{"after":"AYGABAE"}`),
		call("search_logs", `{"query":"(a|b)+","regex":true,"context":2,"order":"oldest"}`), call("tail_logs", `{"lines":1,"level":"error"}`),
		call("get_errors", `{"process":"*","offset":1}`), call("get_process_info", `{"process":"web","run":1}`),
		call("get_process_stats", `{"process":"web","points":3}`), call("list_groups", `{"group":"x"}`), call("get_system_stats", `null`),
		call("check_process_health", `{"process":"web"}`), call("start_process", `{"name":"x"}`),
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"logs://web?lines=3"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"errors://latest",` + stdiotest.ModernMeta + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"logs://web"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"debug_process","arguments":{"process":"web"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"logs://{name}{?lines}"},"argument":{"name":"name","value":"w"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"cursor":"eA=="}}`,
	} {
		f.Add([]byte(seed))
	}
	s := open(f, func(o *Options) {
		o.ReadOnly, o.Toolsets = true, []string{setMonitoring, setLogs, setErrors, setGroups}
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		stdiotest.ServeBytes(t, func(in io.Reader, out io.Writer) error {
			return stdio.NewConn(s.server.mcp, stdio.Options{In: in, Out: out, MaxMessage: 64 << 10, DrainTimeout: 100 * time.Millisecond}).Serve(t.Context())
		}, data)
	})
}
