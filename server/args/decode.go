package args

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"pmcp/server/jsonrpc"

	"github.com/agnivade/levenshtein"
)

// Decode fills the struct that into points to from the arguments g of a call,
// following the tags that schema.go describes. Names are matched exactly. null, "",
// [] and {} mean that an optional argument was not given; they are refused where
// omitting the argument destroys more than giving it. A nullTaker gets those that were null. An error names the argument,
// what is wrong with it and what is allowed.
func (g Given) Decode(into any) error {
	Decoded.Add(1)
	return decodeFields("", maps.Clone(g), reflect.ValueOf(into).Elem())
}

// decodeObject decodes an argument that is an object into v. path is the prefix of its arguments' names in errors, such
// as "health.".
func decodeObject(path string, raw json.RawMessage, v reflect.Value) error {
	var given Given
	if err := json.Unmarshal(raw, &given); err != nil {
		want, fields := "an object", Fields(v.Type())
		const most = 12 // those of health; a member of a group has too many for an error
		if len(fields) > 0 && len(fields) <= most {
			want += " with " + strings.Join(namesOf(fields), ", ")
		}
		return wrongType(strings.TrimSuffix(path, "."), want, raw)
	}
	return decodeFields(path, given, v)
}

// decodeFields decodes given, which it may change, into the fields of v.
func decodeFields(path string, given Given, v reflect.Value) error {
	fields := Fields(v.Type())
	byName := make(map[string]Field, len(fields))
	for _, f := range fields {
		byName[f.Name] = f
	}
	written := make(map[string]string) // the alias in the call, by argument
	if err := applyAlias(given, written, "name", aliased(given, fields)); err != nil {
		return err
	}
	if err := applyAlias(given, written, "lines", linesAliased(fields)); err != nil {
		return err
	}
	var nulls []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		f, known := byName[key]
		if !known {
			return unknownArgument(path, key, fields)
		}
		if IsEmpty(given[key]) && !(f.keepsEmpty && string(bytes.TrimSpace(given[key])) == `""`) {
			if f.Required {
				continue // reported as missing below
			}
			if f.omitted != "" {
				return fmt.Errorf("argument %s: it is empty, and without it %s; give a value, or leave it out if you mean that", path+key, f.omitted)
			}
			if string(given[key]) == "null" {
				nulls = append(nulls, key)
			}
			delete(given, key)
			continue
		}
		if err := decodeValue(path+cmp.Or(written[key], key), f, given[key], v.FieldByIndex(f.index)); err != nil {
			return err
		}
	}
	var missing []string
	for _, f := range fields {
		if raw, ok := given[f.Name]; f.Required && (!ok || IsEmpty(raw)) {
			missing = append(missing, path+f.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing argument: %s", strings.Join(missing, ", "))
	}
	if into, ok := v.Addr().Interface().(nullTaker); ok {
		into.TakeNulls(nulls)
	}
	return nil
}

// A nullTaker is an argument struct to which an optional argument that is null means
// something else than one that is not given.
type nullTaker interface {
	// TakeNulls is called with the sorted names of these arguments.
	TakeNulls(names []string)
}

// A boolTaker is an argument struct for which true or false may stand. The schema has it as a boolean.
type boolTaker interface{ TakeBool(given bool) }

// decodeBoolOrObject decodes raw into the struct v, which is a boolTaker.
func decodeBoolOrObject(path string, raw json.RawMessage, v reflect.Value, into boolTaker) error {
	switch text := strings.Trim(string(bytes.TrimSpace(raw)), `"`); {
	case text == "true" || text == "false":
		into.TakeBool(text == "true")
		return nil
	case !strings.HasPrefix(text, "{"):
		return wrongType(path, "true, false or an object with "+strings.Join(namesOf(Fields(v.Type())), ", "), raw)
	}
	return decodeObject(path+".", raw, v)
}

// applyAlias treats the argument alias as target, unless target is "". It sets
// written[target] if the value is that of alias.
func applyAlias(given Given, written map[string]string, alias, target string) error {
	value, ok := given[alias]
	if !ok || target == "" {
		return nil
	}
	if other, both := given[target]; both && !IsEmpty(other) && !IsEmpty(value) && !bytes.Equal(other, value) {
		return fmt.Errorf("argument %s: it is an alias of %s here, and the two differ; give one of them", alias, target)
	}
	delete(given, alias)
	if _, both := given[target]; !both || !IsEmpty(value) {
		given[target], written[target] = value, alias
	}
	return nil
}

// linesAliased returns the argument that "lines" is an alias of, or "" if there is none.
func linesAliased(fields []Field) string {
	for _, f := range fields {
		if f.lines {
			return f.Name
		}
	}
	return ""
}

// aliased returns the argument that "name" is an alias of, or "" if there is none: in
// tools that address a process "process". If a tool takes a process and a group, it is the
// one that was not given.
func aliased(given Given, fields []Field) string {
	has := func(name string) bool { return len(given[name]) > 0 && !IsEmpty(given[name]) }
	process, group := "", ""
	for _, f := range fields {
		switch {
		case f.Name == "name":
			return ""
		case f.Name == "process":
			process = f.Name
		case f.alias:
			group = f.Name
		}
	}
	if group != "" && (process == "" || has(process) && !has(group)) {
		return group
	}
	return process
}

// IsEmpty reports whether raw is one of the ways to write "not given": null, "", []
// or {}.
func IsEmpty(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "null", `""`:
		return true
	}
	compact := strings.Join(strings.Fields(string(raw)), "")
	return compact == "[]" || compact == "{}"
}

