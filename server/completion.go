package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// maxCompletions is the most that the protocol allows.
const maxCompletions = 100

// completions completes the arguments of prompts and the variables of resource
// templates.
type completions struct{ s *Server }

// CompletePromptArgument completes a process or group name.
func (c completions) CompletePromptArgument(ctx context.Context, name string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	for _, p := range prompts() {
		switch {
		case p.name != name:
		case p.argument != argument.Name:
			return nil, invalidParams(ctx, fmt.Sprintf("prompt %s has no argument %q: there is %s", name, argument.Name, p.argument))
		default:
			return c.names(ctx, p.argument, argument.Value)
		}
	}
	return nil, invalidParams(ctx, unknownPrompt(name))
}

// CompleteResourceArgument completes a process name or a number of lines.
func (c completions) CompleteResourceArgument(ctx context.Context, uri string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	at := slices.IndexFunc(templates(), func(r resource) bool { return r.uri == uri })
	switch {
	case at < 0:
		return nil, invalidParams(ctx, fmt.Sprintf("unknown resource template %q: there are %s", uri, strings.Join(uris(templates()), ", ")))
	case argument.Name == "name":
		return c.names(ctx, "process", argument.Value)
	case argument.Name == "lines" && strings.Contains(uri, "lines"):
		return complete([]string{"20", "100", "1000"}, argument.Value), nil
	default:
		return nil, invalidParams(ctx, fmt.Sprintf("%s has no variable %q", uri, argument.Name))
	}
}

// names completes the name of a process or group.
func (c completions) names(ctx context.Context, kind, value string) (*mcp.Completion, error) {
	names, err := c.s.subjects(ctx, kind)
	if err != nil {
		return nil, err
	}
	return complete(names, value), nil
}

// complete gives the names that begin with value, then those that hold it, upper
// and lower case alike.
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
