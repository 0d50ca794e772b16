package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/stdio"
)

// maxCompletions is the most completions that the protocol allows in one response.
const maxCompletions = 100

// completions completes the arguments of prompts and the variables of resource
// templates.
type completions struct{ s *Server }

// CompletePromptArgument completes the name of a process or group.
func (c completions) CompletePromptArgument(ctx context.Context, name string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	for _, p := range prompts() {
		switch {
		case p.name != name:
		case p.argument != argument.Name:
			return nil, stdio.InvalidParams(ctx, fmt.Sprintf("prompt %s has no argument %q", name, argument.Name))
		default:
			return c.names(ctx, p.argument, argument.Value)
		}
	}
	return nil, stdio.InvalidParams(ctx, fmt.Sprintf("unknown prompt %q", name))
}

// CompleteResourceArgument completes the name of a process or a number of lines.
func (c completions) CompleteResourceArgument(ctx context.Context, uri string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	at := slices.IndexFunc(templates(), func(r resource) bool { return r.uri == uri })
	switch {
	case at < 0:
		return nil, stdio.InvalidParams(ctx, fmt.Sprintf("unknown resource template %q", uri))
	case argument.Name == "name":
		return c.names(ctx, "process", argument.Value)
	case argument.Name == "lines" && strings.Contains(uri, "lines"):
		return complete([]string{"20", "100", "1000"}, argument.Value), nil
	default:
		return nil, stdio.InvalidParams(ctx, fmt.Sprintf("%s has no variable %q", uri, argument.Name))
	}
}

// names completes the name of a process or group.
func (c completions) names(ctx context.Context, kind, value string) (*mcp.Completion, error) {
	names, err := c.s.ownCall().subjectNames(ctx, kind)
	if err != nil {
		return nil, err
	}
	return complete(names, value), nil
}

// complete returns the names that begin with value, then those that contain it,
// ignoring case.
func complete(names []string, value string) *mcp.Completion {
	value = strings.ToLower(value)
	var first, rest []string
	for _, name := range names {
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, value):
			first = append(first, name)
		case strings.Contains(lower, value):
			rest = append(rest, name)
		}
	}
	all := slices.Concat([]string{}, first, rest)
	return &mcp.Completion{Values: all[:min(len(all), maxCompletions)], Total: len(all), HasMore: len(all) > maxCompletions}
}
