package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/args"
	"pmcp/server/project"
)

// drain removes the pending events and returns them, oldest first, for the answer
// to a call that began at began. It leaves out events that the answer itself
// reports; about is what the answer reports, shown the output that it shows.
func (l *eventLog) drain(began time.Time, about []reported, shown ...project.ShownLines) (n pendingEvents) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range about {
		for id, seen := range t.errors {
			l.setReportedLocked(t.name, id, seen)
		}
		if t.stage == 0 { // only its errors are reported
			continue
		}
		l.answered[t.name] = answerReport{t, began}
		l.wake.answered(&t)
		l.pending = slices.DeleteFunc(l.pending, func(e event) bool { // the answer says how ready it is now
			return e.stage == 0 && (e.kind == logstore.EventReady || e.kind == logstore.EventUnready) && t.matches(&e)
		})
		if run := l.cutOff[t.name]; t.stage == stageEnded && run != 0 { // the event is older than the call, but the answer reports it
			l.pending = slices.DeleteFunc(l.pending, func(e event) bool { return e.runID == run && e.stage == stageEnded && e.fault == "" })
			delete(l.cutOff, t.name)
		}
	}
	for i := range l.pending {
		if l.pending[i].stage == stageEnded {
			delete(l.cutOff, l.pending[i].name)
		}
	}
	l.shown = append(l.shown, shown...)
	l.shown = l.shown[max(0, len(l.shown)-maxShown):]
	slices.SortStableFunc(l.pending, func(a, b event) int { return a.at.Compare(b.at) }) // pending is not sorted, because several feeds add events
	events := slices.DeleteFunc(l.pending, func(e event) bool { return l.isReportedLocked(&e) })
	for _, e := range l.foldLocked(events, about) {
		n.texts = append(n.texts, clockTime(e.at)+" "+e.String())
		n.output = n.output || e.quote != ""
	}
	n.bound(eventsMaxBytes, l.dropped)
	l.pending, l.dropped = nil, 0
	l.wake.told()
	return n
}

// setCutOff records that a call waits for the end of a run. If it is cancelled or times
// out, no answer reports that end.
func (l *eventLog) setCutOff(name string, run int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutOff[name] = run
}

// cutOffRun returns the run of a process whose end a call was cut off from, if no
// answer has reported that end since; else 0.
func (l *eventLog) cutOffRun(name string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cutOff[name]
}

// eventsRoom returns the most bytes of the events in the answer to a call: fewer than
// usual if the call asks for a small answer.
func eventsRoom(given args.Given) int {
	most, ok := args.Int(given["max_bytes"]) // the call has reported what is wrong
	if !ok || most <= 0 {
		return eventsMaxBytes
	}
	return min(eventsMaxBytes, max(minShare, int(min(most, eventsMaxBytes*4))/4))
}

// bound drops the oldest events that exceed room, and adds a line that counts them and
// the dropped ones from before.
func (n *pendingEvents) bound(room, dropped int) {
	if n.dropped > 0 {
		n.texts = n.texts[1:] // the line that counts them
	}
	dropped += n.dropped
	for i, text := range slices.Backward(n.texts) {
		if room -= sizeOfString(text); room < 0 && i < len(n.texts)-1 {
			dropped += i + 1
			n.texts = n.texts[i+1:]
			break
		}
	}
	if n.dropped = dropped; dropped > 0 {
		n.texts = slices.Insert(n.texts, 0, fmt.Sprintf("%s: list_processes and get_errors show what they are about", countNoun(int64(dropped), "earlier event", "earlier events")))
	}
}

// reportedErrors are the errors of a process that were reported to the client. The zero value is
// ready to use.
type reportedErrors struct {
	seen   map[string]time.Time // when each of them had last occurred, by id
	latest string               // the id of the one that was reported last
}

// maxReported bounds how many errors of a process are remembered.
const maxReported = 1000

// includes reports whether e is about an error that was reported to the client, and not one
// that is back since.
func (t reportedErrors) includes(e *event) bool {
	seen, ok := t.seen[e.fault]
	return ok && (!e.back || !e.at.After(seen))
}

