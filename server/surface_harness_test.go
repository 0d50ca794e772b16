package server

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/upstream"
)

// surface is a whole Server, wired as main does it, with a client that keeps
// apart what belongs to no request.
type surface struct {
	*rawClient
	t       testing.TB
	server  *Server
	store   *logstore.Store
	manager *process.Manager
	modern  bool   // requests are of 2026-07-28
	logs    string // and ask for log messages of this level; "" for none
	lastID  int
	notes   []reply // notifications that nobody has taken
}

// neighbour is the session of another live server.
const neighbour = "neighbour"

// open serves on pipes. At the end of the test the session is closed, and with
// it what it started.
func open(t testing.TB, change ...func(*Options)) *surface {
	t.Helper()
	dir, session := t.TempDir(), rand.Text() // unique: tests of other packages stop what bears their mark
	log := &logBuffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	store, err := logstore.Open(t.Context(), logstore.Options{
		Path: filepath.Join(dir, "pmcp.db"), Session: session, Logger: logger, Alive: func(_, session string) bool { return session == neighbour },
	})
	noErr(t, err)
	hub := upstream.NewHub(upstream.Options{Log: logger})
	manager := process.NewManager(process.Options{
		Project: dir, Session: session, Journal: store, Log: logger, MaxProcesses: 100, StopTimeout: time.Second, TakeStdio: hub.Take,
		AwaitLine: func(ctx context.Context, run int64, match func(string) bool) (string, error) {
			line, err := store.WaitLine(ctx, run, 0, func(l logstore.Line) bool { return match(l.Text) })
			return line.Text, err
		},
	})
	runs := NewRunTable(manager, store, os.Getpid(), logger)
	monitor := health.NewMonitor(health.Options{Processes: manager, Changes: manager.Watch(), Journal: store, Project: dir, Log: logger})
	sets := groups.New(groups.Options{Processes: manager, Journal: store, Health: monitor, Elsewhere: runs, Project: dir, Log: logger})
	o := Options{Manager: manager, Store: store, Health: monitor, Groups: sets, Upstream: hub, Log: logger, Session: session, Version: "0"}
	for _, f := range change {
		f(&o)
	}
	s := &surface{t: t, server: New(o), store: store, manager: manager}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s.rawClient = &rawClient{t: t, in: inW, out: outR, served: make(chan error, 1), log: log, lines: make(chan reply, 1<<12)}
	go func() {
		err := s.server.Serve(context.Background(), inR, outW)
		outW.Close()
		s.served <- err
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewReader(outR); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			s.lines <- s.check(line)
		}
	}()
	t.Cleanup(func() {
		inW.Close()
		if err := awaitValue(t, s.served, "the end of Serve"); err != nil {
			t.Errorf("Serve: %v", err)
		}
		<-read
		sets.Close()
		monitor.Close()
		if err := manager.Close(context.Background()); err != nil {
			t.Errorf("manager: %v", err)
		}
		hub.Close()
		s.server.Close()
		runs.Close()
		noErr(t, store.Close())
	})
	return s
}

// hello is open with the handshake of a legacy client.
func hello(t testing.TB, change ...func(*Options)) *surface {
	t.Helper()
	s := open(t, change...)
	s.initialize("2025-11-25")
	return s
}

// ask sends a request and gives its answer; notifications are kept for note.
func (s *surface) ask(method string, params map[string]any) reply {
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
	s.lastID++
	id = fmt.Sprint(s.lastID)
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": s.lastID, "method": method, "params": params})
	noErr(s.t, err)
	s.send("%s", line)
	return id
}

func (s *surface) wait(id string) reply {
	s.t.Helper()
	isIt := func(r reply) bool { return r.Method == "" && string(r.ID) == id }
	if i := slices.IndexFunc(s.notes, isIt); i >= 0 { // it came while another was waited for
		r := s.notes[i]
		s.notes = slices.Delete(s.notes, i, i+1)
		return r
	}
	for {
		r := s.recv()
		if isIt(r) {
			return r
		}
		s.notes = append(s.notes, r)
	}
}

// note waits for a notification that satisfies ok; others of its method are
// dropped.
func (s *surface) note(method string, ok func(reply) bool) reply {
	s.t.Helper()
	for {
		var r reply
		if len(s.notes) > 0 {
			r, s.notes = s.notes[0], s.notes[1:]
		} else {
			r = s.recv()
		}
		if r.Method == method && (ok == nil || ok(r)) {
			return r
		}
	}
}

// do calls a tool that has to succeed and gives its structured content and text.
func (s *surface) do(name string, arguments map[string]any) (map[string]any, string) {
	s.t.Helper()
	r := s.ask("tools/call", map[string]any{"name": name, "arguments": arguments})
	if r.Error != nil || r.Result["isError"] == true {
		s.t.Fatalf("%s: %s", name, r.raw)
	}
	data, _ := r.Result["structuredContent"].(map[string]any)
	return data, r.text()
}

// script starts a shell script under a name.
func (s *surface) script(name, script string, more ...any) map[string]any {
	s.t.Helper()
	arguments := map[string]any{"name": name, "command": "sh", "args": []string{"-c", script}}
	for i := 0; i < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	data, _ := s.do("start_process", arguments)
	return data
}

// crash starts the process job and returns when it has crashed, and its events
// have been told or stored.
func (s *surface) crash() {
	s.t.Helper()
	s.script("job", "echo about to fail >&2; exit 3")
	s.do("wait_for_process", map[string]any{"process": "job", "until": "exit"})
	awaitCondition(s.t, "the crash to be seen", func() bool { return s.server.events.knows("job") })
}

// resource reads one, decoded.
func (s *surface) resource(uri string) map[string]any {
	s.t.Helper()
	r := s.ask("resources/read", map[string]any{"uri": uri})
	if r.Error != nil {
		s.t.Fatalf("%s: %s", uri, r.raw)
	}
	content := r.Result["contents"].([]any)[0].(map[string]any)
	if content["uri"] != uri || content["mimeType"] != jsonType {
		s.t.Errorf("%s: %v", uri, content)
	}
	var data map[string]any
	noErr(s.t, json.Unmarshal([]byte(content["text"].(string)), &data))
	return data
}
