package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/process/proctest"
	"pmcp/server/stdio/stdiotest"
)

// taskClient is a client that has calls of the tool job run as tasks, in one of the eras. A job
// ends when the test sends to finish; its text is that of the argument text.
type taskClient struct {
	*connClient
	box    *toolbox
	modern bool
	finish chan struct{}
	last   int
}

func dialTasks(t *testing.T, modern bool) *taskClient {
	b := newToolbox()
	finish := make(chan struct{})
	b.mcp.AddTool(mcp.NewToolWithRawSchema("job", "job", json.RawMessage(`{"type":"object"}`)),
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			b.started <- "job"
			select {
			case <-finish:
				if ctx.Err() != nil {
					finish <- struct{}{} // was meant for a job that goes on
				}
			case <-ctx.Done():
			}
			EndTask(ctx, r.GetBool("fails", false))
			b.ended <- ending{context.Cause(ctx)} // the client fetches the result, or never will
			if r.GetBool("refused", false) {
				return nil, InvalidParams(ctx, "refused")
			}
			result := mcp.NewToolResultText(r.GetString("text", "done"))
			result.IsError = r.GetBool("fails", false)
			return result, nil
		})
	c := dial(t, b, func(o *Options) {
		o.IsTask = func(tool string) bool { return tool == "job" || tool == "panic" }
		o.TaskAfter = time.Millisecond
	})
	if !modern {
		c.Initialize("2025-11-25")
	}
	return &taskClient{connClient: c, box: b, modern: modern, finish: finish}
}

// eachEra runs a test with a client of each era.
func eachEra(t *testing.T, test func(*testing.T, *taskClient)) {
	for name, modern := range map[string]bool{"2025-11-25": false, "2026-07-28": true} {
		t.Run(name, func(t *testing.T) { test(t, dialTasks(t, modern)) })
	}
}

const declaresTasks = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// do sends a request of the era, and returns the answer. It skips changes of the status of tasks.
func (c *taskClient) do(method, params string) stdiotest.Reply {
	c.T.Helper()
	c.last++
	if c.modern {
		params = strings.TrimSuffix(params, "}") + "," + declaresTasks + "}"
	}
	c.Send(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.last, method, params)
	for {
		if r := c.Recv(); string(r.ID) == fmt.Sprint(c.last) {
			return r
		} else if r.Method != "notifications/tasks/status" {
			c.T.Fatalf("got %s, want the answer to %d", r.Raw, c.last)
		}
	}
}

// job calls the tool job, and returns the answer and the id of the task that it has become.
func (c *taskClient) job(arguments string) (answer stdiotest.Reply, id string) {
	c.T.Helper()
	answer = c.do("tools/call", fmt.Sprintf(`{"name":"job","task":{"ttl":60000},"arguments":%s}`, arguments))
	task := answer.Result
	if !c.modern {
		task, _ = answer.Result["task"].(map[string]any)
	}
	id, _ = task["taskId"].(string)
	return answer, id
}

func (c *taskClient) about(method, id string) stdiotest.Reply {
	c.T.Helper()
	return c.do(method, fmt.Sprintf(`{"taskId":%q}`, id))
}

// result returns the text of the result of a task that has ended.
func (c *taskClient) result(id string) string {
	c.T.Helper()
	if !c.modern {
		return c.about("tasks/result", id).Text()
	}
	r := c.about("tasks/get", id)
	r.Result, _ = r.Result["result"].(map[string]any)
	return r.Text()
}

func (c *taskClient) checkStatus(id, want string) {
	c.T.Helper()
	if r := c.about("tasks/get", id); r.Result["status"] != want {
		c.T.Errorf("got %s, want status %s", r.Raw, want)
	}
}

