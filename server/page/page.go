package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// HTML is the page.
//
//go:embed page.html
var HTML string

// tools are the tools that the page may call, each with the arguments that it may give; nil
// allows all. Those that change something take names only: the page starts no commands but
// those that an agent has defined.
var tools = map[string][]string{
	"list_processes": nil, "list_groups": nil, "get_process_info": nil, "get_process_stats": nil, "get_server_info": nil,
	"tail_logs": nil, "search_logs": nil, "get_errors": nil,
	"start_process": {"name", "project"}, "stop_process": {"process", "project"}, "restart_process": {"process", "project"},
	"start_group": {"group", "project"}, "stop_group": {"group", "project"}, "mark_error_resolved": {"error_id", "project", "undo"},
}

// Reads are what the page may read besides: no tool returns it.
var Reads = []string{"lines", "events", "errors", "runs", "usage"}

const (
	maxCallBytes = 64 << 10        // of the arguments of a call
	maxCalls     = 32              // calls at once; more are refused
	openWait     = 2 * time.Minute // for the first page
	closeWait    = 5 * time.Second // for a page that is reloaded
)

// A Call calls a tool, or reads one of Reads, and returns the result, a JSON object.
type Call func(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error)

// A Server serves the page.
type Server struct {
	call     Call
	read     Call // nil: there is nothing to read from
	listener net.Listener
	host     string // of the address, with the port
	path     string // random, with slashes around it
	token    string
	policy   string // Content-Security-Policy
	calls    chan struct{}

	mu       sync.Mutex
	open     int             // guarded by mu; pages that are open
	deadline *time.Timer     // guarded by mu; ends the server unless a page is opened
	ended    context.Context // ends when no page has been open for long enough
}

// Listen returns a server that listens on a free loopback port. Without read, the page does
// with what tools return.
func Listen(call, read Call) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot listen on a loopback port: %w", err)
	}
	s := &Server{
		call: call, read: read, listener: listener, host: listener.Addr().String(), path: "/" + rand.Text() + "/", token: rand.Text(),
		policy: policyFor(HTML), calls: make(chan struct{}, maxCalls),
	}
	ended, end := context.WithCancel(context.Background())
	s.ended, s.deadline = ended, time.AfterFunc(openWait, end)
	return s, nil
}

// Address returns the address of the page, with the token in its fragment, which a browser
// sends to no other program.
func (s *Server) Address() string { return "http://" + s.host + s.path + "#" + s.token }

// Serve serves until ctx ends or the last page has been closed.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	web := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(s.listener) }()
	var err error
	select {
	case <-ctx.Done():
	case <-s.ended.Done():
	case err = <-served:
		return err
	}
	cancel() // ends the calls that wait
	err = web.Close()
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// handler returns the handler of all requests.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+s.path+"{$}", s.servePage)
	mux.HandleFunc("POST "+s.path+"call/{tool}", s.authorised(s.serveCall))
	mux.HandleFunc("POST "+s.path+"alive", s.authorised(s.serveAlive))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", s.policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		origin := r.Header.Get("Origin")
		if r.Host != s.host || origin != "" && origin != "http://"+s.host { // another site, or a name that was bound to this machine
			http.Error(w, "wrong host or origin", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// servePage serves the page.
func (s *Server) servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, HTML)
}

// authorised returns a handler that refuses requests without the token. It answers at most
// maxCalls of them at once.
func (s *Server) authorised(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Pmcp-Token")), []byte(s.token)) != 1 {
			http.Error(w, "wrong or missing token", http.StatusForbidden)
			return
		}
		select {
		case s.calls <- struct{}{}:
			defer func() { <-s.calls }()
			next(w, r)
		default:
			http.Error(w, fmt.Sprintf("more than %d calls at once", maxCalls), http.StatusTooManyRequests)
		}
	}
}

// serveCall calls a tool or reads.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request) {
	tool := r.PathValue("tool")
	allowed, isTool := tools[tool]
	answer := s.call
	if s.read != nil && slices.Contains(Reads, tool) {
		answer, isTool = s.read, true
	}
	if !isTool {
		http.Error(w, fmt.Sprintf("the page may not call %q", tool), http.StatusNotFound)
		return
	}
	arguments, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCallBytes))
	if err != nil || !json.Valid(arguments) {
		http.Error(w, fmt.Sprintf("want JSON of at most %d bytes", maxCallBytes), http.StatusBadRequest)
		return
	}
	if err := checkArguments(allowed, arguments); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result, err := answer(r.Context(), tool, arguments)
	if err != nil {
		w.Header().Set("X-Pmcp-Error", "true") // a status of failure would be an error of the page in the browser's console
		_, _ = io.WriteString(w, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(result)
}

// checkArguments refuses arguments other than those that are allowed; nil allows all.
func checkArguments(allowed []string, arguments json.RawMessage) error {
	if allowed == nil {
		return nil
	}
	var given map[string]string
	if err := json.Unmarshal(arguments, &given); err != nil {
		return fmt.Errorf("want the arguments %s only, as strings: %w", strings.Join(allowed, " and "), err)
	}
	for name := range given {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("want the arguments %s only, got %q", strings.Join(allowed, " and "), name)
		}
	}
	return nil
}

// serveAlive answers when the page is closed, or when the server stops.
func (s *Server) serveAlive(_ http.ResponseWriter, r *http.Request) {
	s.count(1)
	<-r.Context().Done()
	s.count(-1)
}

// count counts the open pages. Without one, the server stops after closeWait.
func (s *Server) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
	if s.open == 0 {
		s.deadline.Reset(closeWait)
	} else {
		s.deadline.Stop()
	}
}

var inline = regexp.MustCompile(`(?s)<(script|style)>(.*?)</(?:script|style)>`)

// policyFor returns the Content-Security-Policy that lets a browser use the inline script
// and style of a page, and calls to its own server; nothing else.
func policyFor(page string) string {
	policy := "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	for _, m := range inline.FindAllStringSubmatch(page, -1) {
		sum := sha256.Sum256([]byte(m[2]))
		policy += fmt.Sprintf("; %s-src 'sha256-%s'", m[1], base64.StdEncoding.EncodeToString(sum[:]))
	}
	return policy
}
