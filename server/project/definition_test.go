package project

import (
	"context"
	"encoding/json"
	"testing"

	"pmcp/process"
	"pmcp/server/args"
	"pmcp/server/stdio/stdiotest"
)

// TestMissingLimitsAreDefaults checks that limits that are not given, also in a
// stored definition, are the manager's defaults. 0 means no limit.
func TestMissingLimitsAreDefaults(t *testing.T) {
	all := process.Limits{MemoryMB: 1024, CPUPercent: 80, Action: process.LimitWarn}
	m := process.NewManager(process.Options{
		Project: t.TempDir(), MaxMemoryMB: all.MemoryMB, MaxCPUPercent: all.CPUPercent, LimitAction: all.Action,
	})
	t.Cleanup(func() { stdiotest.NoErr(t, m.Close(context.Background())) })
	p := New(Options{Manager: m})
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
		def := Definition{}
		stdiotest.NoErr(t, decode(given, &def))
		def.Command = "true"
		raw, err := json.Marshal(def)
		stdiotest.NoErr(t, err)
		var stored Definition
		stdiotest.NoErr(t, json.Unmarshal(raw, &stored))
		for how, def := range map[string]Definition{"given": def, "stored": stored} {
			spec, err := p.Spec("web", def, false)
			stdiotest.NoErr(t, err)
			got := m.Limits()
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

// decode fills a from the JSON of a call's arguments.
func decode(raw string, a any) error {
	given, err := args.Parse(json.RawMessage(raw))
	if err != nil {
		return err
	}
	return given.Decode(a)
}
