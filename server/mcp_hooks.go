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

	"pmcp/server/args"
	"pmcp/server/stdio"
)

// icon is the server's icon. Tools, prompts and resources have no icons: clients
// pay for each byte of these lists in every session.
var icon = mcp.Icon{
	Src:      "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%23268' d='M1 2h14v12H1z'/%3E%3Cpath fill='none' stroke='%23fff' d='m4 5 3 3-3 3m4 0h4'/%3E%3C/svg%3E",
	MIMEType: "image/svg+xml", Sizes: []string{"any"},
}

// serverName is the name of the server in the protocol.
const serverName = "pmcp"

// cacheFor is how long a client may cache what does not change in a session. The
// next session may run another pmcp under the same name.
const cacheFor = 5 * time.Minute

// hooks returns the hooks that complete mcp-go's responses.
func (s *Server) hooks() *mcpserver.Hooks {
	hooks := &mcpserver.Hooks{}
	hooks.AddBeforeReadResource(allowPlainName)
	hooks.AddAfterListResources(s.addInstances)
	hooks.AddOnSuccess(s.setBriefServerInfo)
	addTaskHooks(hooks)
	if s.o.Upstream != nil {
		hooks.AddAfterSetLevel(func(_ context.Context, _ any, message *mcp.SetLevelRequest, _ *mcp.EmptyResult) {
			s.o.Upstream.SetLevel(string(message.Params.Level))
		})
	}
	hooks.AddOnError(func(ctx context.Context, _ any, _ mcp.MCPMethod, message any, err error) {
		call, isCall := message.(*mcp.CallToolRequest)
		read, isRead := message.(*mcp.ReadResourceRequest)
		switch {
		case isCall && errors.Is(err, mcpserver.ErrToolNotFound):
			stdio.SetErrorText(ctx, s.unknownTool(call.Params.Name), nil)
		case isRead && errors.Is(err, mcpserver.ErrResourceNotFound):
			stdio.SetErrorText(ctx, unknownResource(requestedURI(read)), map[string]string{"uri": requestedURI(read)})
		}
	})
	return hooks
}

// setBriefServerInfo reduces the server info of a 2026-07-28 result to name and
// version. mcp-go would add title and icon to every result, although
// server/discover returns them once.
func (s *Server) setBriefServerInfo(ctx context.Context, _ any, method mcp.MCPMethod, _ any, result any) {
	signed, ok := result.(mcp.ResultMetadata)
	if !ok || method == mcp.MethodServerDiscover || !mcpserver.IsModernRequest(ctx) {
		return
	}
	if meta := signed.EnsureResultMeta(); meta != nil {
		meta.SetServerInfo(mcp.Implementation{Name: serverName, Version: s.o.Version})
	}
}

// unknownTool returns the error text for a tool that is not offered. The text says
// why the tool is not offered, or which tool was probably meant.
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
	slices.Sort(offered)
	return fmt.Sprintf("unknown tool %s (there are: %s)", args.QuoteWithNearest(name, offered), strings.Join(offered, ", "))
}
