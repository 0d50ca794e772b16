package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
)

// decodeArguments fills the struct that into points to from the arguments of a
// call, by the tags that schema.go describes. Names are matched exactly. null,
// "", [] and {} mean that an optional argument was not given. Its errors name
// the argument, what is wrong with it, and what is allowed; they change nothing.
func decodeArguments(raw json.RawMessage, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	return decodeObject("", raw, reflect.ValueOf(into).Elem())
}

// decodeObject decodes one object; path is "" for the arguments themselves and
// ends in a dot inside them.
func decodeObject(path string, raw json.RawMessage, v reflect.Value) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return wrongType(strings.TrimSuffix(path, "."), "an object", raw)
	}
	fields := fieldsOf(v.Type())
	byName := make(map[string]field, len(fields))
	for _, f := range fields {
		byName[f.name] = f
	}
	if err := alias(given, byName); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		f, known := byName[key]
		if !known {
			return unknownArgument(path, key, fields)
		}
		if isNothing(given[key]) {
			if f.required {
				continue // reported as missing below
			}
			delete(given, key)
			continue
		}
		if err := decodeValue(path+key, f, given[key], v.FieldByIndex(f.index)); err != nil {
			return err
		}
	}
	var missing []string
	for _, f := range fields {
		if raw, ok := given[f.name]; f.required && (!ok || isNothing(raw)) {
			missing = append(missing, path+f.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing argument: %s", strings.Join(missing, ", "))
	}
	return nil
}

// alias lets "name" stand for "process" where a process is addressed.
func alias(given map[string]json.RawMessage, fields map[string]field) error {
	_, hasProcess := fields["process"]
	_, hasName := fields["name"]
	name, ok := given["name"]
	if !hasProcess || hasName || !ok {
		return nil
	}
	if other, both := given["process"]; both && !isNothing(other) && !isNothing(name) && !bytes.Equal(other, name) {
		return fmt.Errorf("argument name: it stands for process here, and process says something else; give one of them")
	}
	delete(given, "name")
	if !isNothing(name) {
		given["process"] = name
	}
	return nil
}

// isNothing says whether raw is one of the ways to write "not given".
func isNothing(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "null", `""`:
		return true
	}
	compact := strings.Join(strings.Fields(string(raw)), "")
	return compact == "[]" || compact == "{}"
}

func decodeValue(path string, f field, raw json.RawMessage, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		elem := reflect.New(v.Type().Elem())
		if err := decodeValue(path, f, raw, elem.Elem()); err != nil {
			return err
		}
		v.Set(elem)
		return nil
	case reflect.Struct:
		return decodeObject(path+".", raw, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			return decodeObjects(path, raw, v)
		}
		return decodeStrings(path, raw, v)
	case reflect.Map:
		return decodeScalar(path, "an object", raw, v)
	case reflect.Bool:
		return decodeScalar(path, "true or false", raw, v)
	case reflect.String:
		return decodeString(path, f, raw, v)
	case reflect.Int, reflect.Int64:
		return decodeInt(path, f, raw, v)
	default:
		panic("no rule to decode an argument of type " + v.Type().String()) // found by the first test that calls the tool
	}
}

func decodeObjects(path string, raw json.RawMessage, v reflect.Value) error {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return wrongType(path, "an array of objects", raw)
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		if err := decodeObject(fmt.Sprintf("%s[%d].", path, i), item, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// decodeStrings takes no null for a string, which encoding/json would skip.
func decodeStrings(path string, raw json.RawMessage, v reflect.Value) error {
	const want = "an array of strings"
	var items []*string
	if json.Unmarshal(raw, &items) == nil && slices.Contains(items, nil) {
		return wrongType(path, want, raw)
	}
	v.SetZero() // json would write into the array of the definition that is decoded over
	return decodeScalar(path, want, raw, v)
}

func decodeScalar(path, want string, raw json.RawMessage, v reflect.Value) error {
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		if v.Kind() == reflect.Map && v.Type().Elem().Kind() != reflect.Interface {
			want += " with string values"
		}
		return wrongType(path, want, raw)
	}
	return nil
}

func decodeString(path string, f field, raw json.RawMessage, v reflect.Value) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return wrongType(path, allowed(f, "a string"), raw)
	}
	if len(f.enum) > 0 && !slices.Contains(f.enum, s) {
		return wrongType(path, allowed(f, ""), raw)
	}
	v.SetString(s)
	return nil
}

