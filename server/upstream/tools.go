package upstream

import (
	"context"
	"encoding/json"
	"fmt"
)

// Bounds of what Tools lists and of how often it asks for that.
const (
	maxTools = 10_000
	maxPages = 1000
)

// Tool is a tool of a server.
type Tool struct {
	// Name, Title and Description are the server's words.
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	// InputSchema is the JSON schema of its arguments as it came.
	InputSchema json.RawMessage `json:"inputSchema"`
	// Raw is the whole definition as it came.
	Raw json.RawMessage `json:"-"`
}

// Tools lists the tools of the server, at most 1000 pages and about 10000 tools.
// It asks each time, so that a list that has changed is never missed. A page may
// be empty: the list ends with one that names no next. What cannot be read of a
// tool is left empty; unreadable counts those without a name.
func (c *Conn) Tools(ctx context.Context) (all []Tool, unreadable int, err error) {
	params := map[string]any{}
	for range maxPages {
		raw, err := c.Call(ctx, "tools/list", params, nil)
		if err != nil {
			return nil, 0, err
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, 0, fmt.Errorf("cannot read the list of tools of %s: %w", c.name, err)
		}
		for _, definition := range page.Tools {
			tool := Tool{Raw: definition}
			_ = json.Unmarshal(definition, &tool) // it reads what it can
			if tool.Name == "" {
				unreadable++
				continue
			}
			all = append(all, tool)
		}
		if page.NextCursor == "" || page.NextCursor == params["cursor"] || len(all) >= maxTools {
			break
		}
		params = map[string]any{"cursor": page.NextCursor}
	}
	return all, unreadable, nil
}
