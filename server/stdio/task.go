package stdio

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/server/jsonrpc"
)

const (
	maxTasks    = 64        // of a connection; a new one replaces the oldest that has ended
	maxTaskLife = time.Hour // from the call to the loss of its result
	maxKept     = 1 << 20   // bytes of the results that the client has fetched and may fetch again
)

// TasksExtension is the extension by which a client of 2026-07-28 says that a tool call may become
// a task.
const TasksExtension = "io.modelcontextprotocol/tasks"

// errTaskOver is the cause of the context of a call whose task was removed before its end.
var errTaskOver = errors.New("the task is over")

// A task is a tool call that goes on after its request was answered with the id of the task. It
// keeps the slot of the request until the client has fetched the result.
type task struct {
	id      string
	created time.Time
	life    time.Duration
	modern  bool
	cancel  context.CancelCauseFunc // of the call
	expiry  *time.Timer

	ended   signal // the status is final
	wanted  signal // the client fetches the result
	fetched signal // answer is set, unless the task was cancelled or removed

	// These are guarded by taskList.mu.
	status  mcp.TaskStatus
	updated time.Time
	removed bool
	answer  mcp.JSONRPCMessage // the result as json.RawMessage, or the error; nil before it is fetched, and after
	size    int                // of the result
}

// A signal is a channel that is closed once.
type signal struct {
	done chan struct{}
	fire func()
}

func newSignal() signal {
	done := make(chan struct{})
	return signal{done, sync.OnceFunc(func() { close(done) })}
}

// taskList is the tasks of a connection. Its zero value is ready to use.
type taskList struct {
	mu   sync.Mutex
	all  []*task // oldest first
	last int     // the number of the last one
	over bool    // the connection ends
}

// add makes a task of a call of tool. It returns nil if there is no room.
func (l *taskList) add(r *request, tool string, life time.Duration) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= maxTasks {
		at := slices.IndexFunc(l.all, func(t *task) bool { return t.status != mcp.TaskStatusWorking })
		if at < 0 {
			return nil
		}
		l.removeLocked(l.all[at], errTaskOver)
	}
	if l.over {
		return nil
	}
	l.last++
	now := time.Now()
	t := &task{
		id: fmt.Sprintf("%s-%d", tool, l.last), created: now, updated: now, life: life, modern: r.modern, cancel: r.cancel,
		status: mcp.TaskStatusWorking, ended: newSignal(), wanted: newSignal(), fetched: newSignal(),
	}
	t.expiry = time.AfterFunc(life, func() { l.remove(t) })
	l.all = append(l.all, t)
	return t
}

func (l *taskList) remove(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(t, errTaskOver)
}

// removeLocked forgets t and ends its call. Who waits for t learns that there is no such task.
func (l *taskList) removeLocked(t *task, cause error) {
	l.all = slices.DeleteFunc(l.all, func(other *task) bool { return other == t })
	t.removed = true
	t.expiry.Stop()
	t.ended.fire()
	t.cancel(cause)
}

// end removes all tasks; no more can be added.
func (l *taskList) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for len(l.all) > 0 {
		l.removeLocked(l.all[0], ErrSessionEnding)
	}
}

// find returns the task with the given id, or nil.
func (l *taskList) find(id string) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.IndexFunc(l.all, func(t *task) bool { return t.id == id }); at >= 0 {
		return l.all[at]
	}
	return nil
}

// setStatus ends t, unless it has ended.
func (l *taskList) setStatus(t *task, status mcp.TaskStatus) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if changed = t.status == mcp.TaskStatusWorking && !t.removed; changed {
		t.status, t.updated = status, time.Now()
		t.ended.fire()
	}
	return changed
}

