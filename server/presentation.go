package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// icon is shown for the server. Tools, prompts and resources have none: a client
// pays for each byte of its lists in every session.
var icon = mcp.Icon{
	Src:      "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%23268' d='M1 2h14v12H1z'/%3E%3Cpath fill='none' stroke='%23fff' d='m4 5 3 3-3 3m4 0h4'/%3E%3C/svg%3E",
	MIMEType: "image/svg+xml", Sizes: []string{"any"},
}

// serverName is how the server calls itself.
const serverName = "pmcp"

// fixedFor is how long a client may keep what does not change in a session. The
// next session may have another pmcp behind the same name.
const fixedFor = 5 * time.Minute

// hooks are where mcp-go's answers are completed.
func (s *Server) hooks() *mcpserver.Hooks {
	hooks := &mcpserver.Hooks{}
	hooks.AddBeforeReadResource(allowPlainName)
	hooks.AddAfterListResources(s.addInstances)
	hooks.AddOnSuccess(s.signBriefly)
	hooks.AddOnError(func(ctx context.Context, _ any, method mcp.MCPMethod, message any, err error) {
		call, isCall := message.(*mcp.CallToolRequest)
		prompt, isPrompt := message.(*mcp.GetPromptRequest)
		read, isRead := message.(*mcp.ReadResourceRequest)
		switch {
		case isCall && errors.Is(err, mcpserver.ErrToolNotFound):
			rephrase(ctx, s.unknownTool(call.Params.Name), nil)
		case isPrompt && errors.Is(err, mcpserver.ErrPromptNotFound):
			rephrase(ctx, unknownPrompt(prompt.Params.Name), nil)
		case isRead && errors.Is(err, mcpserver.ErrResourceNotFound):
			rephrase(ctx, unknownResource(askedURI(read)), map[string]string{"uri": askedURI(read)})
		case slices.Contains(listMethods, method):
			rephrase(ctx, "params.cursor: the whole list is on its first page, which has no cursor", nil)
		}
	})
	return hooks
}

// listMethods fail for a cursor that is none, and for nothing else.
var listMethods = []mcp.MCPMethod{mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourcesTemplatesList}

// signBriefly has a 2026-07-28 result name its server without title and icon,
// which mcp-go would put into each: server/discover gives them once.
func (s *Server) signBriefly(ctx context.Context, _ any, method mcp.MCPMethod, _ any, result any) {
	signed, ok := result.(mcp.ResultMetadata)
	if !ok || method == mcp.MethodServerDiscover || !mcpserver.IsModernRequest(ctx) {
		return
	}
	if meta := signed.EnsureResultMeta(); meta != nil {
		meta.SetServerInfo(mcp.Implementation{Name: serverName, Version: s.o.Version})
	}
}

// unknownTool says for a tool that is not offered why, or which one was meant.
func (s *Server) unknownTool(name string) string {
	var offered []string
	for _, t := range s.tools {
		switch {
		case s.offers(&t):
			offered = append(offered, t.name)
		case t.name != name:
		case s.o.ReadOnly && !t.hints.readOnly:
			return fmt.Sprintf("tool %s is not offered: it changes something, and PM_READ_ONLY is set", name)
		default:
			return fmt.Sprintf("tool %s is not offered: toolset %s is not among PM_TOOLSETS=%s", name, t.toolset, strings.Join(s.o.Toolsets, ","))
		}
	}
	text := fmt.Sprintf("unknown tool %s", clipText(name))
	if name == "" {
		text = "unknown tool: params.name is missing"
	} else if best := nearest(name, offered); best != "" {
		text += "; did you mean " + best + "?"
	}
	slices.Sort(offered)
	return text + " (there are: " + strings.Join(offered, ", ") + ")"
}
