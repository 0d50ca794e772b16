package upstream

import (
	"context"
	"encoding/json"
	"fmt"
)

// Bounds of Tools: how many it lists, and how many pages it requests.
const (
	maxTools = 10_000
	maxPages = 1000
)

// Tool is a tool of a server.
type Tool struct {
	// Name, Title and Description are as the server sent them.
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	// InputSchema is the JSON schema of its arguments, as the server sent it.
	InputSchema json.RawMessage `json:"inputSchema"`
	// Raw is the whole definition, as the server sent it.
	Raw json.RawMessage `json:"-"`
}

// Tools returns the tools of the server, at most 1000 pages and about 10000
// tools. It requests the list each time, so that it never misses a change. A page
// may be empty: the list ends with the page that has no next cursor. A field of a
// tool that cannot be read is left empty; unreadable counts the tools without a
// name.
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
			_ = json.Unmarshal(definition, &tool) // an odd field leaves the others readable
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
