package project

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

// A WaitRequest is what a call waits for: the readiness or the end of the run that
// Name stands for, a line that matches Pattern, or silence for as long as Idle.
type WaitRequest struct {
	Name    string
	Run     int64          // the id of the run; 0: the run that Name stands for
	Until   string         // UntilReady or UntilExit; anything else is a wait for output
	Pattern *regexp.Regexp // nil: for silence
	Idle    time.Duration
	// After is the cursor after which output counts. If it is "", output after the position
	// that Shown has for the run counts, or all output of the run if Shown is nil.
	After   string
	Shown   *Shown
	Timeout time.Duration // 0 or less: do not wait
}

// Waited is the outcome of a wait.
type Waited struct {
	Run      Run
	TimedOut bool
	// After is the cursor after which output counted; "": the start of the run. Since is
	// when the output before was printed, or when the run started; zero if the caller gave
	// the cursor.
	After string
	Since time.Time
	// Seen is how many lines a wait for output has read, and End the cursor after
	// them, or "" for a wait for a state.
	Seen int
	End  string
	// Match is the line that matched, or nil, and Offset the position of the match. Older
	// means that the line is before the position of the run.
	Match  *logstore.Line
	Offset int
	Older  bool
	// LastOutput is when the run last printed something. It is set after a timeout and
	// with an older match; zero if the run has printed nothing.
	LastOutput time.Time
	// Pending means that a wait for silence timed out before the silence was long enough.
	Pending bool
}

// Wait waits as w says, and for no longer than the run lasts. The timeout includes the
// time in which a process is being spawned.
func (p *Project) Wait(ctx context.Context, w WaitRequest) (done Waited, err error) {
	waiting, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	if w.Run == 0 {
		run, err := p.runToAwait(ctx, waiting, w)
		if err != nil {
			return Waited{}, err
		}
		w.Run = run.RunID
	}
	done.After = w.After
	if w.After == "" && w.Shown != nil {
		var line int64
		if line, done.Since = w.Shown.At(w.Run); line > 0 {
			done.After = w.Shown.After(w.Run)
		}
	}
	if w.Until == UntilReady || w.Until == UntilExit {
		err = p.awaitState(ctx, waiting, w, &done)
	} else {
		err = p.awaitOutput(ctx, waiting, w, &done)
	}
	if w.After == "" && done.Since.IsZero() {
		done.Since = done.Run.StartedAt
	}
	if err == nil && (done.TimedOut || w.Idle > 0 && done.Match == nil) {
		p.setAsks(ctx, &done.Run)
	}
	if err == nil && (done.TimedOut || done.Older) {
		var page *logstore.Page
		page, err = p.Read(ctx, logstore.Query{Runs: []int64{w.Run}, Newest: true, Limit: 1})
		if err == nil && len(page.Lines) > 0 {
			done.LastOutput = page.Lines[0].At
		}
	}
	return done, err
}

// runToAwait returns the run that w is about: the active run, here or in another window,
// or else the latest run. A wait for readiness is about the next run of a process that its
// restart policy starts again, if it has a readiness rule. waiting bounds the wait for a process
// that is being spawned.
func (p *Project) runToAwait(ctx, waiting context.Context, w WaitRequest) (Run, error) {
	name := w.Name
	st, err := p.o.Manager.Await(waiting, name, func(st process.Status) bool { // a run gets its number when it is spawned
		awaitsNext := w.Until == UntilReady && (st.Spec.Ready != nil || process.SpeaksMCP(st.Spec.Stdio))
		return untilConditions[UntilStarted](st) && !(awaitsNext && st.State == process.Backoff)
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && st.State == process.Backoff: // the run before says why
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return Run{}, fmt.Errorf("%s is still being started", name)
	case err != nil && !errors.Is(err, process.ErrUnknown):
		return Run{}, err
	}
	run, err := p.Find(ctx, name)
	if err == nil && run.RunID == 0 {
		err = fmt.Errorf("%s has not run yet; start_process starts it", name)
	}
	return run, err
}

// awaitState is Wait for the readiness or the end of a run.
func (p *Project) awaitState(ctx, waiting context.Context, w WaitRequest, done *Waited) (err error) {
	if w.Until == UntilExit {
		done.Run, err = p.awaitExit(waiting, w.Name, w.Run)
	} else if err = p.awaitChange(waiting, w); err == nil {
		done.Run, err = p.awaitReady(waiting, w.Name, w.Run)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		done.TimedOut, err = true, nil
	}
	if r := &done.Run; err == nil && w.Until == UntilReady && r.lacksReadiness() {
		if r.Stored {
			return fmt.Errorf("%s has no readiness rule, and only the pmcp server that owns it could give it one; wait until log, idle or exit", w.Name)
		}
		return fmt.Errorf("%s has no readiness rule; give ready to start_process, or wait until log or idle", w.Name)
	}
	return err
}

// changePatience is how long a wait for readiness waits for the watcher of a run that is stalled already: the change
// that the caller has just made may not have reached it.
const changePatience = 3 * time.Second

// awaitChange waits until a run is not stalled, for at most changePatience.
func (p *Project) awaitChange(ctx context.Context, w WaitRequest) error {
	waiting, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	_, err := p.awaitRun(waiting, w.Name, w.Run, func(st process.Status) bool { return !st.Stalled() })
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// endWith returns a context that ends once over, which is called in a goroutine with
// that context, returns true. stop waits for the goroutine.
func endWith(ctx context.Context, over func(context.Context) bool) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if over(ctx) {
			cancel()
		}
	})
	return ctx, func() { cancel(); watch.Wait() }
}

// AfterShown returns the cursor after what was shown of the latest run of each of the
// named processes, or of all if names is nil.
func (p *Project) AfterShown(ctx context.Context, names []string, shown *Shown) (string, error) {
	latest, err := p.o.Store.Runs(ctx, logstore.RunFilter{Project: p.name, Names: names, Current: true})
	runs := make([]int64, len(latest))
	for i := range latest {
		runs[i] = latest[i].ID
	}
	return shown.After(runs...), err
}

// Follow waits for lines that q selects until the timeout, and then until the processes
// fall silent (see settleQuiet). If q names processes, it also returns once all of them
// have ended.
func (p *Project) Follow(ctx context.Context, q logstore.Query, timeout time.Duration) (page *logstore.Page, timedOut bool, err error) {
	q.Project = p.name
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	following := waiting
	if len(q.Names) > 0 {
		var stop func()
		following, stop = endWith(waiting, func(ctx context.Context) bool { return p.awaitSilent(ctx, q.Names) })
		defer stop()
	}
	if page, err = p.o.Store.Follow(following, q); err != nil {
		return nil, false, err
	}
	if len(page.Lines) > 0 {
		if _, _, err = p.settle(waiting, q, page); err == nil {
			page, err = p.o.Store.Read(ctx, q)
		}
		return page, false, err
	}
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	timedOut = waiting.Err() != nil
	page, err = p.o.Store.Read(ctx, q) // lines that came as the wait ended
	return page, timedOut && err == nil && len(page.Lines) == 0, err
}
