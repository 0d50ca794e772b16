package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// EncodeResult returns the line that answers request id with result.
func EncodeResult(id json.RawMessage, result any) ([]byte, error) {
	return encodeLine(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":`, id), result)
}

// EncodeError returns the line of an error. Data that cannot be encoded is left out.
func EncodeError(e Error) []byte {
	id := e.ID
	if id == nil {
		id = json.RawMessage("null")
	}
	head := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":`, id)
	line, err := encodeLine(head, e)
	if err != nil {
		e.Data = nil
		line, _ = encodeLine(head, e) // an int and a string always encode
	}
	return line
}

// EncodeCall returns the line of a notification, or of a request if id is not nil.
func EncodeCall(id json.RawMessage, method string, params any) ([]byte, error) {
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
func encodeLine(head []byte, v any) ([]byte, error) {
	line, err := AppendJSON(head, v)
	if err != nil {
		return nil, err
	}
	return append(line, "}\n"...), nil
}

// AppendJSON appends the JSON of v to dst in the form that messages have: on one line,
// with <, > and & unescaped. It uses the spare capacity of dst.
func AppendJSON(dst []byte, v any) ([]byte, error) {
	start := len(dst)
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // the encoder compacts what a MarshalJSON method returns
		return nil, err
	}
	out := buf.Bytes()
	return append(out[:start], unescapeHTML(out[start:len(out)-1])...), nil
}

// htmlEscapes are the JSON escapes of <, > and &, without their backslashes.
var htmlEscapes = map[string]byte{"u003c": '<', "u003C": '<', "u003e": '>', "u003E": '>', "u0026": '&'}

// unescapeHTML replaces the escapes of <, > and & in valid JSON, in place: mcp-go's
// own MarshalJSON methods escape these characters, six bytes for one. U+2028 and
// U+2029 stay escaped, because some readers take them for line ends.
func unescapeHTML(b []byte) []byte {
	if !bytes.Contains(b, []byte(`\u00`)) {
		return b
	}
	out := b[:0]
	for {
		before, after, found := bytes.Cut(b, []byte{'\\'})
		out = append(out, before...)
		if !found {
			return out
		}
		if c := htmlEscapes[string(after[:min(len(after), len("u003c"))])]; c != 0 {
			out = append(out, c)
			b = after[len("u003c"):]
			continue
		}
		out = append(out, '\\', after[0]) // after[0] may be a backslash, which starts no escape
		b = after[1:]
	}
}
