package server

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pmcp/logstore/line"
	"pmcp/server/stdio/stdiotest"
)

// factsN is how many recordings and how many random sessions TestNoAnswerHoldsOneFactTwice plays.
var factsN = flag.Int("facts.n", 20, "recordings and sessions of TestNoAnswerHoldsOneFactTwice")

// replay is a shell command that prints a recording of the corpus as it was printed.
const replay = `awk 'substr($0, 3, 1) == "|" { t = substr($0, 4); if (substr($0, 1, 1) == "e") print t > "/dev/stderr"; else print t }' `

// TestNoAnswerHoldsOneFactTwice replays programs that fail, and plays sessions of random calls, and
// checks that no answer of an action, events included, repeats an error, its place or an id.
func TestNoAnswerHoldsOneFactTwice(t *testing.T) {
	t.Parallel()
	recordings, err := filepath.Glob("../logstore/fault/testdata/corpus/*.txt")
	stdiotest.NoErr(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(recordings), func(i, k int) { recordings[i], recordings[k] = recordings[k], recordings[i] })
	s := hello(t)
	for i, file := range recordings[:min(*factsN, len(recordings))] {
		file, err := filepath.Abs(file)
		stdiotest.NoErr(t, err)
		checkFacts(t, filepath.Base(file), s.ask("tools/call", toolCall("start_process", "name", fmt.Sprint("r", i), "command", "sh", "args", []string{"-c", replay + file + "; exit 1"}, "wait", "exit")))
	}
	for i := range *factsN {
		playFacts(t, fmt.Sprint("session ", i), rand.New(rand.NewPCG(3, uint64(i))))
	}
}

// toolCall returns the parameters of a call of a tool.
func toolCall(tool string, arguments ...any) map[string]any {
	all := map[string]any{}
	for i := 0; i < len(arguments); i += 2 {
		all[arguments[i].(string)] = arguments[i+1]
	}
	return map[string]any{"name": tool, "arguments": all}
}

// playFacts plays a session of random calls about three programs that fail and one that runs on.
func playFacts(t *testing.T, what string, random *rand.Rand) {
	s := hello(t)
	scripts := map[string]string{
		"check": "printf 'src/a.ts(1,2): error TS1005: semicolon expected.\nsrc/b.ts(3,4): error TS2304: Cannot find name foo.\n'; exit 2",
		"job":   traceback + "echo gave up; exit 1",
		"node":  `printf 'TypeError: no such thing\n    at run (/src/app.js:3:9)\n' >&2; exit 1`,
		"web":   "echo up; i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo \"2026-01-05 12:00:00 ERROR order $i is lost for good\"; done; echo ready; exec sleep 1000",
	}
	for name, script := range scripts {
		stdiotest.NoErr(t, os.WriteFile(filepath.Join(s.manager.Project(), name+".sh"), []byte(script), 0o600))
	}
	names := []string{"check", "job", "node", "web"}
	for range 10 {
		name := names[random.IntN(len(names))]
		start := map[string]any{"name": name, "command": "sh", "args": []string{name + ".sh"}, "wait": "exit"}
		if name == "web" {
			start["wait"], start["ready"] = "ready", map[string]any{"log": "^ready$"}
		}
		if random.IntN(3) == 0 {
			maps.Copy(start, map[string]any{"wait": "started", "timeout_ms": 0})
		}
		calls := []map[string]any{
			{"name": "start_process", "arguments": start}, {"name": "start_process", "arguments": start},
			toolCall("wait_for_process", "process", name, "until", "idle", "idle_ms", 1, "timeout_ms", 2000),
			toolCall("get_errors"), toolCall("get_errors", "process", name), toolCall("list_processes"),
			toolCall("get_process_info", "process", name), toolCall("stop_process", "process", name),
		}
		c := calls[random.IntN(len(calls))]
		checkFacts(t, fmt.Sprintf("%s: %v", what, c), s.ask("tools/call", c))
	}
}

// anID matches the id of an error.
var anID = regexp.MustCompile(`\b[0-9a-f]{12}\b`)

// checkFacts fails the test if the text of an answer says an error, a place or an id twice.
func checkFacts(t *testing.T, what string, r stdiotest.Reply) {
	t.Helper()
	text := r.Text()
	own, output := "", ""
	for l := range strings.Lines(text) {
		before, shown, isOutput := strings.Cut(l, outputMark)
		if isOutput {
			own, output = own+before+"\n", output+shown
		} else {
			own += l
		}
	}
	data, _ := r.Result["structuredContent"].(map[string]any)
	found, _ := data["errors"].([]any)
	for _, item := range found {
		e := item.(map[string]any)
		message, _ := e["message"].(string)
		message, _, _ = strings.Cut(message, "\n")
		if message = line.Visible(message); len(message) < 12 || strings.Contains(message, cutMark) {
			continue
		}
		if n := strings.Count(own, message); n > 1 || n == 1 && strings.Contains(output, message) {
			t.Errorf("%s: got the error %q %d times beside the output, want it once:\n%s", what, message, n, text)
		}
		if file, isPlaced := e["file"].(string); isPlaced && e["line"] != nil {
			place := fmt.Sprintf("%s:%v", file, e["line"])
			if n := strings.Count(own, place); n > 1 || n == 1 && strings.Contains(output, place) {
				t.Errorf("%s: got the place %s %d times beside the output, want it once:\n%s", what, place, n, text)
			}
		}
	}
	for _, id := range anID.FindAllString(own, -1) {
		if strings.Count(own, id) > 1 || !strings.Contains(own, "error "+id+": ") {
			t.Errorf("%s: got the id %s, want ids once and only in get_errors:\n%s", what, id, text)
		}
	}
}
