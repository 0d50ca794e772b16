package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/project"
	"pmcp/server/socket"
)

// askedEvents returns the event of c if that is what a call has asked for: a start, a restart or a stop.
// MCP servers on demand are started and stopped as calls need them.
func (l *eventLog) askedEvents(c *process.Change) []event {
	st := &c.Status
	runs, stopped := c.From == process.Starting && st.State == process.Running && st.Restarts == 0, c.From != c.To && st.State == process.Stopped
	var e event
	switch asked := st.Asked.What; {
	case strings.HasPrefix(st.Spec.Name, project.OnDemandPrefix), st.Asked.By == project.ActorWatch:
		return nil
	case runs && (asked == process.AskStart || asked == process.AskRestart && st.Run == 1):
		e = l.askedEvent(st, st.Asked.By, logstore.EventStarted, " was started")
	case runs && asked == process.AskRestart:
		e = l.askedEvent(st, st.Asked.By, logstore.EventRestarted, " was restarted")
	case stopped && asked == process.AskStop:
		e = l.askedEvent(st, st.Asked.By, logstore.EventStopped, " was stopped")
	default:
		return nil
	}
	return []event{e}
}

// askedEvent returns the event of what actor (see process.Ask) has done to a process. It has no stage: the client is
// told who did it even if an answer has reported what became of the process.
func (l *eventLog) askedEvent(st *process.Status, actor string, kind logstore.EventKind, did string) event {
	client := l.store.Actor("")
	by, where := cmp.Or(actor, client), ""
	if actor == client {
		where = " in another window"
	}
	return event{
		level: mcp.LoggingLevelWarning, kind: kind, name: st.Spec.Name, run: st.Run, runID: st.RunID, by: by, own: actor == "",
		text: fmt.Sprintf("%s (run %d)%s by %s%s", st.Spec.Name, st.Run, did, by, where),
	}
}

// An act is what was done to a process that the daemon keeps, as stored.
type act struct {
	at   int64 // nanoseconds since 1970
	text string
}

// addKeptActs adds the events of what others have done to the processes of kept since the last call. What was done for a
// client of the same name counts as the own. Each window stores its acts a moment later, so they need not come in order.
func (l *eventLog) addKeptActs(kept map[string]keptRun) {
	client := l.store.Actor("")
	for name, k := range kept {
		stored, err := l.store.Events(l.ctx, l.project, []string{name}, 0)
		if err != nil {
			continue // tried again with the next change
		}
		acts := make(map[act]bool)
		for _, e := range stored {
			a := act{e.At.UnixNano(), e.Text}
			if e.By == "" || !e.At.After(k.since) {
				continue
			}
			if acts[a] = true; e.By != client && !k.acts[a] {
				l.add(event{at: e.At, level: mcp.LoggingLevelWarning, kind: e.Kind, name: name, runID: e.Run, by: e.By, text: e.Text, stored: true})
			}
		}
		l.mu.Lock()
		if now, followed := l.kept[name]; followed {
			now.acts = acts
			l.kept[name] = now
		}
		l.mu.Unlock()
	}
}

// addInputEvent adds the event of input to a process.
func (s *Server) addInputEvent(by string, st *process.Status, what string) {
	e := s.events.askedEvent(st, by, logstore.EventInput, " was sent "+what)
	e.at = time.Now()
	s.events.add(e)
}

// addMark adds the event of an error, whose Name is the address of the process, that actor (see process.Ask) has resolved
// or reopened. stored means that another window has stored it.
func (l *eventLog) addMark(f *logstore.Fault, actor string, stored bool) {
	kind := logstore.EventReopened
	if !f.Resolved.IsZero() {
		kind = logstore.EventResolved
	}
	st := &process.Status{Spec: process.Spec{Name: f.Name}, Run: f.RunNumber, RunID: f.LastRun}
	e := l.askedEvent(st, actor, kind, fmt.Sprintf(": error %s was %s", f.ID, kind))
	if f.Note != "" {
		e.text += ", with the note " + quoteShortened(f.Note, maxErrorLine)
	}
	e.at, e.project, e.quote, e.stored = time.Now(), f.Project, quoteTitle(f), stored
	l.add(e)
}

// answerMark adds the event of an error that was marked in another window.
func (s *Server) answerMark(ctx context.Context, params json.RawMessage) (any, error) {
	m, err := project.DecodeMark(params)
	if err != nil {
		return nil, socket.Refusal(err.Error())
	}
	found, _, err := s.o.Store.Faults(ctx, logstore.FaultQuery{ID: m.ErrorID, SkipFlush: true})
	if err == nil && len(found) == 0 {
		err = logstore.ErrUnknownFault
	}
	if err != nil {
		return nil, err
	}
	s.events.addMark(&found[0], m.By, true)
	s.notifyUpdate(found[0].Name, false)
	return struct{}{}, nil
}
