package page

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// TestMain reports goroutines that are left. A connection that net/http has closed sleeps for
// another 500 ms.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// serve returns a server whose calls return their arguments, and the URL of the page.
func serve(t *testing.T) (*Server, string) {
	t.Helper()
	s, err := Listen(func(_ context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
		if tool == "stop_process" {
			return nil, errors.New("no such process")
		}
		return arguments, nil
	}, func(_ context.Context, what string, _ json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"read":"` + what + `"}`), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: got %v, want nil", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	page, token, _ := strings.Cut(s.Address(), "#")
	if token != s.token || len(token) < 20 || strings.Contains(page, token) {
		t.Fatalf("got address %s, want the token in its fragment only", s.Address())
	}
	return s, page
}

// ask sends a request and returns the status and the body.
func ask(t *testing.T, method, url, body string, header map[string]string) (status int, text string, h http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header.Set(k, v)
		if k == "Host" {
			r.Host = v
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(raw), answer.Header
}

// TestOnlyThePageMayCall checks who reaches the page and its calls.
func TestOnlyThePageMayCall(t *testing.T) {
	s, page := serve(t)
	own := "http://" + s.host
	for _, c := range []struct {
		name, method, url, body string
		header                  map[string]string
		want                    int
		text                    string
	}{
		{"the page", "GET", page, "", nil, 200, "<!doctype html>"},
		{"another path", "GET", own + "/", "", nil, 404, ""},
		{"a name bound to this machine", "GET", page, "", map[string]string{"Host": "evil.example:80"}, 403, "wrong host"},
		{"a call", "POST", page + "call/list_processes", `{"a":1}`, map[string]string{"X-Pmcp-Token": s.token, "Origin": own}, 200, `{"a":1}`},
		{"a call without a token", "POST", page + "call/list_processes", `{}`, nil, 403, "token"},
		{"a call with a wrong token", "POST", page + "call/list_processes", `{}`, map[string]string{"X-Pmcp-Token": s.token + "x"}, 403, "token"},
		{"a call of another site", "POST", page + "call/list_processes", `{}`, map[string]string{"X-Pmcp-Token": s.token, "Origin": "http://evil.example"}, 403, "origin"},
		{"a call of a sandboxed frame", "POST", page + "call/list_processes", `{}`, map[string]string{"X-Pmcp-Token": s.token, "Origin": "null"}, 403, "origin"},
		{"a read", "POST", page + "call/events", `{}`, map[string]string{"X-Pmcp-Token": s.token}, 200, `{"read":"events"}`},
		{"a tool that the page does not need", "POST", page + "call/send_input", `{}`, map[string]string{"X-Pmcp-Token": s.token}, 404, "may not call"},
		{"too long arguments", "POST", page + "call/list_processes", `"` + strings.Repeat("x", maxCallBytes) + `"`, map[string]string{"X-Pmcp-Token": s.token}, 400, "want JSON"},
		{"arguments that are no JSON", "POST", page + "call/list_processes", `{`, map[string]string{"X-Pmcp-Token": s.token}, 400, "want JSON"},
		{"a call that fails", "POST", page + "call/stop_process", `{}`, map[string]string{"X-Pmcp-Token": s.token}, 200, "no such process"},
		{"a restart with another command", "POST", page + "call/restart_process", `{"process":"web","command":"sh"}`, map[string]string{"X-Pmcp-Token": s.token}, 400, "process and project only"},
		{"a start by name", "POST", page + "call/start_process", `{"name":"web","project":"/p"}`, map[string]string{"X-Pmcp-Token": s.token}, 200, `"web"`},
		{"a start of a command", "POST", page + "call/start_process", `{"name":"web","command":"sh"}`, map[string]string{"X-Pmcp-Token": s.token}, 400, "name and project only"},
		{"a start with an environment", "POST", page + "call/start_process", `{"name":"web","env":{"A":"b"}}`, map[string]string{"X-Pmcp-Token": s.token}, 400, "name and project only"},
		{"a start of a command in other letters", "POST", page + "call/start_process", `{"name":"web","Command":"sh"}`, map[string]string{"X-Pmcp-Token": s.token}, 400, "name and project only"},
		{"a call by GET", "GET", page + "call/list_processes", "", map[string]string{"X-Pmcp-Token": s.token}, 405, ""},
	} {
		status, text, h := ask(t, c.method, c.url, c.body, c.header)
		if status != c.want || !strings.Contains(text, c.text) {
			t.Errorf("%s: got %d, %.100q; want %d, %q", c.name, status, text, c.want, c.text)
		}
		if failed := h.Get("X-Pmcp-Error") != ""; failed != (c.name == "a call that fails") {
			t.Errorf("%s: got X-Pmcp-Error: %v, want it for a call that fails", c.name, failed)
		}
		if !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: got headers %v, want a policy that forbids everything else", c.name, h)
		}
	}
}

// TestPageNeedsNothingElse checks that the page has no markup from strings, refers to
// nothing outside and is small.
func TestPageNeedsNothingElse(t *testing.T) {
	for _, never := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://", "src=", "@import", "style=\""} {
		if strings.Contains(HTML, never) {
			t.Errorf("the page has %q, want a page without it", never)
		}
	}
	if most := 60 << 10; len(HTML) > most {
		t.Errorf("the page has %d bytes, want at most %d: it is one file that is read as it is", len(HTML), most)
	}
	if policy := policyFor(HTML); strings.Count(policy, "'sha256-") != 2 || strings.Contains(policy, "unsafe") {
		t.Errorf("got policy %q, want the hashes of one script and one style", policy)
	}
}

// TestServerEndsWithItsLastPage checks that the server waits for a first page, survives a
// reload, and ends after the last page was closed.
func TestServerEndsWithItsLastPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Listen(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.listener.Close() }()
		ended := func() bool { synctest.Wait(); return s.ended.Err() != nil }
		time.Sleep(openWait - time.Second)
		if s.count(1); ended() {
			t.Error("got the end before a page was opened, want it to wait")
		}
		time.Sleep(time.Hour)
		s.count(-1)
		time.Sleep(closeWait - time.Second)
		if s.count(1); ended() {
			t.Error("got the end during a reload, want it to wait")
		}
		s.count(1)
		s.count(-1)
		time.Sleep(time.Hour)
		if ended() {
			t.Error("got the end while a page was open, want it to go on")
		}
		s.count(-1)
		time.Sleep(closeWait + time.Second)
		if !ended() {
			t.Error("got no end after the last page was closed, want it")
		}
	})
}
