package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	maxIDSize     = 1 << 10 // bytes of a request id as written by the client
	maxMethodSize = 256     // bytes of a method name
)

type messageKind int

const (
	kindRequest messageKind = iota
	kindNotification
	kindResponse // to a request of ours
	kindIgnored  // a notification that means nothing here: it must not be answered
)

// message is one JSON-RPC message that passed all checks of the envelope.
type message struct {
	kind   messageKind
	id     json.RawMessage // as the client wrote it; nil in a notification
	key    string          // the id in the form that equal ids share
	method string          // empty in a response
	params json.RawMessage // an object, or nil if there are none
}

// protocolError is a JSON-RPC error on its way to the client.
type protocolError struct {
	id   json.RawMessage // nil is written as null
	code int
	text string
	data any // left out if nil
}

// parseMessage reads one line. It insists on what JSON-RPC 2.0 and MCP demand
// of the envelope; params are only checked to be an object.
func parseMessage(line []byte) (message, *protocolError) {
	if bad := checkShape(line); bad != nil {
		return message{}, bad
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return message{}, parseError(err)
	}
	m := message{id: fields["id"], params: fields["params"]}
	rawMethod, called := fields["method"]
	_, hasResult := fields["result"]
	_, hasError := fields["error"]
	if !called && (hasResult || hasError) {
		// Never answered, whatever is wrong with it: two peers could go on
		// telling each other for ever.
		m.key, _ = idKey(m.id)
		m.kind, m.params = kindResponse, nil
		return m, nil
	}
	if bad := m.checkID(); bad != nil {
		return message{}, bad
	}
	refuse := func(code int, format string, args ...any) (message, *protocolError) {
		return message{}, &protocolError{id: m.id, code: code, text: fmt.Sprintf(format, args...)}
	}
	if at := invalidUTF8(line); at >= 0 {
		if !utf8.Valid(m.id) {
			m.id = nil // it cannot be echoed
		}
		return refuse(mcp.PARSE_ERROR, "Parse error: the message is not valid UTF-8 at byte %d", at)
	}
	if v := fields["jsonrpc"]; string(v) != `"2.0"` {
		return refuse(mcp.INVALID_REQUEST, `Invalid request: "jsonrpc" must be "2.0"`)
	}
	if !called {
		return refuse(mcp.INVALID_REQUEST, `Invalid request: "method" is missing`)
	}
	if hasResult || hasError {
		return refuse(mcp.INVALID_REQUEST, `Invalid request: "method" beside "result" or "error"`)
	}
	if err := json.Unmarshal(rawMethod, &m.method); err != nil || m.method == "" {
		return refuse(mcp.INVALID_REQUEST, `Invalid request: "method" must be a non-empty string`)
	}
	if string(m.params) == "null" {
		m.params = nil
	}
	odd := len(m.params) > 0 && m.params[0] != '{'
	if m.id == nil {
		m.kind = kindNotification
		if odd || len(m.method) > maxMethodSize {
			m.kind = kindIgnored
		}
		return m, nil
	}
	if len(m.method) > maxMethodSize {
		return refuse(mcp.METHOD_NOT_FOUND, "Method not found: its name is longer than %d bytes", maxMethodSize)
	}
	if odd {
		return refuse(mcp.INVALID_PARAMS, `Invalid params: "params" must be an object`)
	}
	return m, nil
}

// checkShape refuses what is not an object.
func checkShape(line []byte) *protocolError {
	if line[0] == '{' {
		return nil
	}
	var value json.RawMessage
	if err := json.Unmarshal(line, &value); err != nil {
		return parseError(err)
	}
	text := "Invalid request: a message must be a JSON object"
	if line[0] == '[' {
		text = "Invalid request: batches are not supported; send each message on a line of its own"
	}
	return &protocolError{code: mcp.INVALID_REQUEST, text: text}
}

// checkID sets the key of a present id. A refused id is not echoed.
func (m *message) checkID() *protocolError {
	if m.id == nil {
		return nil
	}
	if len(m.id) > maxIDSize {
		return &protocolError{code: mcp.INVALID_REQUEST,
			text: fmt.Sprintf(`Invalid request: "id" is longer than %d bytes`, maxIDSize)}
	}
	key, ok := idKey(m.id)
	if !ok {
		return &protocolError{code: mcp.INVALID_REQUEST,
			text: `Invalid request: "id" must be a string or an integer`}
	}
	m.key = key
	return nil
}

