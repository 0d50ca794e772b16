package proctab

import "errors"

// A Handle refers to one process even after the number of that process is reused.
type Handle struct{}

// Open always fails: macOS has no pidfd.
func Open(int) (*Handle, error) { return nil, errors.ErrUnsupported }

// AwaitExit is never called.
func (h *Handle) AwaitExit() error { return errors.ErrUnsupported }

// Close is never called.
func (h *Handle) Close() {}
