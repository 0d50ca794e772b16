package stdio

import (
	"encoding/json"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

// Encoded is JSON in the form that a connection writes: valid, on one line, and with <, >
// and & unescaped. As the structured content of a tool result it is written as it is.
type Encoded []byte

// Encode returns the JSON of v.
func Encode(v any) (Encoded, error) { return jsonrpc.AppendJSON(nil, v) }

// MarshalJSON returns e.
func (e Encoded) MarshalJSON() ([]byte, error) { return e, nil }

// encodeResult returns the line that answers request id with result. It encodes a tool
// result that consists of text and Encoded content in one pass, because mcp-go's
// MarshalJSON method and its caller would each copy and check the whole of it.
func encodeResult(id json.RawMessage, result any) ([]byte, error) {
	r, ok := result.(*mcp.CallToolResult)
	if !ok || len(r.Content) != 1 || len(r.RawStructuredContent)+len(r.InputRequests)+len(r.RequestState) > 0 {
		return jsonrpc.EncodeResult(id, result)
	}
	content, isText := r.Content[0].(mcp.TextContent)
	structured, isEncoded := r.StructuredContent.(Encoded)
	if !isText || content != (mcp.TextContent{Type: "text", Text: content.Text}) || !isEncoded && r.StructuredContent != nil {
		return jsonrpc.EncodeResult(id, result)
	}
	const room = 512                                                                    // for all but the text and the structured content
	line := make([]byte, 0, len(content.Text)+len(content.Text)/8+len(structured)+room) // an eighth for escapes
	line = fmt.Appendf(line, `{"jsonrpc":"2.0","id":%s,"result":{`, id)
	var err error
	if r.Meta != nil {
		if line, err = jsonrpc.AppendJSON(append(line, `"_meta":`...), r.Meta); err != nil {
			return nil, err
		}
		line = append(line, ',')
	}
	if line, err = jsonrpc.AppendJSON(append(line, `"content":[{"type":"text","text":`...), content.Text); err != nil {
		return nil, err
	}
	line = append(line, "}]"...)
	if r.IsError {
		line = append(line, `,"isError":true`...)
	}
	if r.ResultType != "" {
		line = fmt.Appendf(line, `,"resultType":%q`, r.ResultType)
	}
	if isEncoded {
		line = append(append(line, `,"structuredContent":`...), structured...)
	}
	return append(line, "}}\n"...), nil
}
