package stdio

import (
	"encoding/json"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// This file holds the requests of the client about its tasks. Those of 2025-11-25 are tasks/get,
// tasks/result, which waits, tasks/list and tasks/cancel; those of the extension of 2026-07-28 are
// tasks/get, which also has the result, tasks/update and tasks/cancel.

// taskPoll is how often a client is asked to look at a task.
const taskPoll = time.Second

// codeMissingCapability is the code for a client that does not declare what a request needs.
const codeMissingCapability = -32021

// taskState is a task in the form of both eras.
type taskState struct {
	ResultType string         `json:"resultType,omitempty"`
	ID         string         `json:"taskId"`
	Status     mcp.TaskStatus `json:"status"`
	Created    string         `json:"createdAt"`
	Updated    string         `json:"lastUpdatedAt"`
	*legacyTimes
	*modernTimes
	Result json.RawMessage          `json:"result,omitempty"`
	Error  *mcp.JSONRPCErrorDetails `json:"error,omitempty"`
}

type legacyTimes struct {
	TTL  int64 `json:"ttl"`
	Poll int64 `json:"pollInterval"`
}

type modernTimes struct {
	TTL  int64 `json:"ttlMs"`
	Poll int64 `json:"pollIntervalMs"`
}

// newTaskState returns the state of t. The caller holds the lock of the list.
func newTaskState(t *task) taskState {
	s := taskState{ID: t.id, Status: t.status, Created: taskTime(t.created), Updated: taskTime(t.updated)}
	life, poll := t.life.Milliseconds(), taskPoll.Milliseconds()
	if !t.modern {
		s.legacyTimes = &legacyTimes{life, poll}
		return s
	}
	s.modernTimes = &modernTimes{life, poll}
	switch a := t.answer.(type) {
	case mcp.JSONRPCResponse:
		s.Result = a.Result.(json.RawMessage)
	case mcp.JSONRPCError:
		s.Error = &a.Error
	}
	return s
}

func taskTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

// created returns s as the answer to a tool call.
func (s taskState) created() any {
	if s.modernTimes == nil {
		return map[string]taskState{"task": s}
	}
	s.ResultType = "task"
	return s
}

// handleTask answers a request about tasks. It returns nil for any other request.
func (c *Conn) handleTask(r *request) mcp.JSONRPCMessage {
	var do func(*request, *task) mcp.JSONRPCMessage
	switch method := r.Method; {
	case c.IsTask == nil:
	case method == "tasks/get":
		do = c.getTask
	case method == "tasks/cancel":
		do = c.cancelTask
	case method == "tasks/update" && r.modern:
		do = acknowledge // no task asks for input
	case method == "tasks/result" && !r.modern:
		do = c.taskResult
	case method == "tasks/list" && !r.modern:
		return c.listTasks(r)
	}
	if do == nil {
		return nil
	}
	if r.modern && !r.acceptsTasks() {
		return mcp.JSONRPCError{Error: mcp.JSONRPCErrorDetails{
			Code: codeMissingCapability, Message: "Missing required client capability: the extension " + TasksExtension,
			Data: map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{TasksExtension: struct{}{}}}},
		}}
	}
	var p struct {
		ID string `json:"taskId"`
	}
	if err := json.Unmarshal(r.Params, &p); err != nil {
		return refused(mcp.INVALID_PARAMS, "taskId: want a string")
	}
	t := c.tasks.find(p.ID)
	if t == nil || t.modern != r.modern {
		return unknownTask(p.ID)
	}
	return do(r, t)
}

func unknownTask(id string) mcp.JSONRPCMessage {
	return refused(mcp.INVALID_PARAMS, "there is no task %.100q: it has expired, or never was", id)
}

// acknowledge returns the empty answer of 2026-07-28.
func acknowledge(*request, *task) mcp.JSONRPCMessage {
	return mcp.JSONRPCResponse{Result: map[string]string{"resultType": string(mcp.ResultTypeComplete)}}
}

// getTask returns the state of t. In 2026-07-28 that of an ended task has the result.
func (c *Conn) getTask(r *request, t *task) mcp.JSONRPCMessage {
	state, ok := c.tasks.snapshot(t)
	if ok && t.modern {
		if state.Status != mcp.TaskStatusWorking && state.Status != mcp.TaskStatusCancelled {
			c.fetch(r, t)
			state, ok = c.tasks.snapshot(t)
		}
		state.ResultType = string(mcp.ResultTypeComplete)
	}
	if !ok {
		return unknownTask(t.id)
	}
	return mcp.JSONRPCResponse{Result: state}
}

// fetch has the handler of an ended task complete its result, and waits for that.
func (c *Conn) fetch(r *request, t *task) {
	t.wanted.fire()
	select {
	case <-t.fetched.done:
	case <-r.ctx.Done():
	}
}

// taskResult waits for the end of t and returns what its call would have returned.
func (c *Conn) taskResult(r *request, t *task) mcp.JSONRPCMessage {
	select {
	case <-t.ended.done:
	case <-r.ctx.Done():
		return refused(mcp.INTERNAL_ERROR, "%v", r.ctx.Err())
	}
	if state, _ := c.tasks.snapshot(t); state.Status == mcp.TaskStatusCancelled {
		return refused(codeBusy, "task %q was cancelled, so it has no result", t.id)
	}
	c.fetch(r, t)
	c.tasks.mu.Lock()
	defer c.tasks.mu.Unlock()
	if t.answer == nil {
		return unknownTask(t.id)
	}
	return t.answer
}

// listTasks returns all tasks of 2025-11-25, oldest first.
func (c *Conn) listTasks(r *request) mcp.JSONRPCMessage {
	var p struct {
		Cursor string `json:"cursor"`
	}
	if r.Params != nil && json.Unmarshal(r.Params, &p) != nil || p.Cursor != "" {
		return refused(mcp.INVALID_PARAMS, "cursor: want none; the list has one page")
	}
	c.tasks.mu.Lock()
	defer c.tasks.mu.Unlock()
	states := []taskState{}
	for _, t := range c.tasks.all {
		if !t.modern {
			states = append(states, newTaskState(t))
		}
	}
	return mcp.JSONRPCResponse{Result: map[string][]taskState{"tasks": states}}
}

// cancelTask ends the wait of t. What its call has started goes on.
func (c *Conn) cancelTask(r *request, t *task) mcp.JSONRPCMessage {
	cancelled := c.tasks.setStatus(t, mcp.TaskStatusCancelled)
	if cancelled {
		t.cancel(errCancelledByClient)
	}
	switch state, ok := c.tasks.snapshot(t); {
	case !ok:
		return unknownTask(t.id)
	case t.modern:
		return acknowledge(r, t)
	case !cancelled:
		return refused(mcp.INVALID_PARAMS, "task %q has ended already (%s)", t.id, state.Status)
	default:
		return mcp.JSONRPCResponse{Result: state}
	}
}
