package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore/mask"
	"pmcp/server/upstream"
)

// relayedResult is the result of another server's tool. It is relayed unchanged.
type relayedResult struct{ result *mcp.CallToolResult }

// write is never called: a relayed result has its own text.
func (r relayedResult) write(*answerText) {}

// relay returns a server's response to tools/call as a result. Each part keeps its
// JSON, including content of kinds that pmcp does not know. A content item that is
// not valid in any version of MCP becomes a text item.
func relay(server string, raw json.RawMessage) (relayedResult, error) {
	var response struct {
		Meta              map[string]json.RawMessage `json:"_meta"`
		ResultType        string                     `json:"resultType"`
		Content           []json.RawMessage          `json:"content"`
		StructuredContent json.RawMessage            `json:"structuredContent"`
		IsError           bool                       `json:"isError"`
	}
	if err := json.Unmarshal(raw, &response); err != nil {
		return relayedResult{}, fmt.Errorf("%s returned an invalid tool result: %w: %s", server, err, cut(string(raw), 500))
	}
	if err := checkComplete(server, response.ResultType); err != nil {
		return relayedResult{}, err
	}
	r := newRelayed(response.Meta, response.Content)
	r.IsError = response.IsError
	if string(response.StructuredContent) != "null" {
		r.RawStructuredContent = response.StructuredContent
	}
	return relayedResult{r}, nil
}

// checkComplete returns an error unless a result is complete: resultType is "" before MCP 2026-07-28.
func checkComplete(server, resultType string) error {
	if resultType == "" || resultType == string(mcp.ResultTypeComplete) {
		return nil
	}
	kind := upstream.OneLine(cut(resultType, 100))
	return fmt.Errorf("%s requests something before it returns a result (%q), such as input from the user; pmcp does not relay that", server, kind)
}

// newRelayed returns a result with the content items and the metadata of a server.
func newRelayed(meta map[string]json.RawMessage, content []json.RawMessage) *mcp.CallToolResult {
	r := &mcp.CallToolResult{Content: make([]mcp.Content, 0, len(content))}
	if len(meta) > 0 {
		all := make(map[string]any, len(meta))
		for key, value := range meta {
			all[key] = value
		}
		r.Meta = mcp.NewMetaFromMap(all)
	}
	for _, item := range content {
		if !isObject(item) { // otherwise the client's SDK would reject the whole result
			item = textItem(item)
		}
		r.Content = append(r.Content, relayedContent{raw: item})
	}
	return r
}

// relayResource returns a server's response to resources/read: each of its contents is an embedded
// resource.
func relayResource(server string, raw json.RawMessage) (relayedResult, error) {
	var response struct {
		Meta       map[string]json.RawMessage `json:"_meta"`
		ResultType string                     `json:"resultType"`
		Contents   []json.RawMessage          `json:"contents"`
	}
	if err := json.Unmarshal(raw, &response); err != nil {
		return relayedResult{}, fmt.Errorf("%s returned an invalid resource: %w: %s", server, err, cut(string(raw), 500))
	}
	var items []json.RawMessage
	for _, content := range response.Contents {
		if isObject(content) {
			content = append(append([]byte(`{"type":"resource","resource":`), content...), '}')
		}
		items = append(items, content)
	}
	return relayedResult{newRelayed(response.Meta, items)}, checkComplete(server, response.ResultType)
}

