package project

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

const (
	// outputQuiet is the silence after output that ends the wait for more of it. A line
	// without an end is then a prompt.
	outputQuiet = 150 * time.Millisecond
	// outputMost bounds the wait for that silence before an answer to a question is
	// sent.
	outputMost = time.Second
	// maxSearched is how much of a line an expected text is searched in, in bytes.
	maxSearched = 64 << 10
)

// A dialogue reads what one run prints and sends it input. It is owned by one
// goroutine.
type dialogue struct {
	p    *Project
	name string
	run  int64
	pty  bool
	// running ends with the run or with the call.
	running context.Context

	after   string     // the cursor of the last input, or "" for the start of the run
	echoed  string     // the cursor after the echo of the last input
	typed   ShownLines // the lines of that echo
	read    string     // the cursor up to which output was read
	lines   []outputLine
	rest    map[uint8]string // by stream, the latest line that was searched, after the last match
	echo    echo
	printed bool      // the run has printed something other than the echo since the last input
	sent    time.Time // when the last input was sent
	pressed bool      // that was a key
	bytes   int       // how many bytes were sent
	// prompting means that the last line that was read has no end.
	prompting bool
}

// An echo is what a terminal is about to print of the last input. The zero value is
// none.
type echo struct {
	lines  []string
	kernel bool   // the terminal prints it, not the program
	prompt string // the unfinished line that the input answered
}

// A lastInput is the position in the output of a run at which the run was last sent
// input.
type lastInput struct {
	run    int64
	cursor string
	echo   echo
}

// An outputLine is a line of output, or a part of one, that was not searched yet.
type outputLine struct {
	text      string // without the echo of input
	stream    uint8
	continues bool // the text continues the line before it on the stream
}

// openDialogue returns a dialogue with the run of st, from the last input that the run
// was sent. The caller must call stop.
func (p *Project) openDialogue(ctx context.Context, st *process.Status) (d *dialogue, stop func()) {
	d = &dialogue{p: p, name: st.Spec.Name, run: st.RunID, pty: st.Spec.PTY, rest: make(map[uint8]string)}
	if last, ok := p.inputs.Load(d.name); ok && last.(lastInput).run == d.run {
		d.after, d.echo = last.(lastInput).cursor, last.(lastInput).echo
	}
	d.read = d.after
	d.running, stop = endWith(ctx, func(ctx context.Context) bool {
		_, err := p.awaitRun(ctx, d.name, d.run, untilConditions[UntilExit])
		return err == nil
	})
	return d, stop
}

// send writes text to the stdin of the run, then what the Enter key sends if enter is
// set, and closes stdin if eof is set. What the run prints from then on counts as an
// answer to it.
func (d *dialogue) send(ctx context.Context, text string, enter, eof bool) error {
	d.p.o.Store.StorePrompts(d.run, 0) // what was printed before is not mixed with the echo
	page, err := d.p.Read(ctx, logstore.Query{Names: []string{d.name}, Newest: true, Limit: 1})
	if err != nil {
		return err
	}
	st, err := d.p.o.Manager.Status(d.name)
	if err == nil && st.RunID != d.run {
		err = fmt.Errorf("%s has ended, and run %d has been started since", d.name, st.Run)
	}
	if err != nil {
		return err
	}
	var printed echo
	if d.pty {
		printed.kernel = d.p.o.Manager.Echoes(d.name)
		printed.lines = strings.FieldsFunc(d.p.o.Mask.Text(text), func(r rune) bool { return r == '\r' || r == '\n' })
	}
	if n := len(page.Lines); n > 0 && page.Lines[n-1].Partial {
		printed.prompt = page.Lines[n-1].Text
	}
	if enter {
		text += enterKey(d.pty)
	}
	d.sent = time.Now()
	n, err := d.p.o.Manager.Input(ctx, d.name, []byte(text), eof)
	if d.bytes += n; err != nil {
		return fmt.Errorf("%w (%d of %d bytes were written)", err, n, len(text))
	}
	d.after, d.echoed, d.read, d.echo = page.Next(), page.Next(), page.Next(), printed
	d.lines, d.typed, d.printed, d.prompting = nil, ShownLines{}, false, false
	clear(d.rest)
	d.p.inputs.Store(d.name, lastInput{d.run, d.after, printed})
	return nil
}

// enterKey returns what the Enter key sends to a process. On a terminal the Enter
// key sends a carriage return. The line discipline turns it into a line end, unless
// the program reads single keys; such a program expects a carriage return.
func enterKey(pty bool) string {
	if pty {
		return "\r"
	}
	return "\n"
}

// without returns the text of a line without the echo. What is left is what the
// program itself printed.
func (e *echo) without(l *logstore.Line) (text string, wasEcho bool) {
	if len(e.lines) == 0 || l.Stream != logstore.Stdout {
		return l.Text, false
	}
	want := e.lines[0]
	rest, found := strings.CutPrefix(l.Text, want)
	switch {
	case found && (e.kernel || rest == ""):
		e.lines = e.lines[1:]
		return rest, rest == ""
	case l.Text == e.prompt+want: // a program that reads single keys prints its line again
		e.lines = e.lines[1:]
		return "", true
	case e.kernel && l.Partial && strings.HasPrefix(want, l.Text):
		e.lines = append([]string{want[len(l.Text):]}, e.lines[1:]...)
		return "", true
	}
	e.lines = nil // the program printed something else first
	return l.Text, false
}

