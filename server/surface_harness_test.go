package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/proctest"
	"pmcp/server/project"
	"pmcp/server/stdio/stdiotest"
	"pmcp/server/upstream"
)

// surface is a whole Server with a connected client, as a session of pmcp has them.
// The client stores notifications apart from answers.
type surface struct {
	*stdiotest.Client
	t       testing.TB
	server  *Server
	store   *logstore.Store
	manager *process.Manager
	journal *heldJournal
	modern  bool   // requests are of 2026-07-28
	plain   bool   // calls do not ask for the structured form
	logs    string // the level of log messages that requests ask for; "" for none
	lastID  int
	notes   []stdiotest.Reply // received messages that no call has returned yet
}

// neighbour is the session id of another live pmcp session.
const neighbour = "00000000-0000-4000-8000-00000000007e"

// open starts a Server that serves over pipes. When the test ends, open closes the
// session, which stops every process the session started.
func open(t testing.TB, change ...func(*Options)) *surface {
	t.Helper()
	return openWith(t, upstream.Options{}, change...)
}

// openWith is open with options for the connections to MCP servers.
func openWith(t testing.TB, connections upstream.Options, change ...func(*Options)) *surface {
	t.Helper()
	dir, session := t.TempDir(), rand.Text() // unique: tests of other packages stop processes by their session
	log := &stdiotest.LogBuffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	store, err := logstore.Open(t.Context(), logstore.Options{
		Path: filepath.Join(dir, "pmcp.db"), Session: session, Logger: logger, Alive: func(_, session string) bool { return session == neighbour },
	})
	stdiotest.NoErr(t, err)
	var manager *process.Manager
	connections.Log = logger
	connections.OnReady = func(name string, run int64, ready bool, why string) { manager.SetReady(name, run, ready, why) }
	hub := upstream.NewHub(connections)
	named := project.NewStore(store, dir)
	journal := &heldJournal{Store: named}
	manager = process.NewManager(process.Options{
		Project: dir, Session: session, Journal: journal, Log: logger, MaxProcesses: 100, StopTimeout: time.Second, TakeStdio: hub.Take,
		AwaitLine: func(ctx context.Context, run, after int64, match func(uint8, string) bool) (string, error) {
			line, err := store.WaitLine(ctx, run, after, func(l logstore.Line) bool { return match(l.Stream, l.Text) })
			return line.Text, err
		},
	})
	runs := project.NewRunTable(manager, named, os.Getpid(), logger)
	monitor := health.NewMonitor(health.Options{Processes: manager, Changes: manager.Watch(), Log: logger})
	sets := groups.New(groups.Options{Processes: manager, Journal: named, Health: monitor, Elsewhere: runs, Project: dir})
	o := Options{Manager: manager, Store: named, Health: monitor, Groups: sets, Upstream: hub, Log: logger, Session: session, Build: Build{Version: "0"}}
	for _, f := range change {
		f(&o)
	}
	s := &surface{t: t, server: New(o), store: store, manager: manager, journal: journal}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s.Client = stdiotest.NewClient(t, inW, outR, log, func() error {
		defer outW.Close()
		return s.server.Serve(context.Background(), inR, outW)
	})
	read := s.ReadReplies()
	t.Cleanup(func() {
		if err := s.End(); err != nil {
			t.Errorf("Serve: got %v, want nil", err)
		}
		<-read
		sets.Close()
		monitor.Close()
		if err := manager.Close(context.Background()); err != nil {
			t.Errorf("closing the manager: got %v, want nil", err)
		}
		hub.Close()
		s.server.Close()
		runs.Close()
		stdiotest.NoErr(t, store.Close())
	})
	return s
}

// hello calls open and then makes the handshake of a client of an older MCP
// version.
func hello(t testing.TB, change ...func(*Options)) *surface {
	t.Helper()
	s := open(t, change...)
	s.Initialize("2025-11-25")
	return s
}

// ask sends a request and returns the answer. Notifications that arrive first are
// stored for note.
func (s *surface) ask(method string, params map[string]any) stdiotest.Reply {
	s.t.Helper()
	return s.wait(s.begin(method, params))
}

