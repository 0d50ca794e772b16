package args

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
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
//	natural:"list"                a text stands for an array with it
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
//	schema:"flat"                 in the schema without its keys or allowed values: its
//	                              description names them
//
// Decode checks against the tags. A test of package server generates the schemas from them.

// A Field is what the tags of one struct field describe.
type Field struct {
	Name               string
	Type               reflect.Type
	Description        string // "" = none
	Required           bool
	brief, Flat        bool
	extra              bool
	alias, lines, text bool
	list               bool
	Enum               []string // what is allowed; nil: any text
	min, max           *int64
	omitted            string
	keepsEmpty         bool
	index              []int
}

// InSchema reports whether the schema of the tool has the field.
func (f *Field) InSchema() bool { return !f.brief && !f.extra }

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
			Name: name, Type: sf.Type, Description: sf.Tag.Get("jsonschema"), Required: !strings.Contains(options, "omit"),
			brief: hint == "brief", Flat: hint == "flat", extra: hint == "extra", alias: sf.Tag.Get("natural") == "alias", lines: sf.Tag.Get("natural") == "lines", text: sf.Tag.Get("natural") == "text", list: sf.Tag.Get("natural") == "list", omitted: sf.Tag.Get("omitted"), keepsEmpty: sf.Tag.Get("empty") == "kept", min: parseNumber(sf.Tag.Get("min")), max: parseNumber(sf.Tag.Get("max")), index: sf.Index,
		}
		if enum := sf.Tag.Get("enum"); enum != "" {
			f.Enum = strings.Split(enum, "|")
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
