package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"pmcp/process/prose"
)

// maxIDSize is the size of the longest request id, in bytes as the client wrote it.
const maxIDSize = 1 << 10

// Error codes of JSON-RPC 2.0.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
)

// Kind is the kind of a message, which its members decide.
type Kind int

const (
	Request Kind = iota
	Notification
	Response // to a request that this side sent
)

// Message is one JSON-RPC message whose envelope has passed all checks.
type Message struct {
	Kind   Kind
	ID     json.RawMessage // as the client wrote it; nil in a notification
	Key    string          // see IDKey
	Method string          // empty in a response
	Params json.RawMessage // nil if there are none; in a request an object, in a notification any JSON
	Result json.RawMessage // of a response; nil if it is an error
	Error  json.RawMessage // of a response, as it was sent; nil if there is none
}

// Error is a JSON-RPC error on its way to the client.
type Error struct {
	ID   json.RawMessage `json:"-"` // nil is written as null
	Code int             `json:"code"`
	Text string          `json:"message"`
	Data any             `json:"data,omitempty"`
}

// Parse returns the message in one line, which must not be empty, or the error to
// send back. Parse checks what JSON-RPC 2.0 and MCP require of the envelope; of a
// request's params it checks only that they are an object.
func Parse(line []byte) (Message, *Error) {
	var fields map[string]json.RawMessage
	var wrongType *json.UnmarshalTypeError
	switch err := json.Unmarshal(line, &fields); {
	case errors.As(err, &wrongType), err == nil && fields == nil: // nil for null
		return Message{}, &Error{Code: CodeInvalidRequest,
			Text: "Invalid request: a message must be a JSON object; batches are not supported: send each message on a line of its own"}
	case err != nil:
		return Message{}, &Error{Code: CodeParseError, Text: "Parse error: the line is not valid JSON: " + err.Error()}
	}
	m := Message{ID: fields["id"], Params: fields["params"]}
	rawMethod, called := fields["method"]
	_, hasResult := fields["result"]
	_, hasError := fields["error"]
	key, validKey := IDKey(m.ID)
	m.Key = key
	if !called && (hasResult || hasError) {
		// Never answered, whatever is wrong with it: two peers could answer
		// each other's errors for ever.
		m.Kind, m.Params, m.Result, m.Error = Response, nil, fields["result"], fields["error"]
		return m, nil
	}
	refuse := func(code int, text string) (Message, *Error) {
		if !validKey || !utf8.Valid(m.ID) {
			m.ID = nil // it cannot be echoed
		}
		return Message{}, &Error{ID: m.ID, Code: code, Text: text}
	}
	_ = json.Unmarshal(rawMethod, &m.Method) // anything but a string leaves it empty
	if string(m.Params) == "null" {
		m.Params = nil
	}
	switch {
	case m.ID != nil && !validKey:
		return refuse(CodeInvalidRequest, fmt.Sprintf(`Invalid request: "id" must be a string or an integer of at most %d bytes`, maxIDSize))
	case !utf8.Valid(line):
		return refuse(CodeParseError, "Parse error: the message is not valid UTF-8")
	case string(fields["jsonrpc"]) != `"2.0"`:
		return refuse(CodeInvalidRequest, `Invalid request: "jsonrpc" must be "2.0"`)
	case hasResult || hasError:
		return refuse(CodeInvalidRequest, `Invalid request: "method" beside "result" or "error"`)
	case m.Method == "":
		return refuse(CodeInvalidRequest, `Invalid request: "method" must be a non-empty string`)
	case m.ID == nil:
		m.Kind = Notification
	case len(m.Params) > 0 && m.Params[0] != '{':
		return refuse(CodeInvalidParams, `Invalid params: "params" must be an object`)
	}
	return m, nil
}

// IDKey returns a form of a request's id that is the same for equal ids and different
// for 1 and "1". ok is false if raw is neither a string nor an integer, or too long.
func IDKey(raw json.RawMessage) (key string, ok bool) {
	if len(raw) == 0 || len(raw) > maxIDSize {
		return "", false
	}
	if raw[0] == '"' {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", false
		}
		return `"` + s, true
	}
	digits := bytes.TrimPrefix(raw, []byte{'-'})
	if len(digits) == 0 || len(bytes.Trim(digits, "0123456789")) > 0 {
		return "", false
	}
	return string(raw), true
}

// Forward returns the message for mcp-go: with an id of ours, which survives
// mcp-go's decoding of numbers as float64, and without members that its
// case-insensitive decoding could take for others.
func (m Message) Forward(id int64) json.RawMessage {
	var number json.RawMessage
	if m.Kind == Request {
		number = strconv.AppendInt(nil, id, 10)
	}
	var params any
	if m.Params != nil {
		params = m.Params
	}
	line, _ := EncodeCall(number, m.Method, params) // what Parse has decoded always encodes
	return line
}

// maxQuote bounds a value in an error message, in bytes.
const maxQuote = 80

// Quote returns the JSON of a value for an error message, cut to maxQuote bytes.
func Quote(raw json.RawMessage) string {
	return prose.Cut(strings.ToValidUTF8(string(bytes.TrimSpace(raw)), ""), maxQuote)
}
