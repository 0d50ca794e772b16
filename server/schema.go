package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Argument structs say everything about an argument in the tags of its field:
//
//	json:"timeout_ms,omitempty"   its name; omitempty makes it optional
//	jsonschema:"…"                its description
//	enum:"a|b"                    what is allowed
//	min:"0" max:"9"               the same; checked, but not in the schema, whose
//	                              every byte each session pays for
//	schema:"internal"             a field that is no argument at all
//	schema:"extra"                a key of results that their schema leaves out
//	schema:"brief"                on an embedded struct: its fields are taken,
//	                              but the schema only says that more are
//
// The schema is generated from them, and decodeArguments checks by them.

// inputSchema is the JSON schema of the argument struct t.
func inputSchema(t reflect.Type) (json.RawMessage, error) {
	s, err := schemaOf(t)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// outputSchema is the JSON schema of the result struct t, kept short (the whole
// of tools/list stays under 32 KiB): no descriptions, inner objects without
// their keys, further keys allowed. It declares the optional events of every
// answer.
func outputSchema(t reflect.Type) (json.RawMessage, error) {
	s, err := schemaOf(t)
	if err != nil {
		return nil, err
	}
	s.Properties["events"] = &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}}
	s.PropertyOrder = append(s.PropertyOrder, "events")
	for _, p := range s.Properties {
		walkSchema(p, func(s *jsonschema.Schema) {
			s.Description = ""
			if s.Type == "object" {
				s.Properties, s.PropertyOrder, s.Required, s.AdditionalProperties = nil, nil, nil, nil
			}
		})
	}
	s.AdditionalProperties = nil
	return json.Marshal(s)
}

// schemaOf reflects t and takes out what clients choke on: type unions with
// null for slices, maps and pointers (Gemini and others refuse them).
func schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot derive a schema from %s: %w", t, err)
	}
	walkSchema(s, collapseNull)
	for _, p := range s.Properties { // one refusal of further keys is enough; the server checks all
		walkSchema(p, func(p *jsonschema.Schema) {
			if p.Properties != nil {
				p.AdditionalProperties = nil
			}
		})
	}
	return s, applyTags(s, t)
}

// walkSchema calls visit for s and every schema inside it.
func walkSchema(s *jsonschema.Schema, visit func(*jsonschema.Schema)) {
	if s == nil {
		return
	}
	visit(s)
	for _, p := range s.Properties {
		walkSchema(p, visit)
	}
	walkSchema(s.Items, visit)
	walkSchema(s.AdditionalProperties, visit)
}

func collapseNull(s *jsonschema.Schema) {
	if len(s.Types) == 0 {
		return
	}
	for _, t := range s.Types {
		if t != "null" {
			s.Type = t
		}
	}
	s.Types = nil
}

// applyTags adds what is allowed from the fields of t, and takes out what is not
// to be shown.
func applyTags(s *jsonschema.Schema, t reflect.Type) error {
	t = indirect(t)
	switch t.Kind() {
	case reflect.Slice:
		return applyTags(s.Items, t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	shown := make(map[string]bool)
	for _, f := range fieldsOf(t) {
		p := s.Properties[f.name]
		if p == nil {
			return fmt.Errorf("field %s of %s has no schema", f.name, t)
		}
		if f.brief {
			s.AdditionalProperties = &jsonschema.Schema{}
		}
		if f.brief || f.extra {
			continue
		}
		shown[f.name] = true
		for _, value := range f.enum {
			p.Enum = append(p.Enum, value)
		}
		if err := applyTags(p, f.typ); err != nil {
			return err
		}
	}
	maps.DeleteFunc(s.Properties, func(name string, _ *jsonschema.Schema) bool { return !shown[name] })
	s.PropertyOrder = slices.DeleteFunc(s.PropertyOrder, func(name string) bool { return !shown[name] })
	return nil
}

// field is what the tags of one struct field say.
type field struct {
	name     string
	required bool
	brief    bool
	extra    bool
	enum     []string
	min, max *float64
	typ      reflect.Type
	index    []int
}

// fieldsOf lists the JSON fields of the struct t, those of embedded structs
// among them.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		sf := t.Field(i)
		hint := sf.Tag.Get("schema")
		if sf.Anonymous {
			for _, f := range fieldsOf(sf.Type) {
				f.index = append([]int{i}, f.index...)
				f.brief = f.brief || hint == "brief"
				fields = append(fields, f)
			}
			continue
		}
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "" || name == "-" || hint == "internal" {
			continue
		}
		f := field{name: name, extra: hint == "extra", required: !strings.Contains(options, "omit"), typ: sf.Type, index: sf.Index}
		if enum := sf.Tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, "|")
		}
		f.min, f.max = number(sf.Tag.Get("min")), number(sf.Tag.Get("max"))
		fields = append(fields, f)
	}
	return fields
}

func number(s string) *float64 {
	if s == "" {
		return nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic("bad number in a struct tag: " + s) // found by the first test that lists the tools
	}
	return &v
}

func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
