package args_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pmcp/server/args"
)

type nested struct {
	Port *int `json:"port,omitempty" min:"0" max:"65535"`
}

type arguments struct {
	Name    string             `json:"name"`
	Process string             `json:"process,omitempty"`
	Mode    string             `json:"mode,omitempty" enum:"a|b"`
	Count   int                `json:"count,omitempty" min:"1" max:"10"`
	Words   []string           `json:"words,omitempty"`
	Env     map[string]*string `json:"env,omitempty"`
	Flag    *bool              `json:"flag,omitempty"`
	Inner   *nested            `json:"inner,omitempty"`
	List    []nested           `json:"list,omitempty"`
	Secret  string             `json:"secret,omitempty" schema:"internal"`
}

func TestDecodeFillsArguments(t *testing.T) {
	var a arguments
	err := decode(`{"name":"n","mode":"","count":3.0,"words":[],"env":{"A":"1","B":null},"flag":false,"inner":{"port":0},"list":[{"port":1},{}]}`, &a)
	if err != nil {
		t.Fatal(err)
	}
	if a.Name != "n" || a.Count != 3 || a.Flag == nil || *a.Flag || *a.Env["A"] != "1" || a.Env["B"] != nil || *a.Inner.Port != 0 || len(a.List) != 2 || a.Words != nil {
		t.Errorf("got %+v, want the given values", a)
	}
	a = arguments{}
	err = decode(`{"name":"n","mode":null,"count":null,"env":{},"flag":null,"inner":{},"list":[],"process":""}`, &a)
	if err != nil || a.Inner != nil || a.Env != nil || a.List != nil || a.Flag != nil || a.Count != 0 || a.Mode != "" {
		t.Errorf("got %+v, %v, want empty values to count as not given", a, err)
	}
}

func TestDecodeRefusesInvalidArguments(t *testing.T) {
	for given, want := range map[string]string{
		`{}`:                            "missing argument: name",
		`{"name":null}`:                 "missing argument: name",
		`{"name":""}`:                   "missing argument: name",
		`[]`:                            "arguments: want an object, got []",
		`{"name":7}`:                    "argument name: want a string, got 7",
		`{"name":"n","cuont":1}`:        "unknown argument cuont: did you mean count?",
		`{"name":"n","Count":1}`:        "unknown argument Count: did you mean count?",
		`{"name":"n","secret":"s"}`:     "unknown argument secret",
		`{"name":"n","mode":"c"}`:       `argument mode: want one of a, b, got "c"`,
		`{"name":"n","count":11}`:       "argument count: want an integer from 1 to 10, got 11",
		`{"name":"n","count":"11"}`:     `argument count: want an integer from 1 to 10, got "11"`,
		`{"name":"n","count":"03"}`:     `argument count: want an integer from 1 to 10, got "03"`,
		`{"name":"n","count":1.5}`:      "argument count: want an integer from 1 to 10, got 1.5",
		`{"name":"n","words":"w"}`:      `argument words: want an array of strings, got "w"`,
		`{"name":"n","words":[null]}`:   `argument words: want an array of strings, got [null]`,
		`{"name":"n","words":[[1]]}`:    `argument words: want an array of strings, got [[1]]`,
		`{"name":"n","env":{"A":{}}}`:   "argument env: want an object with string values",
		`{"name":"n","env":["A=1"]}`:    "argument env: want an object with string values",
		`{"name":"n","flag":"yes"}`:     `argument flag: want true or false, got "yes"`,
		`{"name":"n","inner":{"p":1}}`:  "unknown argument inner.p: did you mean inner.port?",
		`{"name":"n","inner":[1]}`:      "argument inner: want an object with port, got [1]",
		`{"name":"n","list":[{"x":1}]}`: "unknown argument list[0].x",
	} {
		var a arguments
		if err := decode(given, &a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", given, err, want)
		}
	}
}

func TestNameIsAliasOfProcess(t *testing.T) {
	var a struct {
		Process string `json:"process"`
	}
	if err := decode(`{"name":"web"}`, &a); err != nil || a.Process != "web" {
		t.Errorf("got %+v, %v, want process web", a, err)
	}
	if err := decode(`{"name":"web","process":"api"}`, &a); err == nil {
		t.Error("name and process differ: got no error, want one")
	}
}

