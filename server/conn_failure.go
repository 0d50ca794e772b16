package server

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// requestFailure is the JSON-RPC error that a handler chose. mcp-go has a code of
// its own for each kind of handler, mostly -32603; the connection puts this in
// its place.
type requestFailure struct {
	code int // 0: what mcp-go chose stays, only the text is ours
	text string
	data any
}

// resourceNotFound gives the error that a resource handler returns when the
// thing that uri names does not exist; text says so, and what does exist. The
// client sees the code of its era: -32002, or -32602 since 2026-07-28.
func resourceNotFound(ctx context.Context, uri, text string) error {
	code := mcp.RESOURCE_NOT_FOUND
	if mcpserver.IsModernRequest(ctx) {
		code = mcp.INVALID_PARAMS
	}
	return failRequest(ctx, requestFailure{code: code, text: text, data: map[string]string{"uri": uri}})
}

// invalidParams gives the error that a prompt, resource or completion handler
// returns for an argument that it cannot take: -32602 with text.
func invalidParams(ctx context.Context, text string) error {
	return failRequest(ctx, requestFailure{code: mcp.INVALID_PARAMS, text: text})
}

// rephrase puts text in the place of mcp-go's own words for why the request of
// ctx failed. The code stays, and so does the data if there is none here.
func rephrase(ctx context.Context, text string, data any) {
	_ = failRequest(ctx, requestFailure{text: text, data: data})
}

func failRequest(ctx context.Context, f requestFailure) error {
	if view := requestView(ctx); view != nil {
		return view.fail(f)
	}
	return errors.New(f.text)
}

// fail has f be what the request gets for the returned error.
func (r *requestSession) fail(f requestFailure) error {
	r.req.failure.Store(&f)
	return errors.New(f.text)
}

// answerOf gives the error to write for what mcp-go made of a failed request.
func (r *request) answerOf(details mcp.JSONRPCErrorDetails) protocolError {
	e := protocolError{id: r.id, code: details.Code, text: clipText(details.Message), data: details.Data}
	f := r.failure.Load()
	if f != nil && f.code != 0 && strings.Contains(details.Message, f.text) {
		e.code, e.text, e.data = f.code, clipText(f.text), f.data
		return e
	}
	undecoded := e.code == mcp.INVALID_REQUEST
	if undecoded {
		// The envelope was checked before: what mcp-go could not decode are
		// the params.
		e.code = mcp.INVALID_PARAMS
	}
	if f != nil && f.code == 0 {
		e.text = clipText(f.text)
		if f.data != nil {
			e.data = f.data
		}
	}
	if undecoded || f == nil && e.code == mcp.INVALID_PARAMS {
		e.text = cmp.Or(wrongParam(r.method, r.params), e.text)
	}
	return e
}

// maxErrorText bounds error messages, which may quote what the client sent.
const maxErrorText = 8 << 10

func clipText(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorText], "") + "…"
}