// idKey brings an id into a form that is the same for equal ids and different
// for 1 and "1". It is false for what is neither a string nor an integer.
func idKey(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 {
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

func parseError(err error) *protocolError {
	text := "Parse error: the line is not valid JSON"
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		text = fmt.Sprintf("%s at byte %d: %s", text, syntax.Offset, syntax)
	}
	return &protocolError{code: mcp.PARSE_ERROR, text: text}
}

// invalidUTF8 gives the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// forward builds the message that mcp-go is given: with an id of ours, which
// survives mcp-go's decoding of numbers as float64, and without the members
// that its case-insensitive decoding could mistake for others.
func (m message) forward(id int64) json.RawMessage {
	b := make([]byte, 0, len(m.params)+len(m.method)+64)
	b = append(b, `{"jsonrpc":"2.0"`...)
	if m.kind == kindRequest {
		b = fmt.Appendf(b, `,"id":%d`, id)
	}
	method, _ := json.Marshal(m.method) // a string always encodes
	b = append(append(b, `,"method":`...), method...)
	if m.params != nil {
		b = append(append(b, `,"params":`...), m.params...)
	}
	return append(b, '}')
}

// encodeResult gives the line that answers request id with result.
func encodeResult(id json.RawMessage, result any) ([]byte, error) {
	return encodeLine(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":`, id), result)
}

// encodeError gives the line of an error. Data that cannot be encoded is left out.
func encodeError(e protocolError) []byte {
	id := e.id
	if id == nil {
		id = json.RawMessage("null")
	}
	head := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":`, id)
	body := mcp.JSONRPCErrorDetails{Code: e.code, Message: e.text, Data: e.data}
	line, err := encodeLine(head, body)
	if err != nil {
		body.Data = nil
		line, _ = encodeLine(head, body) // an int and a string always encode
	}
	return line
}

// encodeCall gives the line of a notification, or of a request if id is not nil.
func encodeCall(id json.RawMessage, method string, params any) ([]byte, error) {
	head := []byte(`{"jsonrpc":"2.0"`)
	if id != nil {
		head = fmt.Appendf(head, `,"id":%s`, id)
	}
	name, err := json.Marshal(method)
	if err != nil {
		return nil, err
	}
	head = append(append(head, `,"method":`...), name...)
	if params == nil {
		return append(head, "}\n"...), nil
	}
	return encodeLine(append(head, `,"params":`...), params)
}

// encodeLine appends the JSON of v, a closing brace and the newline to head.
// The encoder writes no newline inside: it compacts what a MarshalJSON gives.
func encodeLine(head []byte, v any) ([]byte, error) {
	start := len(head)
	buf := bytes.NewBuffer(head[:start:start])
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	line := buf.Bytes()
	line = append(line[:start], unescapeHTML(line[start:len(line)-1])...)
	return append(line, "}\n"...), nil
}

// unescapeHTML writes <, > and & where JSON has them as \u003c, \u003e and
// \u0026, in place: mcp-go's own MarshalJSON methods escape them, six bytes
// for one. U+2028 and U+2029 stay escaped, some readers take them for line ends.
func unescapeHTML(b []byte) []byte {
	first := bytes.Index(b, []byte(`\u00`))
	if first < 0 {
		return b
	}
	// A backslash can only be told from an escaped one when read from the
	// start of a run of them.
	for first > 0 && b[first-1] == '\\' {
		first--
	}
	out := b[:first]
	for i := first; i < len(b); {
		if b[i] != '\\' || i+1 >= len(b) {
			out = append(out, b[i])
			i++
			continue
		}
		if c := htmlEscape(b[i:]); c != 0 {
			out = append(out, c)
			i += len(`\u003c`)
			continue
		}
		out = append(out, b[i], b[i+1])
		i += 2
	}
	return out
}

// htmlEscape gives the character that the escape at the start of b stands for
// if it is one of <, > and &, else 0.
func htmlEscape(b []byte) byte {
	if len(b) < len(`\u003c`) || string(b[:4]) != `\u00` {
		return 0
	}
	switch string(b[4:6]) {
	case "3c", "3C":
		return '<'
	case "3e", "3E":
		return '>'
	case "26":
		return '&'
	}
	return 0
}
