package project

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

const (
	// waitLines is the most lines that a wait for output reads at once.
	waitLines = 10_000
	// olderAfter is how long nothing must come until a line before the position of the
	// run is an answer to a wait.
	olderAfter = 10 * time.Second
	// A wait that has seen a match takes in what follows until settleQuiet passes without
	// output, but for no longer than settleMost.
	settleQuiet = 150 * time.Millisecond
	settleMost  = time.Second
	// promptDelay is the silence after which an unfinished line is stored anyway.
	promptDelay = 200 * time.Millisecond
)

// An outputWait is a wait for output of a run.
type outputWait struct {
	*Project
	WaitRequest
	done *Waited
	// query reads what is next.
	query logstore.Query
	// waiting ends at the timeout, running also when no more output of the run can come.
	waiting, running context.Context
	over             bool      // the run had ended when the wait began
	last             time.Time // when the last line that was read was printed
	quietSince       time.Time // when the last line was read, or the wait began
	readHeld         bool      // the lines that were held are stored and are read next
	older            bool      // a line before the position may still be the answer
	pending          bool      // continues a wait for silence, which has seen output
}

// awaitOutput is Wait for output of a run.
func (p *Project) awaitOutput(ctx, waiting context.Context, w WaitRequest, done *Waited) error {
	running, stop := endWith(waiting, func(ctx context.Context) bool {
		_, err := p.awaitRun(ctx, w.Name, w.Run, untilConditions[UntilExit])
		return err == nil
	})
	defer stop()
	now, err := p.awaitRun(ctx, w.Name, w.Run, func(process.Status) bool { return true })
	if err != nil {
		return err
	}
	o := &outputWait{Project: p, WaitRequest: w, done: done, waiting: waiting, running: running, over: now.Over(), quietSince: time.Now()}
	o.query = logstore.Query{Project: p.name, Runs: []int64{w.Run}, After: done.After, Limit: waitLines}
	if w.After != "" { // the cursor may be in an earlier run
		o.query.Names, o.query.UpTo, o.query.Runs = []string{w.Name}, w.Run, nil
	}
	o.older = w.Pattern != nil && w.After == "" && done.After != ""
	if w.Pattern == nil && w.After == "" && w.Shown != nil && w.Shown.isPending(w.Run) {
		o.pending, o.last = true, done.Since
	}
	for over := false; !over && err == nil; {
		over, err = o.next(ctx)
	}
	if err != nil {
		return err
	}
	done.Run, err = p.awaitRun(ctx, w.Name, w.Run, func(process.Status) bool { return true })
	return err
}

// next reads what comes next. over reports whether the wait is over.
func (o *outputWait) next(ctx context.Context) (over bool, err error) {
	final := o.waiting.Err() != nil // one more read after the timeout, however much more output follows
	next, cancel := o.running, context.CancelFunc(func() {})
	switch {
	case o.awaitsSilence():
		next, cancel = context.WithTimeout(o.running, silenceLeft(o.last, o.Idle))
	case o.older:
		next, cancel = context.WithTimeout(o.running, silenceLeft(o.quietSince, olderAfter))
	}
	page, err := o.readNext(ctx, next, o.query)
	if cancel(); err != nil {
		return true, err
	}
	if i := matchingLine(page, o.Pattern); i >= 0 {
		o.setMatch(&page.Lines[i])
		return true, o.settleAfter(ctx, page)
	}
	o.query.After = page.Next()
	o.done.End = o.query.After
	if n := len(page.Lines); n > 0 {
		o.done.Seen, o.last, o.quietSince, o.readHeld = o.done.Seen+n, page.Lines[n-1].At, time.Now(), false
		if !final {
			return false, nil
		}
	}
	return o.isOver(ctx, page.MoreAfter)
}

// isOver reports whether the wait is over although no line matched. moreFollows means
// that the timeout has passed and more output is there to read.
func (o *outputWait) isOver(ctx context.Context, moreFollows bool) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return true, ctx.Err()
	case moreFollows:
		o.setTimedOut()
		return true, nil
	case o.awaitsSilence() && o.running.Err() == nil && o.printedSince():
		return false, nil
	case o.awaitsSilence() && (o.waiting.Err() == nil || silenceLeft(o.last, o.Idle) == 0):
		return true, nil
	case o.waiting.Err() != nil && !o.over:
		o.setTimedOut()
		return true, nil
	case o.older && (o.running.Err() != nil || silenceLeft(o.quietSince, olderAfter) == 0):
		o.older = false // searched once
		found, err := o.searchOlder(ctx)
		return found || o.running.Err() != nil, err
	}
	return o.running.Err() != nil, nil
}

