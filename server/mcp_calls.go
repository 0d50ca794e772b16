package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"pmcp/logstore/line"
	"pmcp/process/prose"
	"pmcp/server/upstream"
)

// Bounds of the calls of one call_mcp_tool.
const (
	maxMCPCalls     = 50
	defaultMCPBytes = 8 << 10 // of all results together
)

// An mcpCall is one of the calls of call_mcp_tool.
type mcpCall struct {
	Tool      string                     `json:"tool"`
	Arguments map[string]json.RawMessage `json:"arguments,omitempty"`
}

// relayed returns the arguments for the MCP server, with values as they were sent.
func (c *mcpCall) relayed() json.RawMessage {
	if len(c.Arguments) == 0 {
		return json.RawMessage("{}")
	}
	raw, _ := json.Marshal(c.Arguments) // decoded JSON always encodes
	return raw
}

// mcpCallsResult holds the outcomes of several calls, in their order.
type mcpCallsResult struct {
	Results []mcpCallResult `json:"results"`
	// Ended explains why the calls after one were not sent. It is "" if all were.
	Ended  string `json:"ended,omitempty"`
	Notice string `json:"notice,omitempty"`

	reports []reported
}

// The outcomes of a call.
const (
	callOK       = "ok"
	callFailed   = "error" // of the tool, or a refusal by the server
	callNoAnswer = "no answer"
	callNotSent  = "not sent"
)

type mcpCallResult struct {
	Index   int      `json:"index"` // from 1
	Tool    string   `json:"tool"`
	Outcome string   `json:"outcome"`
	Lines   []string `json:"lines,omitempty"` // of the result

	text clipped
}

func (r *mcpCallsResult) about() []reported { return r.reports }

func (r *mcpCallsResult) write(t *answerText) {
	if r.Notice != "" {
		t.line("[%s]", r.Notice)
	}
	for i := range r.Results {
		one := &r.Results[i]
		t.line("%d. %s: %s", one.Index, quoteUnlessPlain(one.Tool), one.Outcome)
		for _, l := range one.Lines {
			t.line("%s", l)
		}
	}
	for l := range strings.SplitSeq(r.Ended, "\n") {
		if notice := "[" + outputNotice + "]"; l != "" && (l != notice || r.Notice == "") {
			t.line("%s", l)
		}
	}
}

// callMCPTools makes the calls of a one after another. An error of one does not stop
// them, but the end of the server or of the time does. It returns an error if no call
// has succeeded.
func (s *call) callMCPTools(ctx context.Context, a *callMCPToolArgs) (answer, error) {
	callCtx, cancel := context.WithTimeout(ctx, waitTimeout(a.TimeoutMS))
	defer cancel()
	budget := cmp.Or(a.MaxBytes, defaultMCPBytes)
	r := &mcpCallsResult{Results: make([]mcpCallResult, len(a.Calls))}
	for i, call := range a.Calls {
		s.o.Mask.LearnJSON(call.relayed())
		r.Results[i] = mcpCallResult{Index: i + 1, Tool: call.Tool, Outcome: callNotSent}
	}
	var done atomic.Int64
	defer reportProgress(ctx, func() string { return fmt.Sprintf("%d of %d calls done", done.Load(), len(a.Calls)) })()
	err := s.withMCP(callCtx, a.mcpTarget, func(c *upstream.Conn) error {
		for i := range a.Calls {
			one := &r.Results[i]
			raw, err := c.Call(callCtx, "tools/call", map[string]any{"name": one.Tool, "arguments": a.Calls[i].relayed()}, nil)
			if err := one.set(c.Name(), raw, err, i > 0); err != nil {
				return err
			}
			one.text = newClipped(prefixLines(s.o.Mask.Text(one.text.head)), budget)
			done.Add(1)
		}
		return nil
	})
	if err != nil && (ctx.Err() != nil || r.Results[0].Outcome == callNotSent) {
		return nil, timeoutError(ctx, err, a.TimeoutMS)
	}
	if err = timeoutError(ctx, err, a.TimeoutMS); err != nil {
		r.Ended = errorText(err)
		var own aboutProcesses
		if errors.As(err, &own) {
			r.reports = own.about()
		}
	}
	r.show(budget)
	if !slices.ContainsFunc(r.Results, func(one mcpCallResult) bool { return one.Outcome == callOK }) {
		return nil, &composedError{text: "no call has succeeded\n" + strings.TrimSuffix(textOf(r), "\n"), reports: r.reports}
	}
	return r, nil
}