// keep stores what the call of t was answered with. If the results of other tasks exceed maxKept,
// the oldest of those are forgotten.
func (l *taskList) keep(t *task, answer mcp.JSONRPCMessage, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.removed || t.status == mcp.TaskStatusCancelled {
		return
	}
	t.answer, t.size = answer, size
	if _, failed := answer.(mcp.JSONRPCError); failed {
		t.status = mcp.TaskStatusFailed // EndTask cannot foresee it
	}
	kept := 0
	for _, other := range slices.Backward(slices.Clone(l.all)) {
		if kept += other.size; kept > maxKept && other.size > 0 && other != t {
			l.removeLocked(other, errTaskOver)
		}
	}
}

// snapshot returns the state of t as the client sees it. ok is false if t was removed.
func (l *taskList) snapshot(t *task) (s taskState, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return newTaskState(t), !t.removed
}

// taskParams are the params of a tool call that matter for tasks.
type taskParams struct {
	Name string `json:"name"`
	Task *struct {
		TTL *float64 `json:"ttl"`
	} `json:"task"`
}

// life returns how long the task is kept, from its creation.
func (p *taskParams) life() time.Duration {
	if p.Task.TTL == nil || *p.Task.TTL <= 0 || *p.Task.TTL >= float64(maxTaskLife.Milliseconds()) {
		return maxTaskLife
	}
	return time.Duration(*p.Task.TTL * float64(time.Millisecond))
}

