//go:build !linux || !cgo

package guard

import "errors"

// Forked is false: only Linux forks early.
func Forked() bool { return false }

func forkedPID() int { return 0 }

// Await is not called.
func Await() (id string, ok bool) { return "", false }

func begin(string, ...int) error { return errors.ErrUnsupported }