// TestTaskCompletesItsResultWhenFetched checks the life of a task whose result the client fetches: until then
// the handler does not decide what the answer reports.
func TestTaskCompletesItsResultWhenFetched(t *testing.T) {
	eachEra(t, func(t *testing.T, c *taskClient) {
		answer, id := c.job(`{"text":"built"}`)
		if state, _ := answer.Result["task"].(map[string]any); !c.modern && (state["status"] != "working" || state["ttl"] != 60000.0) ||
			c.modern && (answer.Result["resultType"] != "task" || answer.Result["ttlMs"] != 3600000.0) {
			t.Errorf("got %s, want a working task", answer.Raw)
		}
		c.checkStatus(id, "working")
		c.finish <- struct{}{}
		proctest.Await(t, "the end", func() bool { return c.about("tasks/get", id).Result["status"] == "completed" })
		if fetched := len(c.box.ended) == 1; fetched != c.modern { // there tasks/get has the result
			t.Errorf("the call went on after its end: %v, want that only when its result is fetched", fetched)
		}
		for range 2 {
			if text := c.result(id); text != "built" {
				t.Errorf("got %q, want built", text)
			}
		}
		c.waitForRequests(t, 0)
	})
}

// TestTaskFailsAsEachEraSaysIt checks tasks that end with an error: of the tool, and of the protocol.
func TestTaskFailsAsEachEraSaysIt(t *testing.T) {
	eachEra(t, func(t *testing.T, c *taskClient) {
		_, id := c.job(`{"fails":true,"text":"broken"}`)
		c.finish <- struct{}{}
		status := map[bool]string{false: "failed", true: "completed"}[c.modern]
		proctest.Await(t, "the end", func() bool { return c.about("tasks/get", id).Result["status"] == status })
		if text := c.result(id); text != "broken" {
			t.Errorf("got %q, want broken", text)
		}
		_, id = c.job(`{"refused":true}`)
		c.finish <- struct{}{}
		if c.modern {
			proctest.Await(t, "the error", func() bool { return c.about("tasks/get", id).Result["error"] != nil })
			c.checkStatus(id, "failed")
		} else if r := c.about("tasks/result", id); r.Error == nil || r.Error.Code != mcp.INVALID_PARAMS || r.Error.Message != "refused" {
			t.Errorf("got %s, want what the call would have returned", r.Raw)
		}
	})
}

// TestTaskEndsWithItsWait checks what ends a task without a result, and that nothing is held then.
func TestTaskEndsWithItsWait(t *testing.T) {
	ends := map[string]struct {
		end   func(c *taskClient, id string)
		cause error
		then  string // the status; "" means that there is no such task
	}{
		"cancelled": {func(c *taskClient, id string) { c.about("tasks/cancel", id) }, errCancelledByClient, "cancelled"},
		"expired":   {func(c *taskClient, id string) { c.conn.tasks.remove(c.conn.tasks.find(id)) }, errTaskOver, ""},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			eachEra(t, func(t *testing.T, c *taskClient) {
				_, id := c.job(`{}`)
				end.end(c, id)
				if cause := stdiotest.AwaitValue(t, c.box.ended, "the end of the call").cause; !errors.Is(cause, end.cause) {
					t.Errorf("got cause %v, want %v", cause, end.cause)
				}
				c.waitForRequests(t, 0)
				if r := c.about("tasks/get", id); end.then == "" && (r.Error == nil || r.Error.Code != mcp.INVALID_PARAMS) || end.then != "" && r.Result["status"] != end.then {
					t.Errorf("got %s, want %q", r.Raw, end.then)
				}
				if r := c.about("tasks/cancel", id); (r.Error == nil) != (c.modern && end.then != "") {
					t.Errorf("got %s", r.Raw)
				}
			})
		})
	}
	t.Run("with the session", func(t *testing.T) {
		eachEra(t, func(t *testing.T, c *taskClient) {
			c.job(`{}`)
			stdiotest.NoErr(t, c.End())
			if cause := stdiotest.AwaitValue(t, c.box.ended, "the end of the call").cause; !errors.Is(cause, ErrSessionEnding) {
				t.Errorf("got cause %v, want %v", cause, ErrSessionEnding)
			}
		})
	})
	t.Run("by its ttl", func(t *testing.T) {
		c := dialTasks(t, false)
		c.do("tools/call", `{"name":"job","task":{"ttl":1},"arguments":{}}`)
		stdiotest.AwaitValue(t, c.box.ended, "the end of the call")
	})
}

