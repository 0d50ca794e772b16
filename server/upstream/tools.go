package upstream

import (
	"context"
	"encoding/json"
	"fmt"
)

// Bounds of a list: how many items it has, and how many pages it requests.
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
	definitions, err := c.list(ctx, "tools/list", "tools")
	for _, definition := range definitions {
		tool := Tool{Raw: definition}
		_ = json.Unmarshal(definition, &tool) // an odd field leaves the others readable
		if tool.Name == "" {
			unreadable++
			continue
		}
		all = append(all, tool)
	}
	return all, unreadable, err
}

// An Offer is a resource, a resource template or a prompt of a server, with the fields that its
// kind has, as the server sent them.
type Offer struct {
	URI         string `json:"uri"`
	URITemplate string `json:"uriTemplate"`
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	// Arguments are those of a prompt.
	Arguments []struct {
		Name     string `json:"name"`
		Required bool   `json:"required"`
	} `json:"arguments"`
}

// The kinds of offers, by the last part of the field that lists them.
const (
	Resources = "resources"
	Templates = "resourceTemplates"
	Prompts   = "prompts"
)

// Offers returns the offers of one kind, within the bounds of Tools. It returns none, and sends
// nothing, if the server has not declared that it has such offers.
func (c *Conn) Offers(ctx context.Context, kind string) (all []Offer, err error) {
	capability, method := kind, kind+"/list"
	if kind == Templates {
		capability, method = Resources, "resources/templates/list"
	}
	if !c.Has(capability) {
		return nil, nil
	}
	raws, err := c.list(ctx, method, kind)
	for _, raw := range raws {
		var offer Offer
		_ = json.Unmarshal(raw, &offer) // an odd field leaves the others readable
		all = append(all, offer)
	}
	return all, err
}

// list returns the items in the field key of the pages of a list.
func (c *Conn) list(ctx context.Context, method, key string) (all []json.RawMessage, err error) {
	params := map[string]any{}
	c.relay.listed.Store(true)
	for range maxPages {
		raw, err := c.Call(ctx, method, params, nil)
		if err != nil {
			return nil, err
		}
		var page map[string]json.RawMessage
		var items []json.RawMessage
		var next string
		err = json.Unmarshal(raw, &page)
		if err == nil && page[key] != nil {
			err = json.Unmarshal(page[key], &items)
		}
		if err == nil && page["nextCursor"] != nil {
			err = json.Unmarshal(page["nextCursor"], &next)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the answer of %s to %s: %w", c.name, method, err)
		}
		all = append(all, items...)
		if next == "" || next == params["cursor"] || len(all) >= maxTools {
			break
		}
		params = map[string]any{"cursor": next}
	}
	return all, nil
}
