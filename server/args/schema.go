package args

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// The tags of a struct field describe an argument completely:
//
//	json:"timeout_ms,omitempty"   its name; omitempty makes it optional
//	jsonschema:"…"                its description
//	enum:"a|b"                    what is allowed
//	min:"0" max:"9"               the range; checked, but not in the schema, since
//	                              every session pays for each of its bytes
//	natural:"alias"               "name" is an alias of it
//	natural:"lines"               "lines", as other tools call it, is an alias of it
//	natural:"text"                a number, true or false is taken as its text, as it is in
//	                              arrays and objects of strings
//	omitted:"all is removed"      what a destructive tool does without this optional
//	                              argument, if that destroys more; an empty value
//	                              is then refused
//	empty:"kept"                  "" is a value of this argument, not "not given"
//	schema:"internal"             not an argument
//	schema:"extra"                a key of a result that the schema leaves out
//	schema:"brief"                accepted, but not in the schema: the description of
//	                              the tool, or of the object around it, names it; on
//	                              an embedded struct it holds for each of the fields
//
// The schemas are generated from the tags, and Decode checks against them.

// InputSchema returns the JSON schema of the argument struct t. It does not refuse
// further keys: Decode does, with an error that names the nearest argument.
func InputSchema(t reflect.Type) (json.RawMessage, error) {
	return json.Marshal(schemaOf(t))
}

// OutputSchema returns the JSON schema of the result struct t, kept short (the
// whole of tools/list stays under 32 KiB): no descriptions, inner objects without
// their keys, further keys allowed. It includes the optional events of every
// answer, and the notice for events that quote output.
func OutputSchema(t reflect.Type) (json.RawMessage, error) {
	s := schemaOf(t)
	for _, p := range s.Properties {
		shorten(p)
	}
	addProperty(s, "events", schemaOf(reflect.TypeFor[[]string]()))
	if s.Properties["notice"] == nil {
		addProperty(s, "notice", schemaOf(reflect.TypeFor[string]()))
	}
	return json.Marshal(s)
}

// shorten removes the description of s and, from objects, their keys.
func shorten(s *jsonschema.Schema) {
	s.Description = ""
	switch s.Type {
	case "object":
		*s = jsonschema.Schema{Type: s.Type}
	case "array":
		shorten(s.Items)
	}
}

// schemaOf returns the schema of t. It has no type unions with null for slices,
// maps and pointers: Gemini and other clients refuse them.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	switch t = Indirect(t); t.Kind() {
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &jsonschema.Schema{Type: "integer"}
	case reflect.Uint64:
		return &jsonschema.Schema{Type: "integer", Minimum: new(0.0)}
	case reflect.Float64:
		return &jsonschema.Schema{Type: "number"}
	case reflect.String:
		if t == reflect.TypeFor[IntOrText]() {
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
		return structSchema(t)
	default:
		panic("no schema for type " + t.String()) // found by the first test that lists the tools
	}
}

// structSchema returns the schema of the struct t, with the fields that the tags
// do not hide.
func structSchema(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object"}
	for _, f := range Fields(t) {
		if f.brief || f.extra {
			continue
		}
		p := schemaOf(f.Type)
		p.Description = f.description
		for _, value := range f.enum {
			p.Enum = append(p.Enum, value)
		}
		addProperty(s, f.Name, p)
		if f.required {
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

// A Field is what the tags of one struct field describe.
type Field struct {
	Name               string
	Type               reflect.Type
	description        string
	required           bool
	brief              bool
	extra              bool
	alias, lines, text bool
	enum               []string
	min, max           *int64
	omitted            string
	keepsEmpty         bool
	index              []int
}

// typeFields holds what Fields has returned, by type. There are as many types as kinds of
// arguments.
var typeFields sync.Map

// Fields returns the JSON fields of the struct t, including those of embedded
// structs. The caller must not change them.
func Fields(t reflect.Type) []Field {
	known, ok := typeFields.Load(t)
	if !ok {
		known, _ = typeFields.LoadOrStore(t, fieldsOf(t))
	}
	return known.([]Field)
}

func fieldsOf(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		sf := t.Field(i)
		hint := sf.Tag.Get("schema")
		if sf.Anonymous {
			for _, f := range Fields(sf.Type) {
				f.index = append([]int{i}, f.index...)
				f.brief = f.brief || hint == "brief"
				fields = append(fields, f)
			}
			continue
		}
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "" || name == "-" || hint == "internal" || !sf.IsExported() {
			continue
		}
		f := Field{
			Name: name, Type: sf.Type, description: sf.Tag.Get("jsonschema"), required: !strings.Contains(options, "omit"),
			brief: hint == "brief", extra: hint == "extra", alias: sf.Tag.Get("natural") == "alias", lines: sf.Tag.Get("natural") == "lines", text: sf.Tag.Get("natural") == "text", omitted: sf.Tag.Get("omitted"), keepsEmpty: sf.Tag.Get("empty") == "kept", min: parseNumber(sf.Tag.Get("min")), max: parseNumber(sf.Tag.Get("max")), index: sf.Index,
		}
		if enum := sf.Tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, "|")
		}
		fields = append(fields, f)
	}
	return fields
}

// parseNumber parses the number in a min or max tag; nil if there is none.
func parseNumber(s string) *int64 {
	if s == "" {
		return nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("bad number in a struct tag: " + s) // found by the first test that lists the tools
	}
	return &v
}

// Indirect returns the type that t points to, or t if it is not a pointer.
func Indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