// relayPrompt returns a server's response to prompts/get: the content of its messages, each after
// a text with its role unless there is one message, of the user.
func relayPrompt(server string, raw json.RawMessage) (relayedResult, error) {
	var response struct {
		Meta       map[string]json.RawMessage `json:"_meta"`
		ResultType string                     `json:"resultType"`
		Messages   []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(raw, &response); err != nil {
		return relayedResult{}, fmt.Errorf("%s returned an invalid prompt: %w: %s", server, err, cut(string(raw), 500))
	}
	var items []json.RawMessage
	for _, m := range response.Messages {
		if len(response.Messages) > 1 || m.Role != string(mcp.RoleUser) {
			role, _ := json.Marshal(m.Role + ":") // a string always encodes
			items = append(items, textItem(role))
		}
		items = append(items, m.Content)
	}
	return relayedResult{newRelayed(response.Meta, items)}, checkComplete(server, response.ResultType)
}

// text returns the result as text: of images and sounds it has only the kind and the
// size, and of structured content what no text item repeats.
func (r relayedResult) text() string {
	var parts []string
	for _, item := range r.result.Content {
		raw := item.(relayedContent).raw
		var content struct{ Type, Text, Data, MIMEType string }
		switch err := json.Unmarshal(raw, &content); {
		case err == nil && content.Type == "text":
			parts = append(parts, content.Text)
		case err == nil && content.Data != "":
			parts = append(parts, fmt.Sprintf("[%s %s, %d bytes of base64: a call with tool alone returns it]", content.Type, content.MIMEType, len(content.Data)))
		default:
			parts = append(parts, string(raw))
		}
	}
	raw := r.result.RawStructuredContent
	if len(raw) > 0 && !r.repeats(raw) {
		parts = append(parts, string(raw))
	}
	return strings.Join(parts, "\n")
}

// onlyText returns the text in {"result": "text"}, an object with nothing else, or "".
func onlyText(raw json.RawMessage) (text string) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || len(object) != 1 {
		return ""
	}
	for _, value := range object {
		_ = json.Unmarshal(value, &text) // text stays "" if value is not a text
	}
	return text
}

// moveStructured moves the structured content of r, if it has some, to a text item, unless
// a text item already has it. It masks the value before that, because JSON within a text
// is escaped.
func (r relayedResult) moveStructured(secrets *mask.Masker) {
	raw := r.result.RawStructuredContent
	r.result.RawStructuredContent = nil
	if len(raw) > 0 && !r.repeats(raw) {
		r.result.Content = append(r.result.Content, relayedContent{raw: textItem(secrets.JSON(raw))})
	}
}

// repeats reports whether a text item has the structured content raw, as JSON or, of an
// object that only wraps a text, as that text: many SDKs wrap the text of a tool so.
func (r relayedResult) repeats(raw json.RawMessage) bool {
	wrapped := onlyText(raw)
	return slices.ContainsFunc(r.result.Content, func(item mcp.Content) bool {
		var content struct{ Text string }
		relayed, ok := item.(relayedContent)
		return ok && json.Unmarshal(relayed.raw, &content) == nil && (wrapped != "" && content.Text == wrapped || isSameJSON([]byte(content.Text), raw))
	})
}

func isSameJSON(a, b []byte) bool {
	var one, other bytes.Buffer
	return json.Compact(&one, a) == nil && json.Compact(&other, b) == nil && bytes.Equal(one.Bytes(), other.Bytes())
}

// isObject reports whether raw, valid JSON, is an object.
func isObject(raw json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) }

// textItem returns a content item whose text is raw or, if raw encodes a string,
// that string.
func textItem(raw json.RawMessage) json.RawMessage {
	text := string(raw)
	_ = json.Unmarshal(raw, &text) // text is unchanged if raw is not a string
	item, _ := json.Marshal(map[string]string{"type": "text", "text": text})
	return item
}

// relayedContent is a content item that is relayed unchanged. The embedded type is
// there only to make relayedContent an mcp.Content.
type relayedContent struct {
	mcp.TextContent
	raw json.RawMessage
}

// MarshalJSON returns the original JSON.
func (c relayedContent) MarshalJSON() ([]byte, error) { return c.raw, nil }

// masked masks the secrets in the strings of r and returns its result.
func (r relayedResult) masked(secrets *mask.Masker) *mcp.CallToolResult {
	result := r.result
	for i, item := range result.Content {
		if content, ok := item.(relayedContent); ok {
			content.raw = secrets.JSON(content.raw)
			result.Content[i] = content
		}
	}
	result.RawStructuredContent = secrets.JSON(result.RawStructuredContent)
	if result.Meta != nil {
		for key, value := range result.Meta.AdditionalFields {
			if raw, ok := value.(json.RawMessage); ok {
				result.Meta.AdditionalFields[key] = json.RawMessage(secrets.JSON(raw))
			}
		}
	}
	return result
}