func (s *surface) begin(method string, params map[string]any) (id string) {
	s.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	if s.modern {
		meta := map[string]any{
			"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
		if s.logs != "" {
			meta["io.modelcontextprotocol/logLevel"] = s.logs
		}
		params["_meta"] = meta
	}
	if meta, ok := params["_meta"].(map[string]any); method == "tools/call" && !s.plain && (ok || params["_meta"] == nil) {
		all := map[string]any{structuredKey: true}
		maps.Copy(all, meta)
		params = maps.Clone(params)
		params["_meta"] = all
	}
	s.lastID++
	id = fmt.Sprint(s.lastID)
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.lastID, "method": method, "params": params})
	stdiotest.NoErr(s.t, err)
	s.Send("%s", line)
	return id
}

func (s *surface) wait(id string) stdiotest.Reply {
	s.t.Helper()
	isIt := func(r stdiotest.Reply) bool { return r.Method == "" && string(r.ID) == id }
	if i := slices.IndexFunc(s.notes, isIt); i >= 0 { // the answer arrived during the wait for another answer
		r := s.notes[i]
		s.notes = slices.Delete(s.notes, i, i+1)
		return r
	}
	for {
		r := s.Recv()
		if isIt(r) {
			return r
		}
		s.notes = append(s.notes, r)
	}
}

// note returns the next notification of the method for which ok holds, and drops
// the messages before.
func (s *surface) note(method string, ok func(stdiotest.Reply) bool) stdiotest.Reply {
	s.t.Helper()
	for {
		var r stdiotest.Reply
		if len(s.notes) > 0 {
			r, s.notes = s.notes[0], s.notes[1:]
		} else {
			r = s.Recv()
		}
		if r.Method == method && (ok == nil || ok(r)) {
			return r
		}
	}
}

// do calls a tool that must succeed and returns its structured content and text. It does not watch a start unless
// the arguments have timeout_ms, wait, ready or stdio.
func (s *surface) do(name string, arguments map[string]any) (map[string]any, string) {
	s.t.Helper()
	if name == "start_process" && arguments["timeout_ms"] == nil && arguments["wait"] == nil && arguments["ready"] == nil && arguments["stdio"] == nil {
		arguments = maps.Clone(arguments)
		arguments["timeout_ms"] = 0
	}
	r := s.ask("tools/call", map[string]any{"name": name, "arguments": arguments})
	if r.Error != nil || r.Result["isError"] == true {
		s.t.Fatalf("%s: got %s, want success", name, r.Raw)
	}
	data, _ := r.Result["structuredContent"].(map[string]any)
	return data, r.Text()
}

// script starts a shell script as a process with the given name. It does not watch the
// start unless more has timeout_ms, wait or ready.
func (s *surface) script(name, script string, more ...any) map[string]any {
	s.t.Helper()
	arguments := map[string]any{"name": name, "command": "sh", "args": []string{"-c", script}}
	for i := 0; i < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	if arguments["timeout_ms"] == nil {
		arguments["timeout_ms"] = 0
		if arguments["wait"] != nil || arguments["ready"] != nil {
			arguments["timeout_ms"] = 120_000 // the default is too short for a busy machine
		}
	}
	data, _ := s.do("start_process", arguments)
	return data
}

// crash starts the process job, which crashes. crash returns when the crash has
// been reported or stored.
func (s *surface) crash() {
	s.t.Helper()
	s.script("job", "echo about to fail >&2; exit 3")
	s.do("wait_for_process", map[string]any{"process": "job", "until": "exit"})
	proctest.Await(s.t, "the crash to be seen", func() bool { return s.server.events.sawEnd("job") })
}

// resource returns the decoded content of a resource.
func (s *surface) resource(uri string) map[string]any {
	s.t.Helper()
	r := s.ask("resources/read", map[string]any{"uri": uri})
	if r.Error != nil {
		s.t.Fatalf("%s: got %s, want a resource", uri, r.Raw)
	}
	content := r.Result["contents"].([]any)[0].(map[string]any)
	if content["uri"] != uri || content["mimeType"] != jsonType {
		s.t.Errorf("%s: got %v, want this URI and type %s", uri, content, jsonType)
	}
	var data map[string]any
	stdiotest.NoErr(s.t, json.Unmarshal([]byte(content["text"].(string)), &data))
	return data
}