// decodeValue decodes raw into v by the kind of v.
func decodeValue(path string, f Field, raw json.RawMessage, v reflect.Value) error {
	ok := false
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decodeValue(path, f, raw, v.Elem())
	case reflect.Struct:
		if into, is := v.Addr().Interface().(boolTaker); is {
			return decodeBoolOrObject(path, raw, v, into)
		}
		return decodeObject(path+".", raw, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			return decodeObjects(path, raw, v)
		}
		if f.list && strings.HasPrefix(string(bytes.TrimSpace(raw)), `"`) {
			raw = slices.Concat([]byte("["), raw, []byte("]"))
		}
		raw = quoteElements(raw)
		var items []*string // null is refused as an element, which encoding/json would skip
		ok = json.Unmarshal(raw, &items) == nil && !slices.Contains(items, nil) && json.Unmarshal(raw, v.Addr().Interface()) == nil
	case reflect.Map:
		switch v.Type().Elem().Kind() {
		case reflect.Pointer:
			raw = quoteElements(raw)
		case reflect.Int:
			raw = quotedNumber().ReplaceAll(raw, []byte(":$1"))
		}
		ok = json.Unmarshal(raw, v.Addr().Interface()) == nil
	case reflect.Bool, reflect.String:
		if number, is := v.Addr().Interface().(*IntOrText); is {
			ok = json.Unmarshal(raw, number) == nil
			i, isInt := number.Int()
			ok = ok && (!isInt || f.inRange(int64(i)))
			break
		}
		if f.text {
			raw = quoteScalar(raw)
		}
		if text := string(raw); v.Kind() == reflect.Bool && (text == `"true"` || text == `"false"`) {
			raw = json.RawMessage(strings.Trim(text, `"`))
		}
		if f.Name == "process" {
			raw = joinNames(raw)
		}
		ok = json.Unmarshal(raw, v.Addr().Interface()) == nil
		if ok && len(f.Enum) > 0 {
			v.SetString(f.natural(v.String()))
			ok = slices.Contains(f.Enum, v.String())
		}
	case reflect.Int, reflect.Int64:
		var i int64
		i, ok = Int(raw)
		ok = ok && f.inRange(i)
		v.SetInt(i)
	default:
		panic("no rule to decode an argument of type " + v.Type().String()) // found by the first test that calls the tool
	}
	if !ok {
		return wrongType(path, f.allowed(), raw)
	}
	return nil
}