// TestTasksAreBounded checks that working tasks are limited, that ended ones make room, and that fetched results
// are forgotten when they are too many bytes.
func TestTasksAreBounded(t *testing.T) {
	c := dialTasks(t, false)
	_, first := c.job(`{}`)
	for range maxTasks - 1 {
		c.job(`{}`)
	}
	if r, _ := c.job(`{}`); r.Error == nil || r.Error.Code != codeBusy || !strings.Contains(r.Error.Message, "64 tasks are working") {
		t.Errorf("got %s, want a refusal", r.Raw)
	}
	c.about("tasks/cancel", first)
	if r, id := c.job(`{}`); id == "" {
		t.Errorf("got %s, want a task in place of the one that has ended", r.Raw)
	}
	if r := c.do("tasks/list", `{}`); len(r.Result["tasks"].([]any)) != maxTasks || strings.Contains(r.Raw, `"`+first+`"`) {
		t.Errorf("got %s, want %d tasks without %s", r.Raw, maxTasks, first)
	}

	c = dialTasks(t, false)
	var ids []string
	for range 3 {
		_, id := c.job(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", maxKept*2/5)))
		ids = append(ids, id)
		c.finish <- struct{}{}
		if c.result(id) == "" {
			t.Error("got no result")
		}
	}
	if r := c.about("tasks/result", ids[0]); r.Error == nil {
		t.Error("got the oldest result again, want it forgotten")
	}
	if c.result(ids[1]) == "" || c.result(ids[2]) == "" {
		t.Error("got no result of a later task")
	}
}

// TestOnlyLongCallOfWillingClientBecomesTask checks which calls are answered as ever.
func TestOnlyLongCallOfWillingClientBecomesTask(t *testing.T) {
	c := dialTasks(t, true)
	c.conn.TaskAfter = time.Hour
	go func() { c.finish <- struct{}{} }()
	if r, id := c.job(`{"text":"soon"}`); id != "" || r.Text() != "soon" {
		t.Errorf("got %s, want the result of a short call", r.Raw)
	}
	c.conn.TaskAfter = time.Millisecond
	const undeclared = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	go func() { c.finish <- struct{}{} }()
	if r := c.Call(`"plain"`, "tools/call", `{"name":"job","arguments":{},`+undeclared+`}`); r.Text() != "done" {
		t.Errorf("got %s, want the result", r.Raw)
	}
	if r := c.Call(`"get"`, "tasks/get", `{"taskId":"job-1",`+undeclared+`}`); r.Error == nil || r.Error.Code != codeMissingCapability {
		t.Errorf("got %s, want the missing capability named", r.Raw)
	}
	c = dialTasks(t, false)
	if r := c.do("tools/call", `{"name":"echo","task":{},"arguments":{}}`); r.Error == nil || r.Error.Code != mcp.METHOD_NOT_FOUND {
		t.Errorf("got %s, want a refusal of a tool that is no task", r.Raw)
	}
	if r := c.do("tools/call", `{"name":"panic","task":{},"arguments":{}}`); r.Error != nil {
		t.Errorf("got %s, want a task", r.Raw)
	} else if text := c.result("panic-1"); !strings.Contains(text, "failed unexpectedly") {
		t.Errorf("got %q, want the answer to a panic", text)
	}
}

// TestThousandTasksLeaveNothing makes tasks that end in every way.
func TestThousandTasksLeaveNothing(t *testing.T) {
	eachEra(t, func(t *testing.T, c *taskClient) {
		before := runtime.NumGoroutine()
		for i := range 1000 {
			answer, id := c.job(`{}`)
			if id == "" {
				t.Fatalf("got %s, want a task", answer.Raw)
			}
			switch i % 3 {
			case 0:
				c.about("tasks/cancel", id)
			case 1:
				c.finish <- struct{}{}
			case 2:
				c.finish <- struct{}{}
				proctest.Await(t, "the result", func() bool { return c.result(id) == "done" })
			}
		}
		c.conn.tasks.mu.Lock()
		n := len(c.conn.tasks.all)
		c.conn.tasks.mu.Unlock()
		if n > maxTasks {
			t.Errorf("got %d tasks, want at most %d", n, maxTasks)
		}
		if after := runtime.NumGoroutine(); after > before+maxTasks+10 {
			t.Errorf("got %d goroutines, %d before, want at most one for each task", after, before)
		}
		stdiotest.NoErr(t, c.End())
		if n := c.conn.Requests(); n != cap(c.conn.slots) { // Serve has taken them all
			t.Errorf("got %d slots free, want all", n)
		}
	})
}
