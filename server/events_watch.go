package server

import (
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/server/project"
)

// addWatchEvent adds the event of a change of watched files.
func (l *eventLog) addWatchEvent(w *project.WatchEvent) {
	l.add(*watchEvent(w))
	l.onChange(w.Run.Spec.Name)
}

// watchEvent returns the event of a change of watched files. No answer reports the cause of a run, so the event has no stage.
func watchEvent(w *project.WatchEvent) *event {
	run := &w.Run
	e := &event{at: time.Now(), level: mcp.LoggingLevelNotice, name: run.Spec.Name, run: run.Status.Run, runID: run.RunID}
	what := changedFiles(w)
	switch {
	case w.Err == nil:
		e.kind, e.text, e.watched = logstore.EventRestarted, "restarted, "+what, true
	case what == "":
		e.level, e.text = mcp.LoggingLevelWarning, fmt.Sprintf("watching has ended: %v; restart_process begins it again", w.Err)
	default:
		e.level, e.text = mcp.LoggingLevelError, fmt.Sprintf("%s, but it was not restarted: %v", what, w.Err)
	}
	e.text = fmt.Sprintf("%s (run %d): %s", e.name, e.run, e.text)
	return e
}

// changedFiles returns the changes of an event in words: "src/app.js and 2 more changed", or "" if there are none.
func changedFiles(w *project.WatchEvent) string {
	more := ""
	switch n := len(w.Burst.Files) - 1; {
	case w.Burst.More && n < 0:
		return "many files changed"
	case w.Burst.More:
		more = " and many more"
	case n < 0:
		return ""
	case n > 0:
		more = fmt.Sprintf(" and %d more", n)
	}
	return quoteUnlessPlain(cut(w.Burst.Files[0], maxClientName)) + more + " changed"
}
