package stdio

import (
	"context"
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"pmcp/process/prose"
	"pmcp/server/jsonrpc"
)

// requestFailure is the JSON-RPC error that a handler chose. mcp-go chooses a
// code by the kind of handler, mostly -32603; the connection replaces mcp-go's
// error with this one.
type requestFailure struct {
	code int // 0 keeps the code that mcp-go chose and replaces only the text
	text string
	data any
}

// ResourceNotFound returns the error of a resource handler for a uri that no
// resource has; text says so and names the resources that exist. The client sees
// the code of its era: -32002, or -32602 since 2026-07-28.
func ResourceNotFound(ctx context.Context, uri, text string) error {
	code := mcp.RESOURCE_NOT_FOUND
	if mcpserver.IsModernRequest(ctx) {
		code = mcp.INVALID_PARAMS
	}
	return failRequest(ctx, requestFailure{code: code, text: text, data: map[string]string{"uri": uri}})
}

// InvalidParams returns the error of a prompt, resource or completion handler
// that refuses an argument: code -32602 with text.
func InvalidParams(ctx context.Context, text string) error {
	return failRequest(ctx, requestFailure{code: mcp.INVALID_PARAMS, text: text})
}

// SetErrorText replaces mcp-go's text of why the request of ctx failed. mcp-go's
// code is kept, and so is its data if data is nil.
func SetErrorText(ctx context.Context, text string, data any) {
	_ = failRequest(ctx, requestFailure{text: text, data: data})
}

func failRequest(ctx context.Context, f requestFailure) error {
	if s := SessionFromContext(ctx); s != nil {
		return s.fail(f)
	}
	return errors.New(f.text)
}

// fail records f as the answer to the request and returns its text as an error.
func (r *RequestSession) fail(f requestFailure) error {
	r.req.failure.Store(&f)
	return errors.New(f.text)
}

// errorAnswer returns the error to write in place of mcp-go's error.
func (r *request) errorAnswer(details mcp.JSONRPCErrorDetails) jsonrpc.Error {
	e := jsonrpc.Error{ID: r.ID, Code: details.Code, Text: prose.Cut(details.Message, maxErrorText), Data: details.Data}
	f := r.failure.Load()
	switch {
	case e.Code == mcp.INVALID_REQUEST:
		// The envelope has been checked, so what mcp-go could not decode must be
		// the params.
		e.Code = mcp.INVALID_PARAMS
	case f == nil:
	case f.code == 0:
		e.Text = prose.Cut(f.text, maxErrorText)
		if f.data != nil {
			e.Data = f.data
		}
	case strings.Contains(details.Message, f.text):
		e.Code, e.Text, e.Data = f.code, prose.Cut(f.text, maxErrorText), f.data
	}
	return e
}

// maxErrorText is the maximum length of an error message in bytes: error messages
// may quote what the client sent.
const maxErrorText = 8 << 10