// valueSynonyms are other words for values that an enum allows.
var valueSynonyms = map[string]string{"exited": "exit", "stdout": "out", "stderr": "err", "warning": "warn"}

// natural returns the value that the enum allows for which text, in any case, stands. It
// returns text if there is none.
func (f *Field) natural(text string) string {
	word := strings.ToLower(text)
	for _, value := range []string{word, valueSynonyms[word]} {
		if slices.Contains(f.Enum, value) {
			return value
		}
	}
	return text
}

// quotedNumber matches a value in an object that is a number in quotes.
var quotedNumber = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`:\s*"(\d{1,9})"`) })

// quoteScalar returns a number, true or false as a JSON string of the same text, and
// anything else as it is.
func quoteScalar(raw json.RawMessage) json.RawMessage {
	text := strings.TrimSpace(string(raw))
	if text == "" || text == "null" || strings.ContainsRune("\"[{", rune(text[0])) {
		return raw
	}
	return json.RawMessage(`"` + text + `"`)
}

// quoteElements returns an array, or an object, with quoteScalar applied to its elements.
func quoteElements(raw json.RawMessage) json.RawMessage {
	var list []json.RawMessage
	var object map[string]json.RawMessage
	var quoted []byte
	switch {
	case json.Unmarshal(raw, &list) == nil:
		for i := range list {
			list[i] = quoteScalar(list[i])
		}
		quoted, _ = json.Marshal(list) // cannot fail: the elements were just parsed
	case json.Unmarshal(raw, &object) == nil:
		for key := range object {
			object[key] = quoteScalar(object[key])
		}
		quoted, _ = json.Marshal(object)
	default:
		return raw
	}
	return quoted
}

// joinNames returns an array of names as one string with commas, and anything else as it
// is. An empty name does not count: without a name, a tool may address all processes.
func joinNames(raw json.RawMessage) json.RawMessage {
	var names []string
	if json.Unmarshal(raw, &names) != nil || slices.Contains(names, "") {
		return raw
	}
	joined, _ := json.Marshal(strings.Join(names, ",")) // cannot fail for a string
	return joined
}

