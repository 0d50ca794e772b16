package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestManyWaitingCalls: 200 calls wait, and a cheap one beside them is answered
// at once; each is cancelled, none is answered, and the process lives on.
func TestManyWaitingCalls(t *testing.T) {
	s := newWorld(t).start(t)
	s.initialize(t)
	s.must(t, "start_process", own(t, "sleeper", "sleep"))
	const n = 200
	var ids []string
	var answers []<-chan message
	for range n {
		id, answer := s.request(t, "tools/call", args{"name": "wait_for_process", "arguments": args{"process": "sleeper", "until": "exit"}})
		ids, answers = append(ids, id), append(answers, answer)
	}
	for range 21 {
		s.must(t, "list_processes", args{})
	}
	for _, id := range ids {
		s.cancel(t, id)
	}
	if r := s.must(t, "stop_process", args{"process": "sleeper"}); r.Data["was_running"] != true { // what would end the waits
		t.Errorf("%s", r.Text)
	}
	s.call(t, "ping", nil)
	for i, answer := range answers {
		if len(answer) > 0 {
			t.Fatalf("call %s was cancelled and answered: %s", ids[i], (<-answer).Raw)
		}
	}
}

// TestSubscriberSeesACrash: and what it then reads is new.
func TestSubscriberSeesACrash(t *testing.T) {
	t.Parallel()
	s := newWorld(t).start(t)
	s.initialize(t)
	pid := s.must(t, "start_process", own(t, "web", "sleep")).Data["pid"].(float64)
	s.call(t, "resources/subscribe", args{"uri": "processes://web"})
	check(t, syscall.Kill(int(pid), syscall.SIGKILL))
	began := time.Now()
	for state := ""; state != "crashed"; {
		s.note(t, "notifications/resources/updated", nil) // the first may be of the start
		m := s.call(t, "resources/read", args{"uri": "processes://web"})
		var content struct{ State string }
		check(t, json.Unmarshal([]byte(objects(m.Result["contents"])[0]["text"].(string)), &content))
		state = content.State
	}
	t.Logf("the crash was seen after %v", time.Since(began))
}

// TestNoisyProcesses: fifty that never stop printing cost a subscriber one
// update a second for each resource.
func TestNoisyProcesses(t *testing.T) {
	s := newWorld(t).start(t)
	var mu sync.Mutex
	came := map[string][]time.Time{}
	s.spy = func(_ string, m message) {
		if m.Method == "notifications/resources/updated" {
			mu.Lock()
			defer mu.Unlock()
			came[m.Params["uri"].(string)] = append(came[m.Params["uri"].(string)], time.Now())
		}
	}
	s.initialize(t)
	for i := range 50 {
		s.must(t, "start_process", own(t, fmt.Sprintf("noisy-%d", i), "noisy"))
	}
	uris := []string{"logs://recent", "logs://noisy-7", "logs://noisy-7?lines=5"}
	before := time.Now()
	for _, uri := range uris {
		s.call(t, "resources/subscribe", args{"uri": uri})
	}
	for _, uri := range uris {
		for range 3 {
			s.note(t, "notifications/resources/updated", func(m message) bool { return m.Params["uri"] == uri })
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, uri := range uris {
		at := came[uri]
		for i := range at { // a single gap may look short: what comes first may come late
			if took := at[i].Sub(before); took < time.Duration(i)*time.Second {
				t.Errorf("%s: %d updates within %v", uri, i+1, took)
			}
		}
	}
}

// TestAnyBytes sends thousands of damaged messages to the built binary, which
// may only change nothing. It answers in JSON-RPC, or not at all, and goes on.
func TestAnyBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set("PM_READ_ONLY", "true") // nobody knows what a damaged start_process starts
	w.set("PM_TOOLSETS", "monitoring,logs,errors,groups")
	s := w.start(t)
	s.lenient = true       // ids are damaged too,
	s.lastID = 987_654_320 // but none to the one that is asked for in the end
	seeds := []string{
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"get_logs","arguments":{"process":"web","limit":5}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"cursor":"eA=="}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"resources/read","params":{"uri":"logs://web?lines=3"}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"logs://recent"}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"prompts/get","params":{"name":"debug_process","arguments":{"process":"web"}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"debug_process"},"argument":{"name":"process","value":"w"}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"n","version":"v"}}}`,
		`{"jsonrpc":"2.0","id":%d,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`,
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same each time
	for i := range 3000 {
		line := damaged(random, fmt.Sprintf(seeds[random.IntN(len(seeds))], 1_000_000+i))
		s.send(t, line)
	}
	if m := s.call(t, "ping", nil); m.Error != nil {
		t.Errorf("%s", m.Raw)
	}
	if s.count() < 500 {
		t.Errorf("only %d answers: the damage is too great to test anything", s.count())
	}
}

// count is how many answers came that nobody waited for.
func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.strays)
}

// damaged changes a few bytes of a message; newlines stay out, so that messages
// are counted.
func damaged(random *rand.Rand, line string) string {
	b := []byte(line)
	for range 1 + random.IntN(4) {
		at := random.IntN(len(b))
		switch random.IntN(5) {
		case 0:
			b[at] = byte(random.IntN(256))
		case 1:
			b = slices.Delete(b, at, min(len(b), at+1+random.IntN(8)))
		case 2:
			b = slices.Insert(b, at, b[max(0, at-random.IntN(20)):at]...)
		case 3:
			b = slices.Insert(b, at, []byte(`{}[]":,\\u0000nul`)[random.IntN(17)])
		default:
			b = b[:at]
		}
		if len(b) == 0 {
			b = []byte("x")
		}
	}
	return strings.NewReplacer("\n", " ", "\r", " ").Replace(string(b))
}
