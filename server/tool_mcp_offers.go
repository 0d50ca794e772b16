package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"pmcp/process/prose"
	"pmcp/server/upstream"
)

// An mcpOffer is a resource, a resource template or a prompt of an MCP server, on one line.
type mcpOffer struct {
	URI         string `json:"uri,omitempty"` // of a resource; of a template with its variables in braces
	Name        string `json:"name"`
	Arguments   string `json:"arguments,omitempty"` // of a prompt; optional ones have a question mark
	Description string `json:"description,omitempty"`
}

// maxOffers is how many resources, templates and prompts list_mcp_tools lists, of each kind.
const maxOffers = 100

// offersTimeout bounds the wait for one list of offers: the tools are read already.
const offersTimeout = 10 * time.Second

// addOffers adds what the server offers beside tools. A list that the server refuses is empty; one
// that cannot be read is named.
func (r *mcpToolsResult) addOffers(ctx context.Context, c *upstream.Conn) {
	lists := []*[]mcpOffer{&r.Resources, &r.Templates, &r.Prompts}
	for i, kind := range []string{upstream.Resources, upstream.Templates, upstream.Prompts} {
		offers, err := readOffers(ctx, c, kind)
		var refused *upstream.RPCError
		if err != nil && !errors.As(err, &refused) {
			r.Unread = append(r.Unread, upstream.OneLine(fmt.Sprintf("%s: %.300q", kind, err.Error())))
		}
		r.Omitted += max(0, len(offers)-maxOffers)
		for _, o := range offers[:min(len(offers), maxOffers)] {
			*lists[i] = append(*lists[i], newOffer(o))
		}
	}
}

func readOffers(ctx context.Context, c *upstream.Conn, kind string) ([]upstream.Offer, error) {
	ctx, cancel := context.WithTimeout(ctx, offersTimeout)
	defer cancel()
	return c.Offers(ctx, kind)
}

func newOffer(o upstream.Offer) mcpOffer {
	var required, optional []string
	for _, a := range o.Arguments {
		if a.Required {
			required = append(required, a.Name)
		} else {
			optional = append(optional, a.Name+"?")
		}
	}
	return mcpOffer{URI: o.URI + o.URITemplate, Name: o.Name, Arguments: prose.Join(", ", append(required, optional...)...), Description: summaryLine(cmp.Or(o.Description, o.Title))}
}

// offerLines returns a line for each of the offers, which begins with kind.
func offerLines(kind string, offers []mcpOffer) (lines []string) {
	for _, o := range offers {
		line := kind + " " + quoteUnlessPlain(o.Name)
		if o.URI != "" {
			line = kind + " " + upstream.OneLine(o.URI) + " " + quoteUnlessPlain(o.Name)
		}
		if kind == "prompt" {
			line += "(" + upstream.OneLine(o.Arguments) + ")"
		}
		if o.Description != "" {
			line += ": " + o.Description
		}
		lines = append(lines, line)
	}
	return lines
}

type readMCPResourceArgs struct {
	mcpTarget `schema:"brief"`
	URI       string `json:"uri,omitempty"` // not optional: required would cost bytes in each session
	TimeoutMS int    `json:"timeout_ms,omitempty" schema:"brief" min:"1" max:"600000"`
}

func readMCPResourceTool() tool {
	return define(tool{
		name: "read_mcp_resource", title: "MCP resource", toolset: setMCP,
		description: "A resource of an MCP server: process, or command.",
		hints:       hints{openWorld: true},
	}, readMCPResource)
}

func readMCPResource(ctx context.Context, s *call, a readMCPResourceArgs) (answer, error) {
	if a.URI == "" {
		return nil, errors.New("missing argument: uri")
	}
	return s.relayMCP(ctx, a.mcpTarget, a.TimeoutMS, offerRequest("resources/read", map[string]any{"uri": a.URI}, relayResource))
}

type getMCPPromptArgs struct {
	mcpTarget `schema:"brief"`
	Prompt    string            `json:"prompt,omitempty"` // as uri of read_mcp_resource
	Arguments map[string]string `json:"arguments,omitempty"`
	TimeoutMS int               `json:"timeout_ms,omitempty" schema:"brief" min:"1" max:"600000"`
}

func getMCPPromptTool() tool {
	return define(tool{
		name: "get_mcp_prompt", title: "MCP prompt", toolset: setMCP,
		description: "A prompt of an MCP server: process, or command.",
		hints:       hints{openWorld: true},
	}, getMCPPrompt)
}

func getMCPPrompt(ctx context.Context, s *call, a getMCPPromptArgs) (answer, error) {
	if a.Prompt == "" {
		return nil, errors.New("missing argument: prompt")
	}
	params := map[string]any{"name": a.Prompt}
	if len(a.Arguments) > 0 {
		params["arguments"] = a.Arguments
	}
	return s.relayMCP(ctx, a.mcpTarget, a.TimeoutMS, offerRequest("prompts/get", params, relayPrompt))
}

// offerRequest returns the request for something that list_mcp_tools shows beside tools.
func offerRequest(method string, params map[string]any, read func(string, json.RawMessage) (relayedResult, error)) mcpRequest {
	return mcpRequest{method, params, read, "refused " + method, "list_mcp_tools shows what the server has"}
}
