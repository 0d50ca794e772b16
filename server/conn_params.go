package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// param is what a member of a request's params must be. A dot in its path goes
// into an object.
type param struct {
	path     string
	want     paramType
	required bool
}

// paramType says what a value must be, and tells whether it is.
type paramType struct {
	text string
	is   func(json.RawMessage) bool
}

var (
	aString  = paramType{"a string", startsWith(`"`)}
	anObject = paramType{"an object", startsWith(`{`)}
	aBool    = paramType{"true or false", startsWith("tf")}
	aNumber  = paramType{"an integer", isJSON[int64]}
	aList    = paramType{"a list", startsWith("[")}
	strList  = paramType{"a list of strings", isJSON[[]string]}
	strMap   = paramType{"an object whose values are strings", isJSON[map[string]string]}
)

func startsWith(any string) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool { return strings.IndexByte(any, raw[0]) >= 0 }
}

func isJSON[T any](raw json.RawMessage) bool {
	var v T
	return json.Unmarshal(raw, &v) == nil
}

func oneOf(words ...string) paramType {
	return paramType{"one of " + strings.Join(words, ", "), func(raw json.RawMessage) bool {
		var s string
		return json.Unmarshal(raw, &s) == nil && slices.Contains(words, s)
	}}
}

// commonParams are those of every request.
var commonParams = []param{{path: "_meta", want: anObject}}

// methodParams are the params that mcp-go decodes, an object before what is in
// it. Arguments of tools are not among them: decodeArguments reads those.
var methodParams = map[mcp.MCPMethod][]param{
	mcp.MethodInitialize: {
		{path: "protocolVersion", want: aString},
		{path: "capabilities", want: anObject}, {path: "capabilities.experimental", want: anObject}, {path: "capabilities.extensions", want: anObject},
		{path: "capabilities.roots", want: anObject}, {path: "capabilities.roots.listChanged", want: aBool},
		{path: "capabilities.sampling", want: anObject}, {path: "capabilities.elicitation", want: anObject}, {path: "capabilities.tasks", want: anObject},
		{path: "clientInfo", want: anObject}, {path: "clientInfo.name", want: aString}, {path: "clientInfo.version", want: aString},
		{path: "clientInfo.title", want: aString}, {path: "clientInfo.description", want: aString},
		{path: "clientInfo.websiteUrl", want: aString}, {path: "clientInfo.icons", want: aList},
	},
	mcp.MethodToolsCall:              {{path: "name", want: aString}, {path: "task", want: anObject}, {path: "task.ttl", want: aNumber}},
	mcp.MethodToolsList:              {{path: "cursor", want: aString}},
	mcp.MethodPromptsList:            {{path: "cursor", want: aString}},
	mcp.MethodResourcesList:          {{path: "cursor", want: aString}},
	mcp.MethodResourcesTemplatesList: {{path: "cursor", want: aString}},
	mcp.MethodResourcesRead:          {{path: "uri", want: aString}},
	mcp.MethodResourcesSubscribe:     {{path: "uri", want: aString, required: true}},
	mcp.MethodResourcesUnsubscribe:   {{path: "uri", want: aString, required: true}},
	mcp.MethodPromptsGet:             {{path: "name", want: aString}, {path: "arguments", want: strMap}},
	mcp.MethodCompletionComplete: {
		{path: "ref", want: anObject, required: true}, {path: "ref.type", want: oneOf("ref/prompt", "ref/resource"), required: true},
		{path: "ref.name", want: aString}, {path: "ref.uri", want: aString},
		{path: "argument", want: anObject, required: true}, {path: "argument.name", want: aString}, {path: "argument.value", want: aString},
		{path: "context", want: anObject}, {path: "context.arguments", want: strMap},
	},
	mcp.MethodSetLogLevel: {{path: "level", required: true,
		want: oneOf("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")}},
	mcp.MethodSubscriptionsListen: {
		{path: "notifications", want: anObject}, {path: "notifications.toolsListChanged", want: aBool},
		{path: "notifications.promptsListChanged", want: aBool}, {path: "notifications.resourcesListChanged", want: aBool},
		{path: "notifications.resourceSubscriptions", want: strList},
	},
}

// wrongParam says which of the params of a request that mcp-go has refused is
// not what it must be, in our words: mcp-go's name Go types. "" if none.
func wrongParam(method string, params json.RawMessage) string {
	for _, p := range slices.Concat(commonParams, methodParams[mcp.MCPMethod(method)]) {
		raw := paramAt(params, p.path)
		switch {
		case raw == nil && p.required:
			return fmt.Sprintf("%s: params.%s is missing: want %s", method, p.path, p.want.text)
		case raw != nil && !p.want.is(raw):
			return fmt.Sprintf("%s: params.%s: want %s, got %s", method, p.path, p.want.text, quoteValue(raw))
		}
	}
	return ""
}

// paramAt is the value at a path; nil if there is none, or null.
func paramAt(raw json.RawMessage, path string) json.RawMessage {
	for name := range strings.SplitSeq(path, ".") {
		var members map[string]json.RawMessage
		if raw == nil || json.Unmarshal(raw, &members) != nil {
			return nil
		}
		raw = bytes.TrimSpace(members[name])
		if len(raw) == 0 || string(raw) == "null" {
			return nil
		}
	}
	return raw
}
