package upstream

import (
	"context"
	"encoding/json"
	"fmt"
)

// maxTools bounds what Tools lists.
const maxTools = 10_000

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

// Tools lists the tools of the server, all pages, at most 10000. It asks each
// time, so that a list that has changed is never missed.
func (c *Conn) Tools(ctx context.Context) ([]Tool, error) {
	var all []Tool
	params := map[string]any{}
	for {
		raw, err := c.Call(ctx, "tools/list", params, nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("cannot read the list of tools of %s: %w", c.name, err)
		}
		for _, definition := range page.Tools {
			tool := Tool{Raw: definition}
			if err := json.Unmarshal(definition, &tool); err != nil {
				return nil, fmt.Errorf("cannot read a tool of %s: %w", c.name, err)
			}
			all = append(all, tool)
		}
		if page.NextCursor == "" || page.NextCursor == params["cursor"] || len(page.Tools) == 0 || len(all) >= maxTools {
			return all, nil
		}
		params = map[string]any{"cursor": page.NextCursor}
	}
}
