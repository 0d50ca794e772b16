package project

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/prose"
)

// An InputRequest is what a call sends to a process: Text, or Steps.
type InputRequest struct {
	Name string
	Text string
	// Enter adds what the Enter key sends, and EOF then closes stdin.
	Enter, EOF bool
	// Keys are pressed after Text.
	Keys  []string
	Steps []Step
	// Wait bounds the wait for what the process prints after the input: until silence
	// or a prompt follows it, or the run ends. 0 does not wait.
	Wait time.Duration
}

// An Inputted is the outcome of an InputRequest.
type Inputted struct {
	Run   Run
	Bytes int    // how many were written
	After string // the cursor after which the run has printed something since the call
	// Echo is what the terminal has printed of the text before that.
	Echo ShownLines
	// Prompt means that the last line that the run has printed has no end.
	Prompt bool
	Hint   string
}

// maxPrompt bounds the prompt in Run.Asks, in bytes.
const maxPrompt = 200

// eventLoopSilence is how long a program that polls its input must have been silent behind a line without an end to count
// as waiting for input: it may also draw what goes on.
const eventLoopSilence = time.Second

// setAsks sets r.Asks if a process of the run is blocked in a read of its input after a line without an end, or of its
// terminal. A server may read keys, so without a prompt it is not called waiting, nor if it polls its input.
func (p *Project) setAsks(ctx context.Context, r *Run) {
	if r.Over() || r.Stored {
		return
	}
	blocked, polls := p.o.Manager.AwaitsInput(r.Spec.Name, r.RunID)
	if !blocked && !polls {
		return
	}
	serves := func() bool { return r.Ready != nil && *r.Ready || len(p.treePorts(r.Spec.Name)) > 0 }
	last, err := p.lastLine(ctx, r.RunID)
	switch {
	case err != nil:
	case last.Partial:
		if blocked || time.Since(last.At) >= eventLoopSilence && !serves() {
			r.Asks = fmt.Sprintf("waits for input: %q; send_input answers it", prose.Cut(last.Text, maxPrompt))
		}
	case r.Spec.PTY && blocked && !serves():
		r.Asks = "waits for input; send_input answers it"
	}
}

// lastLine returns the last line that a run has printed, the zero Line if there is none.
func (p *Project) lastLine(ctx context.Context, run int64) (l logstore.Line, err error) {
	page, err := p.Read(ctx, logstore.Query{Runs: []int64{run}, Newest: true, Limit: 1})
	if err == nil && len(page.Lines) > 0 {
		l = page.Lines[0]
	}
	return l, err
}

// Asking returns the run with that id and its last line, if it is one of this session of which a process is blocked in a
// read of its input behind that line, which has no end.
func (p *Project) Asking(ctx context.Context, id int64) (r Run, prompt logstore.Line, asks bool) {
	own := p.o.Manager.List()
	i := slices.IndexFunc(own, func(st process.Status) bool { return st.RunID == id })
	if i < 0 {
		return r, prompt, false
	}
	if blocked, _ := p.o.Manager.AwaitsInput(own[i].Spec.Name, id); !blocked {
		return r, prompt, false
	}
	prompt, err := p.lastLine(ctx, id)
	prompt.Text = prose.Cut(prompt.Text, maxPrompt)
	return p.here(&own[i]), prompt, err == nil && prompt.Partial
}

// Input sends input to a process and waits for what the process prints then. If a
// step fails, Input returns the run and a *StepError.
func (p *Project) Input(ctx context.Context, a InputRequest) (done Inputted, err error) {
	done.Hint = p.learnSteps(a.Steps)
	if err := cmp.Or(checkSteps(a.Steps), checkKeys(a.Keys)); err != nil {
		return done, err
	}
	if err := p.requireHere(ctx, a.Name); err != nil {
		return done, err
	}
	var probe []byte // learns whether the process takes input
	if len(a.Text) > process.MaxInput {
		probe = []byte(a.Text) // which is refused before anything else
	}
	if _, err := p.o.Manager.Input(ctx, a.Name, probe, false); err != nil {
		return done, err
	}
	st, err := p.o.Manager.Status(a.Name)
	if err != nil {
		return done, err
	}
	if len(a.Keys) > 0 {
		if _, err := p.o.Manager.Screen(a.Name); err != nil {
			return done, fmt.Errorf("argument keys: %w", err)
		}
	}
	d, stop := p.openDialogue(ctx, &st)
	defer stop()
	if len(a.Steps) == 0 {
		if err := d.send(ctx, a.Text, a.Enter, a.EOF); err != nil {
			return done, err
		}
		if err := d.press(ctx, a.Keys); err != nil {
			return done, err
		}
	} else {
		if done.After, err = p.End(ctx, []string{a.Name}); err != nil {
			return done, err
		}
		err = d.play(ctx, a.Steps, dialogueTime(a.Steps))
	}
	if d.bytes > 0 || a.EOF && err == nil {
		p.o.Input(p.by, &st, inputText(a, d.bytes))
	}
	if a.Wait > 0 {
		if settleErr := d.settle(ctx, a.Wait); settleErr != nil {
			return done, errors.Join(err, settleErr)
		}
	}
	if done.Bytes, done.Prompt = d.bytes, d.prompting; len(a.Steps) == 0 {
		done.After, done.Echo = d.echoed, d.typed
	}
	now, nowErr := p.o.Manager.AwaitRun(ctx, a.Name, st.RunID, func(process.Status) bool { return true })
	done.Run = p.hereOf(&now)
	if err == nil {
		err = nowErr
	}
	return done, err
}

// Play plays steps with a run that was just started and waits for what the run prints
// then. If the caller waits for the end of the run, Play closes stdin after the last
// step, unless that is a terminal. timeout bounds the steps together; 0 stands for the
// default. If a step fails, Play returns the run and a *StepError.
func (p *Project) Play(ctx context.Context, s Started, steps []Step, timeout time.Duration) (Run, error) {
	d, stop := p.openDialogue(ctx, &s.Run.Status)
	defer stop()
	err := d.play(ctx, steps, cmp.Or(timeout, dialogueTime(steps)))
	if err == nil && s.Wait == UntilExit && !d.pty {
		_, _ = p.o.Manager.Input(ctx, d.name, nil, true) // the process may have closed it, or ended
	}
	if settleErr := d.settle(ctx, outputMost); settleErr != nil {
		return Run{}, errors.Join(err, settleErr)
	}
	now, nowErr := p.awaitRun(ctx, d.name, d.run, func(process.Status) bool { return true })
	if err == nil {
		err = nowErr
	}
	return now, err
}

// inputText returns what was sent to a process, without the text: "12 bytes", "the keys down, enter".
func inputText(a InputRequest, bytes int) string {
	var keys []string
	for _, key := range a.Keys {
		if utf8.RuneCountInString(key) == 1 { // it is text
			key = "character"
		}
		keys = append(keys, key)
	}
	if len(keys) > maxInputKeys {
		keys = append(keys[:maxInputKeys], fmt.Sprintf("%d more", len(keys)-maxInputKeys))
	}
	switch {
	case len(keys) > 0 && a.Text != "":
		return fmt.Sprintf("%d bytes, with the keys %s", bytes, strings.Join(keys, ", "))
	case len(keys) > 0:
		return "the keys " + strings.Join(keys, ", ")
	case a.EOF && bytes == 0:
		return "the end of its input"
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// maxInputKeys is how many keys an event names.
const maxInputKeys = 5