// set sets the outcome of a call that has returned raw and err. The text is not yet
// clipped. It returns an error that ends the calls. again reports whether this is not
// the first call: what was sent before it must not be repeated with it.
func (r *mcpCallResult) set(server string, raw json.RawMessage, err error, again bool) error {
	var refused *upstream.RPCError
	switch {
	case err == nil:
		relayed, err := relay(server, raw)
		r.Outcome, r.text.head = callOK, relayed.text()
		if err != nil {
			r.text.head = err.Error()
		}
		if err != nil || relayed.result.IsError {
			r.Outcome = callFailed
		}
		return nil
	case errors.As(err, &refused), errors.Is(err, upstream.ErrTooLarge), errors.Is(err, upstream.ErrBusy):
		r.Outcome, r.text.head = callFailed, err.Error()
		return nil
	case !errors.Is(err, upstream.ErrNotSent):
		r.Outcome = callNoAnswer
	case again:
		return fmt.Errorf("%w: %s", upstream.ErrDisconnected, trimCause(err, upstream.ErrDisconnected)) // without ErrNotSent
	}
	return err
}

// show fills the lines of the results, in at most budget bytes. What short results
// leave over, long ones may use.
func (r *mcpCallsResult) show(budget int) {
	sizes := make([]int, len(r.Results))
	for i := range r.Results {
		sizes[i] = r.Results[i].text.size
	}
	share := fairShare(sizes, budget)
	for i := range r.Results {
		one := &r.Results[i]
		if text := one.text.in(share); text != "" {
			one.Lines = strings.Split(text, "\n")
			r.Notice = outputNotice
		}
	}
}

// prefixLines returns text with a prefix before each line, so that none begins like a
// line of pmcp, and with invisible characters escaped. It returns "" if text is blank.
func prefixLines(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	var b strings.Builder
	for l := range strings.SplitSeq(text, "\n") {
		b.WriteString("\n| ")
		b.WriteString(line.Visible(strings.TrimSuffix(l, "\r")))
	}
	return b.String()[1:]
}

// fairShare returns the largest share with which parts of these sizes, each cut to it,
// take at most budget.
func fairShare(sizes []int, budget int) int {
	sizes = slices.Sorted(slices.Values(sizes))
	for i, size := range sizes {
		share := budget / (len(sizes) - i)
		if size > share {
			return share
		}
		budget -= size
	}
	return budget + slices.Max(sizes)
}

// A clipped text is the beginning and the end of a text of size bytes. If head is all
// of it, tail is "".
type clipped struct {
	head, tail string
	size       int
}

// newClipped returns text with about limit bytes kept.
func newClipped(text string, limit int) clipped {
	if len(text) <= limit {
		return clipped{head: text, size: len(text)}
	}
	return clipped{strings.Clone(text[:limit/2]), strings.Clone(text[len(text)-limit/2:]), len(text)}
}

// in returns the text in at most about limit bytes, which must not be more than
// newClipped's: what is left out is marked in its middle.
func (c clipped) in(limit int) string {
	if c.size <= limit || c.tail == "" && len(c.head) <= limit {
		return c.head
	}
	tail := c.tail
	if tail == "" {
		tail = c.head
	}
	head := prose.Head(c.head, limit/2)
	tail = prose.Tail(tail, limit/2)
	return fmt.Sprintf("%s… [+%d bytes] …%s", head, c.size-len(head)-len(tail), tail)
}
