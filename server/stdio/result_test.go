package stdio

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

// TestToolResultIsEncodedAsByLibrary compares the bytes of tool results with those that mcp-go's
// MarshalJSON method gives.
func TestToolResultIsEncodedAsByLibrary(t *testing.T) {
	odd := "a \"quoted\" \\ <b>&amp; \\u003c \u2028\u2029 \t\r\n\x00\x1b\x7f é 日本 \U0001f600 \xff\xc3( end"
	structured := func(text string) Encoded {
		e, err := Encode(map[string]any{"text": text, "n": []any{1, 2.5, nil, true}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	meta := mcp.NewMetaFromMap(map[string]any{"a<b": map[string]any{"c": "<&>"}})
	large := strings.Repeat(odd, 2000)
	for name, r := range map[string]*mcp.CallToolResult{
		"both":           mcp.NewToolResultStructured(structured(odd), odd),
		"large":          mcp.NewToolResultStructured(structured(large), large),
		"text":           mcp.NewToolResultText(odd),
		"error":          mcp.NewToolResultError(odd),
		"empty":          mcp.NewToolResultStructured(structured(""), ""),
		"raw structured": mcp.NewToolResultStructured(json.RawMessage(`{ "a" : "\u003c" }`), odd),
		"two contents":   {Content: []mcp.Content{mcp.NewTextContent("a"), mcp.NewTextContent("b")}},
		"annotated":      {Content: []mcp.Content{mcp.TextContent{Type: "text", Text: "a", Meta: meta}}},
		"state":          {Content: []mcp.Content{mcp.NewTextContent("a")}, MultiRoundTripResult: mcp.MultiRoundTripResult{RequestState: "s"}},
		"modern": {
			Result:  mcp.Result{Meta: meta, ResultType: mcp.ResultTypeComplete},
			Content: []mcp.Content{mcp.NewTextContent(odd)}, StructuredContent: structured(odd),
		},
	} {
		id := json.RawMessage(`"i<d"`)
		got, err := encodeResult(id, r)
		if err != nil {
			t.Fatal(err)
		}
		want, err := jsonrpc.EncodeResult(id, r)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s: got %.500s\nwant %.500s", name, got, want)
		}
		if !json.Valid(got) || strings.Count(string(got), "\n") != 1 {
			t.Errorf("%s: got %.500q, want one line of JSON", name, got)
		}
	}
}

func BenchmarkEncodeResult(b *testing.B) {
	text := strings.Repeat("2026-11-23 12:00:00 GET /index.html 200 <b> \"x\"\n", 20_000)
	structured, err := Encode(map[string]string{"text": text})
	if err != nil {
		b.Fatal(err)
	}
	r := mcp.NewToolResultStructured(structured, text)
	for name, encode := range map[string]func(json.RawMessage, any) ([]byte, error){"connection": encodeResult, "library": jsonrpc.EncodeResult} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := encode(json.RawMessage("1"), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
