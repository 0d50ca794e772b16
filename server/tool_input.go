package server

import (
	"context"
	"encoding/json"
	"fmt"
)

type sendInputArgs struct {
	Process string `json:"process"`
	Text    string `json:"text,omitempty"`
	Newline *bool  `json:"newline,omitempty"`
	EOF     bool   `json:"eof,omitempty" jsonschema:"close stdin after it"`
}

type sendInputResult struct {
	Name       string `json:"name"`
	Bytes      int    `json:"bytes"`
	NextCursor string `json:"next_cursor"`
}

func (r sendInputResult) text() string {
	return fmt.Sprintf("%s: %d bytes written\nnext_cursor: %s (what it prints since)\n", r.Name, r.Bytes, r.NextCursor)
}

func sendInputTool() tool {
	return define(tool{
		name: "send_input", title: "Send input", toolset: setLifecycle,
		description: "Writes a line to the stdin of a process.",
		hints:       hints{openWorld: true},
		waits:       func(json.RawMessage) bool { return true },
	}, sendInput)
}

// enter is what the Enter key sends to a process: on a terminal a carriage return,
// which the line discipline turns into the end of a line unless the program reads
// single keys, and then that is what it knows.
func (s *Server) enter(name string) string {
	if st, err := s.o.Manager.Status(name); err == nil && st.Spec.PTY {
		return "\r"
	}
	return "\n"
}

func sendInput(ctx context.Context, s *Server, a sendInputArgs) (sendInputResult, error) {
	name, err := s.resolveName(ctx, a.Process)
	if err != nil {
		return sendInputResult{}, err
	}
	if err := s.ownOnly(ctx, name); err != nil {
		return sendInputResult{}, err
	}
	text := a.Text
	if a.Newline == nil && !(a.EOF && text == "") || a.Newline != nil && *a.Newline {
		text += s.enter(name)
	}
	cursor, err := s.o.Store.End(ctx, s.o.Manager.Project(), []string{name})
	if err != nil {
		return sendInputResult{}, err
	}
	n, err := s.o.Manager.Input(ctx, name, []byte(text), a.EOF)
	if err != nil {
		return sendInputResult{}, fmt.Errorf("%w (%d of %d bytes were taken)", err, n, len(text))
	}
	return sendInputResult{Name: name, Bytes: n, NextCursor: cursor}, nil
}