// acceptsTasks reports whether a request of 2026-07-28 declares the extension.
func (r *request) acceptsTasks() bool {
	var p struct {
		Meta struct {
			Capabilities struct {
				Extensions map[string]json.RawMessage `json:"extensions"`
			} `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	}
	return json.Unmarshal(r.Params, &p) == nil && p.Meta.Capabilities.Extensions[TasksExtension] != nil
}

// offerTask makes a task of r if the client wants that: at once in 2025-11-25; in 2026-07-28 when r
// has not been answered within TaskAfter. It returns an error for the client, or a function that must be
// called at the end of r.
func (c *Conn) offerTask(r *request) (stop func(), refusal mcp.JSONRPCMessage) {
	stop = func() {}
	if c.IsTask == nil || r.Method != string(mcp.MethodToolsCall) {
		return stop, nil
	}
	var p taskParams
	if json.Unmarshal(r.Params, &p) != nil {
		return stop, nil // mcp-go says what is wrong
	}
	switch isTask := c.IsTask(p.Name); {
	case r.modern && isTask && r.acceptsTasks():
		offered := make(chan struct{})
		timer := time.AfterFunc(c.TaskAfter, func() {
			defer close(offered)
			c.makeTask(r, p.Name, maxTaskLife)
		})
		stop = func() {
			if !timer.Stop() {
				<-offered
			}
		}
	case r.modern || p.Task == nil:
	case !isTask:
		refusal = refused(mcp.METHOD_NOT_FOUND, "tool %.100q cannot run as a task; call it without the param task", p.Name)
	case !c.makeTask(r, p.Name, p.life()):
		refusal = refused(codeBusy, "%d tasks are working, which is the limit; wait until one ends, or cancel one", maxTasks)
	}
	return stop, refusal
}

// makeTask answers r with a task. It does nothing and returns false if r has ended, or if there is no room.
func (c *Conn) makeTask(r *request, tool string, life time.Duration) bool {
	r.promoting.Lock()
	if !r.over {
		r.task = c.tasks.add(r, tool, life)
	}
	t := r.task
	r.promoting.Unlock()
	if t == nil {
		return false
	}
	state, _ := c.tasks.snapshot(t)
	line, err := jsonrpc.EncodeResult(r.ID, state.created())
	if err == nil {
		err = c.send(outgoing{line: line, beforeWrite: func() bool {
			if !c.end(r) {
				c.tasks.remove(t) // the client has cancelled the call and will never know the task
				return false
			}
			return true
		}}, r.ctx.Done())
	}
	if err != nil {
		c.tasks.remove(t)
	}
	return true
}

// endTask returns the task that r has become, or nil; then r cannot become one any more.
func (r *request) endTask() *task {
	r.promoting.Lock()
	defer r.promoting.Unlock()
	r.over = true
	return r.task
}

// EndTask is called by the handler of a tool when it has done its work, and before it decides what the
// answer says of what else has happened. If the call is a task, EndTask ends it, and returns
// when the client fetches the result or the ctx of the call ends. failed means that the result is an error.
func EndTask(ctx context.Context, failed bool) {
	s := SessionFromContext(ctx)
	if s == nil {
		return
	}
	t := s.req.endTask()
	if t == nil {
		return
	}
	status := mcp.TaskStatusCompleted
	if failed && !t.modern {
		status = mcp.TaskStatusFailed
	}
	s.conn.setTaskStatus(ctx, t, status)
	select {
	case <-t.wanted.done:
	case <-ctx.Done():
	}
}

// setTaskStatus ends t, unless it has ended, and tells a client of 2025-11-25.
func (c *Conn) setTaskStatus(ctx context.Context, t *task, status mcp.TaskStatus) {
	if !c.tasks.setStatus(t, status) || t.modern {
		return
	}
	if state, ok := c.tasks.snapshot(t); ok {
		_ = c.sendNotification("notifications/tasks/status", state, nil, ctx.Done()) // fails only if the client does not read
	}
}

// finishTask keeps the answer of a call that has become a task.
func (c *Conn) finishTask(t *task, r *request, answer mcp.JSONRPCMessage) {
	defer t.fetched.fire()
	size := 0
	switch a := answer.(type) {
	case mcp.JSONRPCResponse:
		if result, ok := a.Result.(*mcp.CallToolResult); ok && !t.modern {
			meta := cmp.Or(result.Meta, &mcp.Meta{})
			meta.AdditionalFields = t.relate(meta.AdditionalFields)
			result.Meta = meta
		}
		raw, err := jsonrpc.AppendJSON(nil, a.Result)
		if err != nil {
			c.Log.Error("cannot encode a result", "method", r.Method, "error", err)
			answer = refused(mcp.INTERNAL_ERROR, "Internal error: the result of %s cannot be written", r.Method)
			break
		}
		answer, size = mcp.JSONRPCResponse{Result: json.RawMessage(raw)}, len(raw)
	case mcp.JSONRPCError:
		e := r.errorAnswer(a.Error)
		answer = mcp.JSONRPCError{Error: mcp.JSONRPCErrorDetails{Code: e.Code, Message: e.Text, Data: e.Data}}
	}
	status := mcp.TaskStatusCompleted
	if _, failed := answer.(mcp.JSONRPCError); failed {
		status = mcp.TaskStatusFailed
	}
	c.setTaskStatus(r.ctx, t, status) // does nothing after EndTask
	c.tasks.keep(t, answer, size)
}

// relate returns a _meta of 2025-11-25 that says that its message belongs to t.
func (t *task) relate(meta map[string]any) map[string]any {
	related := maps.Clone(meta)
	if related == nil {
		related = make(map[string]any)
	}
	related["io.modelcontextprotocol/related-task"] = map[string]string{"taskId": t.id}
	return related
}

// sendProgress is RequestSession.send for a call of 2025-11-25 that has become t: the client gets its
// progress until it has ended.
func (c *Conn) sendProgress(t *task, params map[string]any, quit <-chan struct{}) error {
	params = maps.Clone(params)
	meta, _ := params["_meta"].(map[string]any)
	params["_meta"] = t.relate(meta)
	return c.sendNotification(MethodProgress, params, func() bool {
		select {
		case <-t.ended.done:
			return false
		default:
			return true
		}
	}, quit)
}

func refused(code int, format string, args ...any) mcp.JSONRPCMessage {
	return mcp.JSONRPCError{Error: mcp.JSONRPCErrorDetails{Code: code, Message: fmt.Sprintf(format, args...)}}
}
