package server

import (
	"encoding/json"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"pmcp/server/args"
)

// The schemas of the tools are generated from their structs by the test that compares them
// with the golden files. A session reads them from these.

// inputSchema returns the JSON schema of the argument struct t. It does not refuse
// further keys: Decode does, with an error that names the nearest argument.
func inputSchema(t reflect.Type) (json.RawMessage, error) {
	return json.Marshal(schemaOf(t))
}

// outputSchema returns the JSON schema of the result struct t, kept short (the
// whole of tools/list stays under 32 KiB): no descriptions, inner objects without
// their keys, further keys allowed. It includes the optional events of every
// answer, and the notice for events that quote output.
func outputSchema(t reflect.Type) (json.RawMessage, error) {
	s := schemaOf(t)
	for _, p := range s.Properties {
		shortenSchema(p)
	}
	addProperty(s, "events", schemaOf(reflect.TypeFor[[]string]()))
	if s.Properties["notice"] == nil {
		addProperty(s, "notice", schemaOf(reflect.TypeFor[string]()))
	}
	return json.Marshal(s)
}

// shortenSchema removes the description of s and, from objects, the keys.
func shortenSchema(s *jsonschema.Schema) {
	s.Description = ""
	switch s.Type {
	case "object":
		*s = jsonschema.Schema{Type: s.Type}
	case "array":
		shortenSchema(s.Items)
	}
}

// schemaOf returns the schema of t. It has no type unions with null for slices,
// maps and pointers: Gemini and other clients refuse them.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	switch t = args.Indirect(t); t.Kind() {
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &jsonschema.Schema{Type: "integer"}
	case reflect.Uint64:
		return &jsonschema.Schema{Type: "integer", Minimum: new(0.0)}
	case reflect.Float64:
		return &jsonschema.Schema{Type: "number"}
	case reflect.String:
		if t == reflect.TypeFor[args.IntOrText]() {
			return &jsonschema.Schema{Type: "integer"}
		}
		return &jsonschema.Schema{Type: "string"}
	case reflect.Interface:
		return &jsonschema.Schema{}
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() {
			return &jsonschema.Schema{}
		}
		return &jsonschema.Schema{Type: "array", Items: schemaOf(t.Elem())}
	case reflect.Map:
		return &jsonschema.Schema{Type: "object"} // what the values may be is Decode's to say: env takes more than strings
	case reflect.Struct:
		if reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ TakeBool(given bool) }]()) {
			return &jsonschema.Schema{Type: "boolean"}
		}
		return structSchema(t)
	default:
		panic("no schema for type " + t.String()) // found by the first test that lists the tools
	}
}

// structSchema returns the schema of the struct t, with the fields that the tags
// do not hide.
func structSchema(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object"}
	for _, f := range args.Fields(t) {
		if !f.InSchema() {
			continue
		}
		p := schemaOf(f.Type)
		if f.Flat {
			shortenSchema(p)
		} else {
			for _, value := range f.Enum {
				p.Enum = append(p.Enum, value)
			}
		}
		p.Description = f.Description
		addProperty(s, f.Name, p)
		if f.Required {
			s.Required = append(s.Required, f.Name)
		}
	}
	return s
}

// addProperty adds a property after those that s has.
func addProperty(s *jsonschema.Schema, name string, p *jsonschema.Schema) {
	if s.Properties == nil {
		s.Properties = make(map[string]*jsonschema.Schema)
	}
	s.Properties[name] = p
	s.PropertyOrder = append(s.PropertyOrder, name)
}
