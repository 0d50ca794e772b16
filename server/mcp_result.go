package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/upstream"
)

// relayedResult is the result of another server's tool, which is handed on as
// it came.
type relayedResult struct{ result *mcp.CallToolResult }

// text is never asked for: the result has its own.
func (r relayedResult) text() string { return "" }

// relay makes a result of what a server answered to tools/call: each part of it
// keeps the JSON that came, kinds of content that are not known here included.
// What is no content in any era becomes the text of some.
func relay(server string, raw json.RawMessage) (relayedResult, error) {
	var came struct {
		Meta              map[string]json.RawMessage `json:"_meta"`
		ResultType        string                     `json:"resultType"`
		Content           []json.RawMessage          `json:"content"`
		StructuredContent json.RawMessage            `json:"structuredContent"`
		IsError           bool                       `json:"isError"`
	}
	if err := json.Unmarshal(raw, &came); err != nil {
		return relayedResult{}, fmt.Errorf("%s has answered what is no tool result: %w: %s", server, err, cut(string(raw), len(raw), 500))
	}
	if came.ResultType != "" && came.ResultType != string(mcp.ResultTypeComplete) {
		kind := upstream.OneLine(cut(came.ResultType, len(came.ResultType), 100))
		return relayedResult{}, fmt.Errorf("%s asks for something before it gives a result (%s), for example for an input of the user; pmcp does not relay that", server, kind)
	}
	r := &mcp.CallToolResult{Content: make([]mcp.Content, 0, len(came.Content)), IsError: came.IsError}
	if len(came.Meta) > 0 {
		meta := make(map[string]any, len(came.Meta))
		for key, value := range came.Meta {
			meta[key] = value
		}
		r.Meta = mcp.NewMetaFromMap(meta)
	}
	for _, item := range came.Content {
		if !isObject(item) { // a client's SDK would reject the whole result
			item = textItem(item)
		}
		r.Content = append(r.Content, relayedContent{raw: item})
	}
	if string(came.StructuredContent) != "null" {
		r.RawStructuredContent = came.StructuredContent
	}
	return relayedResult{r}, nil
}

// forLegacy makes a result one of 2025-11-25 and before, when structured content
// was an object: what is none stands in a text item, once. mask takes the secrets
// out first, since in a text JSON is escaped.
func (r relayedResult) forLegacy(mask func([]byte) []byte) {
	raw := r.result.RawStructuredContent
	if len(raw) == 0 || isObject(raw) {
		return
	}
	r.result.RawStructuredContent = nil
	if !slices.ContainsFunc(r.result.Content, func(c mcp.Content) bool { return hasText(c, raw) }) {
		r.result.Content = append(r.result.Content, relayedContent{raw: textItem(mask(raw))})
	}
}

// isObject tells whether valid JSON is an object.
func isObject(raw json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) }

// textItem is an item of content with JSON as its text; of a string what it says.
func textItem(raw json.RawMessage) json.RawMessage {
	text := string(raw)
	_ = json.Unmarshal(raw, &text) // it stays as it is where it is no string
	item, _ := json.Marshal(map[string]string{"type": "text", "text": text})
	return item
}

// hasText tells whether an item of content holds the JSON as its text, as servers
// repeat what is structured; spaces do not count.
func hasText(item mcp.Content, raw json.RawMessage) bool {
	var content struct{ Text string }
	var text, want bytes.Buffer
	came, ok := item.(relayedContent)
	return ok && json.Unmarshal(came.raw, &content) == nil &&
		json.Compact(&text, []byte(content.Text)) == nil && json.Compact(&want, raw) == nil && bytes.Equal(text.Bytes(), want.Bytes())
}

// relayedContent is an item of content as it came. What it embeds only makes it
// one for mcp-go.
type relayedContent struct {
	mcp.TextContent
	raw json.RawMessage
}

// MarshalJSON gives what came.
func (c relayedContent) MarshalJSON() ([]byte, error) { return c.raw, nil }

// maskRelayed is a result without the secrets that its strings hold.
func (s *Server) maskRelayed(r *mcp.CallToolResult) *mcp.CallToolResult {
	if s.o.Mask == nil {
		return r
	}
	for i, item := range r.Content {
		if came, ok := item.(relayedContent); ok {
			came.raw = s.o.Mask.JSON(came.raw)
			r.Content[i] = came
		}
	}
	r.RawStructuredContent = s.o.Mask.JSON(r.RawStructuredContent)
	if r.Meta != nil {
		for key, value := range r.Meta.AdditionalFields {
			if raw, ok := value.(json.RawMessage); ok {
				r.Meta.AdditionalFields[key] = json.RawMessage(s.o.Mask.JSON(raw))
			}
		}
	}
	return r
}

// isRelayed says whether a is handed on as it is.
func isRelayed(a answer) (*mcp.CallToolResult, bool) {
	r, ok := a.(relayedResult)
	return r.result, ok
}
