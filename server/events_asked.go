package server

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/project"
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
	case runs && asked == process.AskStart:
		e = l.askedEvent(st, st.Asked.By, logstore.EventStarted, "was started")
	case runs && asked == process.AskRestart:
		e = l.askedEvent(st, st.Asked.By, logstore.EventRestarted, "was restarted")
	case stopped && asked == process.AskStop:
		e = l.askedEvent(st, st.Asked.By, logstore.EventStopped, "was stopped")
	default:
		return nil
	}
	return []event{e}
}

// askedEvent returns the event of what actor (see process.Actor) has done to a process. It has no stage: the client is
// told who did it even if an answer has reported what became of the process.
func (l *eventLog) askedEvent(st *process.Status, actor string, kind logstore.EventKind, did string) event {
	client := l.store.Actor(context.Background())
	by, where := cmp.Or(actor, client), ""
	if actor == client {
		where = " in another window"
	}
	return event{
		level: mcp.LoggingLevelWarning, kind: kind, name: st.Spec.Name, run: st.Run, runID: st.RunID, by: by, own: actor == "",
		text: fmt.Sprintf("%s (run %d) %s by %s%s", st.Spec.Name, st.Run, did, by, where),
	}
}

// addKeptActs adds the events of what others have done to the processes of kept since the last call. What was done for a
// client of the same name counts as the own.
func (l *eventLog) addKeptActs(kept map[string]keptRun) {
	client := l.store.Actor(l.ctx)
	for name, k := range kept {
		stored, err := l.store.Events(l.ctx, l.project, []string{name}, 0)
		if err != nil {
			continue // tried again with the next change
		}
		since := k.acted
		if since.Before(k.since) {
			since = k.since
		}
		for _, e := range stored {
			if e.By == "" || !e.At.After(since) {
				continue
			}
			if k.acted = e.At; e.By != client {
				l.add(event{at: e.At, level: mcp.LoggingLevelWarning, kind: e.Kind, name: name, runID: e.Run, by: e.By, text: e.Text, stored: true})
			}
		}
		l.mu.Lock()
		if now, followed := l.kept[name]; followed {
			now.acted = k.acted
			l.kept[name] = now
		}
		l.mu.Unlock()
	}
}

// addInputEvent adds the event of input to a process.
func (s *Server) addInputEvent(ctx context.Context, st *process.Status, what string) {
	e := s.events.askedEvent(st, process.Actor(ctx), logstore.EventInput, "was sent "+what)
	e.at = time.Now()
	s.events.add(e)
}
