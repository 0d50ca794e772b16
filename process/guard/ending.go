package guard

import (
	"errors"
	"fmt"
	"time"

	"pmcp/process/proctab"
)

// Limit is proctab.Limit.
func Limit(d time.Duration) time.Duration { return proctab.Limit(d) }

// ErrTimeout is returned by a step of an Ending that has missed its deadline.
var ErrTimeout = errors.New("shutdown took too long")

// An Ending is a shutdown in progress. Steps that fail or hang do not keep later ones from
// being done.
type Ending struct {
	start time.Time
	errs  []error
}

// NewEnding returns an Ending that starts now.
func NewEnding() *Ending { return &Ending{start: time.Now()} }

// Step calls do and returns the error of the step when do has returned, or when Limit(deadline) has passed
// since the start of the shutdown, so that a step can use the time that earlier ones have left. A
// do that hangs in the kernel stays in its goroutine, which ends with the process soon after.
func (e *Ending) Step(name string, deadline time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	late := time.NewTimer(time.Until(e.start.Add(Limit(deadline))))
	defer late.Stop()
	var err error
	select {
	case err = <-done:
	case <-late.C:
		err = fmt.Errorf("%w, stopped waiting after %v", ErrTimeout, time.Since(e.start).Round(time.Millisecond))
	}
	if err != nil {
		err = fmt.Errorf("cannot end the %s: %w", name, err)
		e.errs = append(e.errs, err)
	}
	return err
}

// Close is Step for a close that cannot fail.
func (e *Ending) Close(name string, deadline time.Duration, close func()) {
	_ = e.Step(name, deadline, func() error { close(); return nil })
}

// Err returns the joined errors of the steps.
func (e *Ending) Err() error { return errors.Join(e.errs...) }