// decodeObjects decodes an array of objects. A text stands for the object in which it is
// the value of the only required argument, and alone for an array with it: depends_on may
// be ["db"] or "db".
func decodeObjects(path string, raw json.RawMessage, v reflect.Value) error {
	var items []json.RawMessage
	var only string
	var required []string
	for _, f := range Fields(v.Type().Elem()) {
		if f.Required {
			required = append(required, f.Name)
		}
	}
	if json.Unmarshal(raw, &only) == nil && len(required) == 1 && only != "" && !strings.ContainsRune("[{", rune(only[0])) { // some clients send an array as a string
		items = []json.RawMessage{raw}
	} else if err := json.Unmarshal(raw, &items); err != nil {
		return wrongType(path, "an array of objects", raw)
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		var text string
		if len(required) == 1 && json.Unmarshal(item, &text) == nil && text != "" {
			item, _ = json.Marshal(map[string]string{required[0]: text}) // cannot fail for strings
		}
		if err := decodeObject(fmt.Sprintf("%s[%d].", path, i), item, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// Int returns the integer that an argument is, in any notation that JSON has for it, or as
// a text in decimal.
func Int(raw json.RawMessage) (i int64, ok bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		i, err := strconv.ParseInt(text, 10, 64)
		return i, err == nil && strconv.FormatInt(i, 10) == text
	}
	var n json.Number
	if err := json.Unmarshal(raw, &n); err != nil {
		return 0, false
	}
	if i, err := n.Int64(); err == nil {
		return i, true
	}
	x, err := n.Float64() // 3.0 and 1e3 are integers to JSON
	return int64(x), err == nil && float64(int64(x)) == x
}

func (f *Field) inRange(i int64) bool {
	return (f.min == nil || i >= *f.min) && (f.max == nil || i <= *f.max)
}

// allowed describes the values that f accepts.
func (f *Field) allowed() string {
	t := Indirect(f.Type)
	switch kind := t.Kind(); {
	case len(f.Enum) > 0:
		return "one of " + strings.Join(f.Enum, ", ")
	case kind == reflect.String && t != reflect.TypeFor[IntOrText]():
		return "a string"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.Slice:
		return "an array of strings"
	case kind == reflect.Map && t.Elem().Kind() == reflect.Pointer:
		return "an object with string values"
	case kind == reflect.Map && t.Elem().Kind() == reflect.Int:
		return `an object with numbers, as {"PORT": 3000}`
	case kind == reflect.Map:
		return "an object"
	case f.min != nil && f.max != nil:
		return fmt.Sprintf("an integer from %d to %d", *f.min, *f.max)
	case f.min != nil:
		return fmt.Sprintf("an integer of at least %d", *f.min)
	default:
		return "an integer"
	}
}

func wrongType(path, want string, raw json.RawMessage) error {
	if path == "" {
		return fmt.Errorf("arguments: want %s, got %s", want, jsonrpc.Quote(raw))
	}
	return fmt.Errorf("argument %s: want %s, got %s", path, want, jsonrpc.Quote(raw))
}

func namesOf(fields []Field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// plainName matches a short name that needs no quotes in an error.
var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]{1,100}$`) })

// unknownArgument returns the error for an argument that does not exist; it
// suggests the nearest one that does.
func unknownArgument(path, key string, fields []Field) error {
	names := namesOf(fields)
	text := "unknown argument " + path + key
	if !plainName().MatchString(key) {
		text = fmt.Sprintf("unknown argument %q", path+key)
	}
	if key == "keep" {
		return fmt.Errorf("%s: start_process has it, with if_running: \"restart\" for a restart", text)
	}
	if len(names) == 0 {
		return fmt.Errorf("%s: there are none", text)
	}
	best := synonym(key, names)
	if best == "" {
		best = Nearest(key, names)
	}
	if best != "" {
		return fmt.Errorf("%s: did you mean %s? (there are: %s)", text, path+best, strings.Join(names, ", "))
	}
	return fmt.Errorf("%s: there are %s", text, strings.Join(names, ", "))
}

// synonyms maps what other tools, here and elsewhere, call an argument to its
// name here. The edit distance would find none of these, or a wrong one.
var synonyms = map[string]string{
	"cmd": "command", "cursor": "after", "dir": "cwd", "directory": "cwd", "limit": "lines", "lines": "limit",
	"name": "group", "pattern": "query", "process": "name", "query": "pattern", "workdir": "cwd",
}

// synonym returns the name in names for which other tools use the name written, or
// "" if there is none.
func synonym(written string, names []string) string {
	if name := synonyms[strings.ToLower(written)]; slices.Contains(names, name) {
		return name
	}
	return ""
}

// maxCompared is the longest text, in bytes, that Nearest compares: no name is that
// long, and the comparison takes time in proportion to the length.
const maxCompared = 200

// Nearest returns the one of names that is most similar to written, or "" if none
// is similar.
func Nearest(written string, names []string) string {
	if written == "" || len(written) > maxCompared {
		return ""
	}
	best, least := "", min(max(2, len(written)), max(2, len(written)/2)+1) // a similar name shares a letter
	for _, name := range names {
		d := distance(strings.ToLower(written), strings.ToLower(name))
		if strings.HasPrefix(name, written) || strings.HasPrefix(written, name) {
			d = 1
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// distance returns how many characters differ. Two that are swapped count as one.
func distance(a, b string) int {
	least := levenshtein.ComputeDistance(a, b)
	for i := 1; i < len(a); i++ {
		swapped := a[:i-1] + a[i:i+1] + a[i-1:i] + a[i+1:]
		least = min(least, 1+levenshtein.ComputeDistance(swapped, b))
	}
	return least
}

// QuoteWithNearest returns an unknown name, quoted, together with the known name that
// was probably meant.
func QuoteWithNearest(name string, known []string) string {
	text := fmt.Sprintf("%.200q", name)
	if best := Nearest(name, known); best != "" {
		text += fmt.Sprintf("; did you mean %s?", best)
	}
	return text
}
