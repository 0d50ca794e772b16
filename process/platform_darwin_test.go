package process

import (
	"context"
	"errors"
)

func becomeSubreaper() error { return errors.ErrUnsupported }

func scenarioOOM(context.Context, *Manager, *memJournal, []string) error {
	return errors.ErrUnsupported
}

// dropStamp does nothing because macOS has no stamps, the marks that survive a cleared environment.
func dropStamp() error { return nil }
