package server

import (
	"context"
	"encoding/json"
	"testing"

	"pmcp/process"
)

// TestLimitsThatAreNotGiven hold as for every process, also by a definition that
// was stored; 0 is no limit.
func TestLimitsThatAreNotGiven(t *testing.T) {
	all := process.Limits{MemoryMB: 1024, CPUPercent: 80, Action: process.LimitWarn}
	m := process.NewManager(process.Options{
		Project: t.TempDir(), MaxMemoryMB: all.MemoryMB, MaxCPUPercent: all.CPUPercent, LimitAction: all.Action,
	})
	t.Cleanup(func() { noErr(t, m.Close(context.Background())) })
	s := &Server{o: Options{Manager: m}}
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
		def := specArgs{}
		noErr(t, decodeArguments(json.RawMessage(given), &def))
		def.Command = "true"
		raw, err := json.Marshal(def)
		noErr(t, err)
		var stored specArgs
		noErr(t, json.Unmarshal(raw, &stored))
		for how, def := range map[string]specArgs{"given": def, "stored": stored} {
			spec, err := s.specOf(t.Context(), "web", def, false)
			noErr(t, err)
			got := m.Limits()
			if spec.Limits != nil {
				got = *spec.Limits
			}
			if got != want {
				t.Errorf("%s, %s: %+v, want %+v", given, how, got, want)
			}
			if want == all && spec.Limits != nil {
				t.Errorf("%s, %s: limits of its own that change none", given, how)
			}
		}
	}
}
