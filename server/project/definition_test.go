package project

import (
	"encoding/json"
	"testing"

	"pmcp/process"
	"pmcp/server/args"
	"pmcp/server/stdio/stdiotest"
)

// TestTerminalIsBoolOrSize checks each form of pty, as given and as stored. Older versions of pmcp
// stored true or false, and still read what is stored without a size.
func TestTerminalIsBoolOrSize(t *testing.T) {
	p := newProject(t, process.Options{})
	for given, want := range map[string]process.Spec{
		`{}`:                              {},
		`{"pty":true}`:                    {PTY: true},
		`{"pty":"true"}`:                  {PTY: true},
		`{"pty":false}`:                   {},
		`{"pty":{"rows":24,"cols":"80"}}`: {PTY: true, TerminalSize: process.TerminalSize{Rows: 24, Cols: 80}},
		`{"pty":{"cols":200}}`:            {PTY: true, TerminalSize: process.TerminalSize{Cols: 200}},
	} {
		forms, raw := givenAndStored(t, given)
		for how, def := range forms {
			spec, err := p.Spec("web", def, true)
			stdiotest.NoErr(t, err)
			if spec.PTY != want.PTY || spec.TerminalSize != want.TerminalSize || spec.Stdin != want.PTY {
				t.Errorf("%s, %s: got pty %v of %+v, stdin %v; want pty %v of %+v", given, how, spec.PTY, spec.TerminalSize, spec.Stdin, want.PTY, want.TerminalSize)
			}
		}
		var old struct{ PTY *bool }
		if err := json.Unmarshal(raw, &old); (err != nil) != (want.TerminalSize != process.TerminalSize{}) {
			t.Errorf("%s: got it stored as %s, want true or false unless it has a size", given, raw)
		}
	}
}

// TestMissingLimitsAreDefaults checks that limits that are not given, also in a
// stored definition, are the manager's defaults. 0 means no limit.
func TestMissingLimitsAreDefaults(t *testing.T) {
	all := process.Limits{MemoryMB: 1024, CPUPercent: 80, Action: process.LimitWarn}
	p := newProject(t, process.Options{MaxMemoryMB: all.MemoryMB, MaxCPUPercent: all.CPUPercent, LimitAction: all.Action})
	for given, want := range map[string]process.Limits{
		`{}`:                           all,
		`{"limits":{}}`:                all,
		`{"limits":{"action":"stop"}}`: {MemoryMB: 1024, CPUPercent: 80, Action: process.LimitStop},
		`{"limits":{"memory_mb":512}}`: {MemoryMB: 512, CPUPercent: 80, Action: process.LimitWarn},
		`{"limits":{"memory_mb":0}}`:   {CPUPercent: 80, Action: process.LimitWarn},
		`{"limits":{"cpu_percent":0,"action":"restart"}}`:  {MemoryMB: 1024, Action: process.LimitRestart},
		`{"limits":{"memory_mb":1024,"cpu_percent":80}}`:   all,
		`{"limits":{"memory_mb":0,"cpu_percent":0}}`:       {Action: process.LimitWarn},
		`{"limits":{"memory_mb":null,"action":"restart"}}`: {MemoryMB: 1024, CPUPercent: 80, Action: process.LimitRestart},
	} {
		forms, _ := givenAndStored(t, given)
		for how, def := range forms {
			spec, err := p.Spec("web", def, false)
			stdiotest.NoErr(t, err)
			got := p.o.Manager.Limits()
			if spec.Limits != nil {
				got = *spec.Limits
			}
			if got != want {
				t.Errorf("%s, %s: got %+v, want %+v", given, how, got, want)
			}
			if want == all && spec.Limits != nil {
				t.Errorf("%s, %s: got limits of its own, want none: they equal the defaults", given, how)
			}
		}
	}
}

// givenAndStored returns the definition that the arguments given are, as it comes from a call and from the store, by
// that, and its form in the store.
func givenAndStored(t *testing.T, given string) (forms map[string]Definition, raw []byte) {
	t.Helper()
	var def, stored Definition
	stdiotest.NoErr(t, decode(given, &def))
	def.Command = "true"
	raw, err := json.Marshal(def)
	stdiotest.NoErr(t, err)
	stdiotest.NoErr(t, json.Unmarshal(raw, &stored))
	return map[string]Definition{"given": def, "stored": stored}, raw
}

// decode fills a from the JSON of a call's arguments.
func decode(raw string, a any) error {
	given, err := args.Parse(json.RawMessage(raw))
	if err != nil {
		return err
	}
	return given.Decode(a)
}