func TestDecodeTakesNaturalValues(t *testing.T) {
	var a struct {
		Words []string           `json:"words,omitempty"`
		Env   map[string]*string `json:"env,omitempty"`
		TCP   string             `json:"tcp,omitempty" natural:"text"`
		More  []string           `json:"more,omitempty"`
	}
	err := decode(`{"words":["-p",5432,1.50,true," "],"env":{"PORT":3000,"CI":true,"A":null,"B":"x"},"tcp": 5432 }`, &a)
	if err != nil || strings.Join(a.Words, "|") != "-p|5432|1.50|true| " || *a.Env["PORT"] != "3000" || *a.Env["CI"] != "true" || a.Env["A"] != nil || *a.Env["B"] != "x" || a.TCP != "5432" {
		t.Errorf("got %+v, %v, want numbers and booleans as their text", a, err)
	}
	for given, want := range map[string]string{
		`{"process":["web","api"]}`: "web,api",
		`{"process":["web"]}`:       "web",
		`{"name":["web","api"]}`:    "web,api",
	} {
		var a struct {
			Process string `json:"process"`
		}
		if err := decode(given, &a); err != nil || a.Process != want {
			t.Errorf("%s: got %q, %v, want %q", given, a.Process, err, want)
		}
	}
	var typed struct {
		Count int  `json:"count,omitempty" max:"10"`
		Flag  bool `json:"flag,omitempty"`
	}
	if err := decode(`{"count":"3","flag":"true"}`, &typed); err != nil || typed.Count != 3 || !typed.Flag {
		t.Errorf("got %+v, %v, want 3 and true for their texts", typed, err)
	}
	for given, want := range map[string]string{"stdout": "out", "err": "err", "STDERR": "err", "Out": "out", "std": "", "outs": ""} {
		var a struct {
			Stream string `json:"stream" enum:"out|err"`
		}
		err := decode(`{"stream":"`+given+`"}`, &a)
		if (err == nil) != (want != "") || err == nil && a.Stream != want {
			t.Errorf("stream %s: got %q, %v, want %q", given, a.Stream, err, want)
		}
	}
	var enum struct {
		Wait string `json:"wait" enum:"ready|exit"`
	}
	if err := decode(`{"wait":"Exited"}`, &enum); err != nil || enum.Wait != "exit" {
		t.Errorf("got %+v, %v, want exit for Exited", enum, err)
	}
	var needs struct {
		DependsOn []struct {
			Process   string `json:"process"`
			Condition string `json:"condition,omitempty"`
		} `json:"depends_on"`
	}
	err = decode(`{"depends_on":["db",{"name":"job","condition":"exited_ok"}]}`, &needs)
	if err != nil || len(needs.DependsOn) != 2 || needs.DependsOn[0].Process != "db" || needs.DependsOn[1].Process != "job" {
		t.Errorf("got %+v, %v, want db and job", needs, err)
	}
	err = decode(`{"depends_on":"db"}`, &needs)
	if err != nil || len(needs.DependsOn) != 1 || needs.DependsOn[0].Process != "db" {
		t.Errorf("got %+v, %v, want db for a name alone", needs, err)
	}
	var watch struct {
		Watch []string `json:"watch" natural:"list"`
	}
	if err = decode(`{"watch":"src"}`, &watch); err != nil || !slices.Equal(watch.Watch, []string{"src"}) {
		t.Errorf("got %+v, %v, want src for a text alone", watch, err)
	}
	for _, bad := range []string{`{"depends_on":1}`, `{"depends_on":[""]}`, `{"depends_on":[1]}`, `{"depends_on":[["db"]]}`, `{"depends_on":"[{\"process\":\"db\"}]"}`} {
		if err := decode(bad, &needs); err == nil || !strings.Contains(err.Error(), "depends_on") {
			t.Errorf("%s: got %v, want an error about depends_on", bad, err)
		}
	}
	for _, bad := range []string{`{"process":[null]}`, `{"process":[""]}`, `{"process":["a",""]}`, `{"process":[[]]}`, `{"process":[1]}`, `{"process":{"a":"b"}}`} {
		var a struct {
			Process string `json:"process"`
		}
		if err := decode(bad, &a); err == nil {
			t.Errorf("%s: got process %q, want an error", bad, a.Process)
		}
	}
}

