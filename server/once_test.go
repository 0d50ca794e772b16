package server

import (
	"fmt"
	"testing"

	"pmcp/process/command"
	"pmcp/server/args"
)

// TestCallIsReadOnce checks that the arguments of a call are parsed and decoded once, that its command line is
// parsed once, and that PATH is searched once for each start. What is left of a line after a part was left out
// is parsed again, and so is a line with ports once these are known: for the start, and for the answer.
func TestCallIsReadOnce(t *testing.T) { // not parallel: the counts are of the whole program
	s := hello(t)
	started := func(line string, more ...any) map[string]any {
		arguments := map[string]any{"name": "web", "command": line, "if_running": "restart", "timeout_ms": 0}
		for i := 0; i < len(more); i += 2 {
			arguments[more[i].(string)] = more[i+1]
		}
		return arguments
	}
	type counts struct{ arguments, decoded, lines, searches int64 }
	count := func() counts {
		return counts{args.Parsed.Load(), args.Decoded.Load(), command.Parsed.Load(), command.Searched.Load()}
	}
	for _, c := range []struct {
		tool      string
		arguments map[string]any
		lines     int64
		searches  int64
	}{
		{"start_process", started("sleep 100"), 1, 1},
		{"start_process", map[string]any{"name": "web", "if_running": "restart"}, 1, 1},
		{"restart_process", map[string]any{"process": "web"}, 1, 1},
		{"restart_process", map[string]any{"process": "web", "command": "sleep 200"}, 1, 1},
		{"start_process", started("sleep 100 && sleep 1"), 1, 1},
		{"start_process", started("TOKEN=supersecret sleep 100"), 1, 1},
		{"start_process", started("cd . && sleep 100"), 2, 1},
		{"start_process", started("sleep 100", "health", map[string]any{"command": "/bin/true"}), 2, 1},
		{"start_process", started("sleep 1{PORT}", "ports", map[string]int{"PORT": 0}), 3, 1},
		{"start_process", map[string]any{"command": "sleep 0.01", "wait": "exit"}, 1, 1},
		{"start_group", map[string]any{"group": "all", "members": []map[string]any{{"process": "a", "command": "sleep 100"}}}, 2, 1},
		{"stop_process", map[string]any{"process": "*"}, 0, 0},
	} {
		before := count()
		s.do(c.tool, c.arguments)
		now := count()
		got := counts{now.arguments - before.arguments, now.decoded - before.decoded, now.lines - before.lines, now.searches - before.searches}
		if want := (counts{1, 1, c.lines, c.searches}); got != want {
			t.Errorf("%s: got %+v, want %+v", fmt.Sprint(c.tool, c.arguments), got, want)
		}
	}
}