// poll reads what the run has printed, prompts included. It returns how long the run
// has been silent.
func (d *dialogue) poll(ctx context.Context) (silent time.Duration, err error) {
	silent = d.p.o.Store.StorePrompts(d.run, outputQuiet)
	page, err := d.p.Read(ctx, d.query())
	d.add(page)
	return silent, err
}

// await waits for output that was not read yet, until the run has been silent for
// outputQuiet, or until ends. It reads that output.
func (d *dialogue) await(until context.Context, silent time.Duration) error {
	pause := outputQuiet
	if silent < outputQuiet {
		pause -= silent
	}
	until, cancel := context.WithTimeout(until, pause)
	defer cancel()
	page, err := d.p.o.Store.Follow(until, d.query())
	d.add(page)
	return err
}

func (d *dialogue) query() logstore.Query {
	q := logstore.Query{Project: d.p.name, Runs: []int64{d.run}, After: d.read, Limit: waitLines}
	if q.After == "" {
		q.After = logstore.CursorStart
	}
	return q
}

// add adds the lines of a page, which may be nil, to those that were not searched yet.
func (d *dialogue) add(page *logstore.Page) {
	if page == nil {
		return
	}
	d.read = page.Next()
	for i := range page.Lines {
		l := &page.Lines[i]
		text, wasEcho := d.echo.without(l)
		if wasEcho && !d.printed {
			d.echoed = page.Cursor(i)
			d.typed = ShownLines{Run: l.Run, First: cmp.Or(d.typed.First, l.Number), Last: l.Number, At: l.At}
		}
		d.printed, d.prompting = d.printed || !wasEcho, l.Partial && !wasEcho
		d.lines = append(d.lines, outputLine{text, l.Stream, l.Continuation})
	}
}

// find searches what was read for s and reports whether it is there. A later call
// searches what follows the match.
func (d *dialogue) find(s *Step) bool {
	for stream, rest := range d.rest {
		if end := s.match(rest); end >= 0 {
			d.rest[stream] = rest[end:]
			return true
		}
	}
	for len(d.lines) > 0 {
		l := d.lines[0]
		d.lines = d.lines[1:]
		if l.continues {
			l.text = d.rest[l.stream] + l.text
		}
		end := s.match(l.text)
		d.rest[l.stream] = l.text[max(0, end, len(l.text)-maxSearched):]
		if end >= 0 {
			return true
		}
	}
	return false
}

// expect reads until the run has printed what s expects. The error is a *StepError,
// except that of a read.
func (d *dialogue) expect(ctx, playing context.Context, s *Step) error {
	until, cancel := context.WithTimeout(playing, s.timeout())
	defer cancel()
	end, _ := until.Deadline()
	for {
		over := until.Err() != nil // one more read after the time is over, however much output follows
		silent, err := d.poll(ctx)
		more := len(d.lines) > 0
		switch {
		case err != nil:
			return err
		case d.find(s):
			return nil
		case over && ctx.Err() != nil:
			return ctx.Err()
		case over && more && time.Now().Before(end): // the run has ended, but not the output to read
			continue
		case over && d.running.Err() != nil:
			return fmt.Errorf("%s ended before %s came", d.name, s.quoted())
		case over && playing.Err() != nil:
			return fmt.Errorf("%s had not come when the time of the call was over", s.quoted())
		case over:
			return fmt.Errorf("%s did not come within %s", s.quoted(), s.timeout())
		}
		if err := d.await(until, silent); err != nil {
			return err
		}
	}
}

// settle reads until the run has printed something since the last input and has then
// been silent for outputQuiet, until the run has ended, or until most is over.
func (d *dialogue) settle(ctx context.Context, most time.Duration) error {
	until, cancel := context.WithTimeout(d.running, most)
	defer cancel()
	for {
		over := until.Err() != nil
		silent, err := d.poll(ctx)
		printed, silent := d.settled(d.printed, silent)
		if d.lines = nil; err != nil || over || printed && silent >= outputQuiet {
			return err
		}
		if err := d.await(until, silent); err != nil {
			return err
		}
	}
}

// play plays steps in order. If one of them fails, it sends nothing more and returns a
// *StepError, or ctx's error.
func (d *dialogue) play(ctx context.Context, steps []Step, timeout time.Duration) error {
	playing, cancel := context.WithTimeout(d.running, timeout)
	defer cancel()
	for i := range steps {
		err := d.playStep(ctx, playing, &steps[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return &StepError{Index: i, Steps: len(steps), Cause: err}
		}
	}
	return nil
}

// playStep plays one step.
func (d *dialogue) playStep(ctx, playing context.Context, s *Step) error {
	if s.Expect != "" {
		if err := d.expect(ctx, playing, s); err != nil || s.Send == nil {
			return err
		}
		if err := d.settle(ctx, outputMost); err != nil { // a program may drop what comes before it reads
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.send(ctx, *s.Send, s.Newline == nil || *s.Newline, false)
}

// settled returns printed and silent with what a program has drawn taken into account: only that
// counts if it has taken the whole screen, and also that after keys.
func (d *dialogue) settled(printed bool, silent time.Duration) (bool, time.Duration) {
	if !d.pty {
		return printed, silent
	}
	v, err := d.p.o.Manager.Screen(d.name)
	if err != nil || !v.Full && !d.pressed {
		return printed, silent
	}
	return (printed || v.Full) && v.Changed.After(d.sent), min(silent, time.Since(v.Changed))
}