// setReportedLocked records that an error, which last occurred at seen, was reported to the client.
func (l *eventLog) setReportedLocked(name, id string, seen time.Time) {
	t := l.reported[name]
	if t.seen == nil || len(t.seen) >= maxReported {
		t.seen = make(map[string]time.Time)
	}
	if !seen.Before(t.seen[id]) {
		t.seen[id] = seen
	}
	if !seen.Before(t.seen[t.latest]) {
		t.latest = id
	}
	l.reported[name] = t
}

// foldLocked returns the events, oldest first, without what they repeat: an error that a run
// ended with is part of the event of that end; ends of a process with the same error are one
// event, the last, with their number, and so are restarts of a process by changes; a restart is left out if a later
// end shows it, and readiness if such a restart has ended it; and what was reported last, or is
// in the answer itself (about), is not quoted again.
func (l *eventLog) foldLocked(events []event, about []reported) (folded []event) {
	type end struct{ name, why string }
	runs := make(map[end]int)
	ended := make(map[string]bool)  // by name: a later event is an end
	changed := make(map[string]int) // by name: how many events are restarts by changes
	for i, e := range slices.Backward(events) {
		if e.fault != "" {
			at := slices.IndexFunc(events, func(end event) bool { return end.name == e.name && end.runID == e.runID && end.why == e.fault })
			if at >= 0 {
				continue
			}
		} else if e.restarted && ended[e.name] || e.stage == stageReady && changed[e.name] > 0 {
			continue
		}
		if e.watched {
			if changed[e.name]++; changed[e.name] > 1 {
				continue
			}
		}
		if e.why != "" {
			ended[e.name] = true
			same := end{e.name, e.why}
			if runs[same]++; runs[same] > 1 {
				continue
			}
		}
		folded = append(folded, events[i])
	}
	slices.Reverse(folded)
	for i := range folded {
		e := &folded[i]
		isShown := e.quoted.last > 0 && l.isShownLocked(e.runID, e.quoted)
		listed := slices.ContainsFunc(about, func(t reported) bool { return t.name == e.name && !t.errors[e.why].IsZero() })
		if e.why != "" && (isShown || listed || l.reported[e.name].latest == e.why) {
			e.text += "; same error"
			isShown = true
		}
		if isShown {
			e.quote = ""
		}
		if n := changed[e.name]; e.watched && n > 1 {
			e.text += fmt.Sprintf(" (%d restarts)", n)
		}
		if n := runs[end{e.name, e.why}]; n > 1 {
			e.text += fmt.Sprintf(" (%d runs)", n)
		}
		if id := cmp.Or(e.fault, e.why); id != "" {
			l.setReportedLocked(e.name, id, e.at)
		}
	}
	return folded
}

// pendingEvents are the events that an answer reports in addition to what the call
// asked for.
type pendingEvents struct {
	texts  []string
	output bool // some of the events quote output of a process

	dropped int // number of the events that the first of texts counts
}

// write writes the lines about the events for the end of an answer.
func (n pendingEvents) write(t *answerText) {
	t.events("events since the last answer:", n.texts, n.output)
}

// The watch of what the daemon keeps: how often it looks after a change, and without one, as the
// death of a server changes nothing. maxKept bounds how many processes it follows.
const (
	keptPeriod = 250 * time.Millisecond
	keptCheck  = 5 * time.Second
	maxKept    = 1000
)

// A keptRun is a process that the daemon keeps, as last seen.
type keptRun struct {
	process.Status
	since time.Time       // when the first of the calls about it was sent
	after string          // the cursor of the last answer that showed output of it
	known map[string]bool // whether each of its errors, by id, was back after it was resolved; guarded by eventLog.mu, nil before the first read

	answers int // how many answers were about it

	acts map[act]bool // those that the last addKeptActs has read
}