// awaitsSilence reports whether silence ends the wait, since there was output before it.
func (o *outputWait) awaitsSilence() bool {
	return o.Pattern == nil && (o.done.Seen > 0 || o.pending)
}

// printedSince reports whether there may be more to read than the lines that were read: lines that the run redraws are
// held. After the silence that the wait is for, they are stored.
func (o *outputWait) printedSince() bool {
	quiet := max(o.Idle, promptDelay)
	silent := o.o.Store.StorePrompts(o.Run, quiet)
	if printed := time.Now().Add(-silent); printed.Sub(o.last) >= time.Millisecond {
		o.last, o.readHeld = printed, false
		return true
	}
	if silent < quiet || o.readHeld {
		return false
	}
	o.readHeld = true
	return true
}

func (o *outputWait) setTimedOut() {
	o.done.TimedOut, o.done.Pending = true, o.awaitsSilence()
}

func (o *outputWait) setMatch(l *logstore.Line) {
	o.done.Match, o.done.Offset = l, o.Pattern.FindStringIndex(l.Text)[0]
}

// settleAfter completes the wait after a match in page with what follows the page.
func (o *outputWait) settleAfter(ctx context.Context, page *logstore.Page) error {
	lines, end, err := o.settle(o.waiting, logstore.Query{Runs: []int64{o.Run}}, page)
	o.done.Seen, o.done.End = o.done.Seen+len(page.Lines)+lines, end
	return cmp.Or(err, ctx.Err())
}

// searchOlder searches the lines before the position of the run, and reports whether one
// matches. The match is the last of them.
func (o *outputWait) searchOlder(ctx context.Context) (found bool, err error) {
	matches, err := o.Search(ctx, logstore.SearchQuery{
		Query: logstore.Query{Runs: []int64{o.Run}, Before: o.done.After, Limit: 1},
		Text:  o.Pattern.String(), Regexp: true, CaseSensitive: true,
	})
	if err != nil {
		return false, fmt.Errorf("cannot search what was printed before: %w", err)
	}
	if len(matches.Hits) == 0 {
		return false, nil
	}
	o.setMatch(&matches.Hits[0].Line)
	o.done.Older = true
	return true, nil
}

// matchingLine returns the index of the first line of page that matches pattern, or
// -1 if there is none or pattern is nil.
func matchingLine(page *logstore.Page, pattern *regexp.Regexp) int {
	for i := range page.Lines {
		if pattern != nil && pattern.MatchString(page.Lines[i].Text) {
			return i
		}
	}
	return -1
}

// readNext returns the next lines once some arrive or next ends. The page is empty if
// no lines arrived.
func (p *Project) readNext(ctx, next context.Context, q logstore.Query) (*logstore.Page, error) {
	if next.Err() == nil {
		if page, err := p.o.Store.Follow(next, q); err != nil || len(page.Lines) > 0 {
			return page, err
		}
	}
	return p.o.Store.Read(ctx, q) // the last output
}

// settle reads the lines that q selects after page, which is not empty, until they have stopped coming for settleQuiet, but
// for no longer than settleMost and no longer than ctx. It returns how many there are, and the cursor after them.
func (p *Project) settle(ctx context.Context, q logstore.Query, page *logstore.Page) (lines int, end string, err error) {
	waiting, cancel := context.WithTimeout(ctx, settleMost)
	defer cancel()
	q.Project, q.Limit, q.Newest, q.Latest = p.name, waitLines, false, false
	q.After = page.Next()
	last := page.Lines[len(page.Lines)-1].At
	for {
		silent, cancel := context.WithTimeout(waiting, silenceLeft(last, settleQuiet))
		page, err = p.readNext(context.WithoutCancel(ctx), silent, q)
		cancel()
		if err != nil {
			return lines, q.After, err
		}
		n := len(page.Lines)
		if n > 0 {
			lines, q.After, last = lines+n, page.Next(), page.Lines[n-1].At
		}
		if waiting.Err() != nil || n == 0 && silenceLeft(last, settleQuiet) == 0 {
			return lines, q.After, nil
		}
	}
}

// silenceLeft returns how much longer the silence since last must last to be as long
// as quiet. It is at most quiet, as the clock may have been set back.
func silenceLeft(last time.Time, quiet time.Duration) time.Duration {
	return max(0, min(quiet, quiet-time.Since(last)))
}
