package args

import (
	"bytes"
	"encoding/json"
	"maps"
	"sync/atomic"
)

// Given holds the arguments of one call by name, as they were sent: big integers included. A Given is never
// changed.
type Given map[string]json.RawMessage

// Parsed counts the arguments that were parsed, and Decoded those that were decoded. Tests read them.
var Parsed, Decoded atomic.Int64

// Parse parses the arguments of a call, which may be missing.
func Parse(raw json.RawMessage) (g Given, err error) {
	Parsed.Add(1)
	if len(bytes.TrimSpace(raw)) == 0 {
		return g, nil
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		return nil, wrongType("", "an object", raw)
	}
	return g, nil
}

// With returns g with value as the argument name.
func (g Given) With(name string, value any) (Given, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	g = maps.Clone(g)
	g[name] = raw
	return g, nil
}

// Without returns g without the argument name.
func (g Given) Without(name string) Given {
	g = maps.Clone(g)
	delete(g, name)
	return g
}

// Text returns the argument name, or "" if it is not a string.
func (g Given) Text(name string) (text string) {
	_ = json.Unmarshal(g[name], &text)
	return text
}

// Give returns values as the arguments of a call.
func Give(values map[string]any) (Given, error) {
	g := make(Given, len(values))
	for name, value := range values {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		g[name] = raw
	}
	return g, nil
}