// followKept follows a process that the daemon has started, restarted or kept for longer for this
// session, so that its end and its errors are events here, too. answer is what the daemon has answered to a
// call that was sent at sent; the process is not followed if that shows none which is kept.
func (l *eventLog) followKept(name string, sent time.Time, answer json.RawMessage) {
	var a struct {
		State   string `json:"state"`
		Run     int    `json:"run"`
		Ready   *bool  `json:"ready"`
		KeptFor string `json:"kept_for"`
		Cursor  string `json:"next_cursor"`
		Lines   []any  `json:"lines"`
	}
	if json.Unmarshal(answer, &a) != nil || a.KeptFor == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	was, followed := l.kept[name]
	if !followed {
		was = keptRun{since: sent}
	}
	was.answers++
	was.Status = process.Status{Run: a.Run, Ready: a.Ready}
	if len(a.Lines) > 0 {
		was.after = a.Cursor
	}
	was.State, _ = process.ParseState(a.State)
	if l.kept == nil {
		l.kept = make(map[string]keptRun)
		l.done.Go(l.watchKept)
	}
	if followed || len(l.kept) < maxKept {
		l.kept[name] = was
	}
}

// watchKept adds the events of what followKept follows, until all of it has ended. It sees what
// the daemon has stored.
func (l *eventLog) watchKept() {
	version := l.store.Version(l.ctx)
	for {
		l.mu.Lock()
		kept := maps.Clone(l.kept)
		if len(kept) == 0 || l.ctx.Err() != nil {
			l.kept = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		runs, err := l.store.Latest(l.ctx, l.project, slices.Collect(maps.Keys(kept)))
		l.addKeptErrors(runs, kept)
		l.addKeptActs(kept)
		for i := range runs {
			name, run := runs[i].Spec.Name, &runs[i]
			was := kept[name].Status
			l.mu.Lock()
			now := l.kept[name]
			current := now.answers == kept[name].answers && now.Run <= run.Status.Run // else an answer was newer than the read
			if current {
				now.Status = run.Status
				l.kept[name] = now
			}
			delete(kept, name)
			if current && run.Idle() && run.Owner == nil && run.State == was.State { // what was done to it is stored by now
				delete(l.kept, name)
			}
			l.mu.Unlock()
			if current {
				l.addKeptEvents(run, was)
			}
		}
		if err == nil { // what is left was removed
			l.mu.Lock()
			maps.DeleteFunc(l.kept, func(name string, now keptRun) bool {
				was, gone := kept[name]
				return gone && was.answers == now.answers
			})
			l.mu.Unlock()
		}
		waiting, cancel := context.WithTimeout(l.ctx, keptCheck)
		version, _ = l.store.AwaitVersion(waiting, version)
		cancel()
		select {
		case <-time.After(keptPeriod):
		case <-l.ctx.Done():
		}
	}
}

// addKeptErrors adds the events of the errors in runs, the latest ones of kept, that are new, or are back
// after they were resolved, since the process was followed, and that no answer can have shown.
func (l *eventLog) addKeptErrors(runs []project.Run, kept map[string]keptRun) {
	q := logstore.FaultQuery{Since: time.Now(), SkipFlush: true}
	for i := range runs {
		q.Runs = append(q.Runs, runs[i].RunID)
		k := kept[runs[i].Spec.Name]
		if k.since.Before(q.Since) {
			q.Since = k.since
		}
		if k.known == nil {
			k.known = l.errorsBefore(&runs[i], k.since)
			kept[runs[i].Spec.Name] = k
		}
	}
	if len(q.Runs) == 0 {
		return
	}
	faults, _, err := l.store.Faults(l.ctx, q)
	if err != nil {
		return // tried again with the next change
	}
	for i := range slices.Backward(faults) {
		f := &faults[i]
		k, followed := kept[f.Name]
		if !followed || k.known == nil || f.IsEnd() || f.LastSeen.Before(k.since) {
			continue
		}
		l.mu.Lock()
		back, known := k.known[f.ID]
		k.known[f.ID] = f.Regressed
		l.mu.Unlock()
		if !(f.Regressed && !back) && (known || f.FirstSeen.Before(k.since)) {
			continue
		}
		if later, _, err := l.store.Faults(l.ctx, logstore.FaultQuery{ID: f.ID, Runs: q.Runs, After: k.after, SkipFlush: true}); err != nil || len(later) > 0 {
			l.addError(f, f.Regressed, true)
		}
	}
}

// maxErrorsBefore bounds how many errors of a process errorsBefore returns.
const maxErrorsBefore = 1000

// errorsBefore sets and returns what is known of the errors of a process that were seen before since. It
// returns nil if they cannot be read.
func (l *eventLog) errorsBefore(run *project.Run, since time.Time) map[string]bool {
	name := run.Spec.Name
	faults, _, err := l.store.Faults(l.ctx, logstore.FaultQuery{Project: run.Project, Until: since, SkipFlush: true, Limit: maxErrorsBefore})
	if err != nil {
		return nil
	}
	known := make(map[string]bool)
	for i := range faults {
		if f := &faults[i]; f.Name == name {
			known[f.ID] = f.Regressed
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k, followed := l.kept[name]; followed {
		k.known = known
		l.kept[name] = k
	}
	return known
}

// setResolved records that the client has marked an error as resolved: if it is back, that is an event.
func (l *eventLog) setResolved(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.kept {
		if k.known[id] {
			k.known[id] = false
		}
	}
}

// keptEnds are the ends of what the daemon keeps for which no client has asked.
var keptEnds = map[process.EndedBy]string{
	process.ByTime:    "the time for which it was kept is over",
	process.BySession: "the daemon that kept it has ended",
}

// addKeptEvents adds the events of the step from was to run, the latest run of a process that the
// daemon keeps.
func (l *eventLog) addKeptEvents(run *project.Run, was process.Status) {
	st, from := &run.Status, process.Starting
	if st.Run == was.Run {
		was.RunID, from = st.RunID, was.State
	}
	if st.Run == was.Run && st.State == from && (st.Ready == nil || was.Ready != nil && *st.Ready == *was.Ready) {
		return
	}
	events := processEvents(&was, st, from)
	if st.Exit != nil && st.State == process.Stopped && keptEnds[st.Exit.By] != "" {
		events = append(events, event{kind: logstore.EventStopped, level: mcp.LoggingLevelNotice, stage: stageEnded, text: fmt.Sprintf("%s (run %d) was stopped: %s", st.Spec.Name, st.Run, keptEnds[st.Exit.By])})
	}
	for _, e := range events {
		e.at, e.name, e.run, e.runID, e.stored = time.Now(), st.Spec.Name, st.Run, st.RunID, true
		if e.stage == stageEnded {
			l.addKeptEnd(run, &e)
		}
		l.add(e)
	}
	l.onChange(st.Spec.Name)
}

// addKeptEnd is addEndDetails for a run of another server.
func (l *eventLog) addKeptEnd(run *project.Run, e *event) {
	if !run.EndedBadly() {
		l.addKeptLine(run, e)
		return
	}
	e.at = cmp.Or(run.EndedAt, e.at)
	if faults, _, err := l.store.Faults(l.ctx, logstore.FaultQuery{Runs: []int64{run.RunID}, Limit: maxEvents, SkipFlush: true}); err == nil && len(faults) > 0 {
		logstore.SortByCause(faults)
		if f := &faults[0]; !f.IsEnd() {
			e.why, e.quote, e.quoted = f.ID, quoteTitle(f), linesOf(f)
		}
	}
	if e.quote == "" {
		l.addKeptLine(run, e)
	}
}

func (l *eventLog) addKeptLine(run *project.Run, e *event) {
	if page, err := l.store.Read(l.ctx, logstore.Query{Runs: []int64{run.RunID}, Newest: true, Limit: 1}); err == nil && len(page.Lines) > 0 {
		e.addLastLine(page.Lines[0].Text, page.Lines[0].Number)
	}
}
