package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
)

// A bridge is a minimal client of MCP's streamable HTTP, without pmcp and without its library: it posts
// each line of its standard input to a server, and prints each message that the server sends.
type bridge struct {
	url     string
	session string
	print   sync.Mutex
	streams sync.WaitGroup
}

// bridgeProgram runs a bridge to the URL in its argument until the end of its input.
func bridgeProgram(arguments []string) int {
	b := &bridge{url: arguments[0]}
	for lines := bufio.NewReader(os.Stdin); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			return 0 // the program's end ends the streams
		}
		var m struct{ Method string }
		_ = json.Unmarshal(line, &m)
		err = b.exchange(http.MethodPost, line, m.Method == "initialize")
		if err == nil && m.Method == "notifications/initialized" {
			err = b.exchange(http.MethodGet, nil, false) // the stream for what no request has asked for
		}
		if err != nil {
			return fail(err)
		}
	}
}

// exchange makes a request and prints the messages in its answer, which may be a stream. It returns
// once the server has answered, or, if wait is set, at the end of the answer.
func (b *bridge) exchange(method string, body []byte, wait bool) error {
	r, err := http.NewRequest(method, b.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	if b.session != "" {
		r.Header.Set("Mcp-Session-Id", b.session)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s", method, body, answer.Status)
	}
	if session := answer.Header.Get("Mcp-Session-Id"); session != "" {
		b.session = session
	}
	b.streams.Go(func() {
		defer answer.Body.Close()
		for lines := bufio.NewReader(answer.Body); ; {
			line, err := lines.ReadString('\n')
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				line = data
			}
			if strings.HasPrefix(line, "{") {
				b.print.Lock()
				fmt.Println(strings.TrimSpace(line))
				b.print.Unlock()
			}
			if err != nil {
				return
			}
		}
	})
	if wait {
		b.streams.Wait()
	}
	return nil
}

// launchDirect starts the MCP server "everything" as the arguments of a start_process say, but not
// below pmcp, and returns a session with it.
func (w *world) launchDirect(t *testing.T, path string, start args) *session {
	t.Helper()
	if start["stdio"] == "mcp" {
		return w.launch(t, path)
	}
	// Another pmcp finds a free port and waits for the server; the messages do not pass it.
	starter := w.start(t)
	starter.initialize(t)
	r := starter.must(t, "start_process", start.with("name", "direct").with("stdio", "log").with("ready", args{"port": "{PORT}"}))
	return w.launch(t, self(t), program("mcpbridge", fmt.Sprintf("http://127.0.0.1:%d/mcp", onlyPort(t, r)))...)
}