func decodeInt(path string, f field, raw json.RawMessage, v reflect.Value) error {
	var n json.Number
	if err := json.Unmarshal(raw, &n); err != nil || raw[0] == '"' {
		return wrongType(path, allowed(f, "an integer"), raw)
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil { // 3.0 and 1e3 are integers to JSON
		x, floatErr := n.Float64()
		i = int64(x)
		if floatErr != nil || float64(i) != x {
			return wrongType(path, allowed(f, "an integer"), raw)
		}
	}
	if f.min != nil && float64(i) < *f.min || f.max != nil && float64(i) > *f.max {
		return wrongType(path, allowed(f, "an integer"), raw)
	}
	v.SetInt(i)
	return nil
}

// allowed says what a field takes.
func allowed(f field, kind string) string {
	switch {
	case len(f.enum) > 0:
		return "one of " + strings.Join(f.enum, ", ")
	case f.min != nil && f.max != nil:
		return fmt.Sprintf("%s from %s to %s", kind, plain(*f.min), plain(*f.max))
	case f.min != nil:
		return fmt.Sprintf("%s of at least %s", kind, plain(*f.min))
	default:
		return kind
	}
}

func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// wrongType says that an argument is not what it must be.
func wrongType(path, want string, raw json.RawMessage) error {
	if path == "" {
		return fmt.Errorf("arguments: want %s, got %s", want, quoteValue(raw))
	}
	return fmt.Errorf("argument %s: want %s, got %s", path, want, quoteValue(raw))
}

// quoteValue is at most 80 bytes of a value.
func quoteValue(raw json.RawMessage) string {
	got := strings.ToValidUTF8(string(bytes.TrimSpace(raw)), "")
	if len(got) > 80 {
		got = strings.ToValidUTF8(got[:80], "") + "…"
	}
	return got
}

// unknownArgument names the nearest argument that there is.
func unknownArgument(path, key string, fields []field) error {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if len(names) == 0 {
		return fmt.Errorf("unknown argument %.200s: none are taken", path+key)
	}
	text := fmt.Sprintf("unknown argument %.200s", path+key)
	best := otherName(key, names)
	if best == "" {
		best = nearest(key, names)
	}
	if best != "" {
		return fmt.Errorf("%s: did you mean %s? (there are: %s)", text, path+best, strings.Join(names, ", "))
	}
	return fmt.Errorf("%s: there are %s", text, strings.Join(names, ", "))
}

// otherNames are what arguments are called elsewhere, and in other tools here,
// which no likeness would find, or find a wrong one for.
var otherNames = map[string]string{
	"cmd": "command", "cursor": "after", "dir": "cwd", "directory": "cwd", "limit": "lines", "lines": "limit",
	"name": "group", "pattern": "query", "process": "name", "query": "pattern", "workdir": "cwd",
}

// otherName returns which of names goes by the name that was written elsewhere;
// "" if none does.
func otherName(written string, names []string) string {
	if name := otherNames[strings.ToLower(written)]; slices.Contains(names, name) {
		return name
	}
	return ""
}

// maxLikened is the longest text for which a like name is looked for: no name is
// that long, and likening takes time in proportion to the length.
const maxLikened = 200

// nearest returns the name that is most like what was written, or "" if none
// is like it.
func nearest(written string, names []string) string {
	if len(written) > maxLikened {
		return ""
	}
	best, least := "", max(2, len(written)/2)+1
	for _, name := range names {
		d := levenshtein.ComputeDistance(strings.ToLower(written), strings.ToLower(name))
		if strings.HasPrefix(name, written) || strings.HasPrefix(written, name) {
			d = 1
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}