func TestNameIsAliasOfGroup(t *testing.T) {
	for given, want := range map[string]string{
		`{"name":"g"}`:                             "g ",
		`{"name":"g","group":"g"}`:                 "g ",
		`{"name":"g","group":"h"}`:                 "differ",
		`{"group":null,"name":"g"}`:                "g ",
		`{"name":"g","process":"p"}`:               "g p",
		`{"name":"p","group":"g"}`:                 "g p",
		`{"name":"p","group":"g","process":"p"}`:   "g p",
		`{"name":"x","group":"g","process":"p"}`:   "differ",
		`{"name":"x","group":null,"process":null}`: "missing argument: group",
	} {
		var one struct {
			Group string `json:"group" natural:"alias"`
		}
		var two struct {
			Group   string `json:"group" natural:"alias"`
			Process string `json:"process,omitempty"`
		}
		var err error
		got := ""
		if strings.Contains(given, `"p"`) || strings.Contains(given, `"x"`) {
			err = decode(given, &two)
			got = two.Group + " " + two.Process
		} else {
			err = decode(given, &one)
			got = one.Group + " "
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
	}
}

func TestLinesIsAliasOfLimit(t *testing.T) {
	for given, want := range map[string]string{
		`{"lines":5}`:              "5",
		`{"lines":null,"limit":5}`: "5",
		`{"lines":5,"limit":6}`:    "argument lines: it is an alias of limit here, and the two differ",
		`{"lines":-1}`:             "argument lines: want an integer",
	} {
		var a struct {
			Limit int `json:"limit,omitempty" natural:"lines" min:"1" max:"10"`
		}
		got := fmt.Sprint(decode(given, &a))
		if got == "<nil>" {
			got = fmt.Sprint(a.Limit)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
	}
}

func TestParseSinceAcceptsAgesAndDates(t *testing.T) {
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Time{
		"":                     {},
		"10m":                  now.Add(-10 * time.Minute),
		"10 min ago":           now.Add(-10 * time.Minute),
		"1 hour ago":           now.Add(-time.Hour),
		"90 seconds":           now.Add(-90 * time.Second),
		"3m12s ago":            now.Add(-192 * time.Second),
		"1d 2h":                now.Add(-26 * time.Hour),
		"2w":                   now.Add(-14 * 24 * time.Hour),
		"2026-01-04T10:00:00Z": time.Date(2026, 1, 4, 10, 0, 0, 0, time.UTC),
		"2026-01-04":           time.Date(2026, 1, 4, 0, 0, 0, 0, time.Local),
		"2026-01-04 20:08":     time.Date(2026, 1, 4, 20, 8, 0, 0, time.Local),
		"2026-01-04 20:08:02":  time.Date(2026, 1, 4, 20, 8, 2, 0, time.Local),
		// These times are outside the range that the log can store in nanoseconds.
		"999999w":              now.Add(-math.MaxInt64 / week * week),
		"999999d":              now.Add(-math.MaxInt64 / day * day),
		"0001-01-01T00:00:00Z": args.MinTime,
		"1000-01-01":           args.MinTime,
	} {
		if got, err := args.ParseSince(value, now); err != nil || !got.Equal(want) {
			t.Errorf("ParseSince(%q): got %v, %v, want %v", value, got, err, want)
		}
	}
	for _, bad := range []string{"soon", "10", "-5m", "2026-13-01", "5y", "25:00", "10m ago now", " ago", "ago", "1h ago ago"} {
		if got, err := args.ParseSince(bad, now); err == nil || !strings.Contains(err.Error(), "argument since: want a time (20:08, ") || !strings.Contains(err.Error(), strconv.Quote(bad)) {
			t.Errorf("ParseSince(%q): got %v, %v, want an error", bad, got, err)
		}
	}
}

func TestParseSinceTakesLastMomentWithTimeOfDay(t *testing.T) {
	for _, c := range []struct {
		now         time.Time
		value, want string
	}{
		{time.Date(2026, 11, 28, 20, 10, 0, 0, time.Local), "20:08:02", "2026-11-28 20:08:02"},
		{time.Date(2026, 11, 28, 20, 10, 0, 0, time.Local), "20:08:02.250", "2026-11-28 20:08:02.25"},
		{time.Date(2026, 11, 28, 20, 10, 0, 0, time.Local), "20:10", "2026-11-28 20:10:00"},
		{time.Date(2026, 11, 28, 20, 10, 0, 0, time.Local), "20:10:01", "2026-11-27 20:10:01"},
		{time.Date(2026, 12, 1, 0, 5, 0, 0, time.Local), "23:59", "2026-11-30 23:59:00"},
	} {
		got, err := args.ParseSince(c.value, c.now)
		if shown := got.Local().Format("2006-01-02 15:04:05.999"); err != nil || shown != c.want {
			t.Errorf("ParseSince(%q) at %v: got %s, %v, want %s", c.value, c.now, shown, err, c.want)
		}
	}
}

func TestParseSinceRefusesFuture(t *testing.T) {
	now := time.Date(2026, 11, 28, 20, 8, 2, 0, time.Local)
	_, err := args.ParseSince("2026-11-28 20:09", now)
	if want := "argument since: 2026-11-28 20:09 is in the future, it is 2026-11-28 20:08:02 now; want a time (20:08, "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want an error that begins with %q", err, want)
	}
	if got, err := args.ParseUntil("9999-12-31T23:59:59Z", now); err != nil || !got.Equal(args.MaxTime) {
		t.Errorf("until: got %v, %v, want %v", got, err, args.MaxTime)
	}
	_, _, err = args.ParseSpan("20:00", "20:30", now)
	if want := "since 20:00 is later than until 20:30 (2026-11-28 20:00:00, 2026-11-27 20:30:00)"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want an error that ends with %q", err, want)
	}
}

func TestFormatAgeUsesTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 61 * time.Second: "1m 1s", 25 * time.Hour: "1d 1h", 90 * time.Minute: "1h 30m"} {
		if got := args.FormatAge(d); got != want {
			t.Errorf("FormatAge(%v): got %q, want %q", d, got, want)
		}
	}
}

func TestNearestNameIsSimilar(t *testing.T) {
	for written, want := range map[string]string{"n": "", "w": "web", "xy": "", "wbe": "web", "bd": "db", "API": "api", "worker": ""} {
		if got := args.Nearest(written, []string{"sp", "web", "api", "db"}); got != want {
			t.Errorf("%s: got %q, want %q", written, got, want)
		}
	}
}

// decode fills a from the JSON of a call's arguments.
func decode(raw string, a any) error {
	given, err := args.Parse(json.RawMessage(raw))
	if err != nil {
		return err
	}
	return given.Decode(a)
}
