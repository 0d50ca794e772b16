package logstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pmcp/logstore/fault"
)

// EndOfRun gives the cursor at the end of a run of this Store that has ended; "" if it printed
// nothing. It does not wait for the disk: of a run that has left memory it is the end wherever that
// is.
func (s *Store) EndOfRun(run int64) string {
	r := s.ownRun(run)
	if r == nil {
		return cursor{run: everything}.String()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == 0 {
		return ""
	}
	return cursor{run: r.last}.String()
}

// endPoll is how often who waits for the end of a run looks anew where nothing tells of it: when
// another server dies, no file changes.
const endPoll = time.Second

// WaitRun waits until a run has ended, or can no longer end because its server is dead, or until
// holds for it, and gives it; until is asked of every state that is seen, the end included. When ctx
// ends first it gives the run as it was seen last, and ctx's error. Its error wraps ErrUnknownRun for
// a run that is not kept. Of a run of another server it sees what that server has stored; of one of
// this Store what SaveRun was told.
func (s *Store) WaitRun(ctx context.Context, run int64, until func(*Run) bool) (Run, error) {
	w := s.watch(func(*runLog) bool { return false })
	defer s.unwatch(w)
	reading := context.WithoutCancel(ctx) // the first look counts, however soon ctx ends
	var last Run
	for {
		version := s.fileVersion(reading)
		r, err := s.Run(reading, run)
		if err != nil && ctx.Err() != nil && last.ID != 0 {
			return last, ctx.Err()
		}
		if err != nil || until(&r) || !r.Ended.IsZero() || r.Lost {
			return r, err
		}
		last, reading = r, ctx
		pause, cancel := context.WithTimeout(ctx, endPoll)
		_, _, err = s.awaitChange(pause, w, version)
		cancel()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return r, err
		}
	}
}

// Run gives one run. Its error wraps ErrUnknownRun for one that is not kept.
func (s *Store) Run(ctx context.Context, run int64) (r Run, err error) {
	if s.closed.Load() {
		return r, ErrClosed
	}
	scope := scope{runs: []int64{run}}
	views := s.memory(&scope)
	defer func() {
		for i := range views {
			views[i].release()
		}
	}()
	err = s.withRead(ctx, func(ctx context.Context, tx querier) error {
		found, err := s.runsInScope(ctx, tx, &scope, views)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return fmt.Errorf("%w: %d", ErrUnknownRun, run)
		}
		r, err = s.describe(ctx, tx, newServers(s, tx), found[0][0])
		return err
	})
	if errors.Is(err, errFoundDamage) {
		return s.Run(ctx, run)
	}
	if err != nil {
		return r, fmt.Errorf("cannot read a run: %w", err)
	}
	return r, nil
}

// WhyEnded gives the latest error of a run that is in memory: its type and message, and where it happened;
// line is 0 and file empty if that is not known. After RunEnded it is what explains a bad end. It
// is "" where nothing is known but how the run ended. It does not wait.
func (s *Store) WhyEnded(run int64) (message, file string, line int) {
	r := s.ownRun(run)
	if r == nil {
		return "", "", 0
	}
	r.mu.Lock()
	f := r.latest
	r.mu.Unlock()
	switch {
	case fault.AtEnd(f.Type, f.Message):
		_, f.Message, _ = strings.Cut(f.Message, ": ") // behind how it ended stands what it said last
	case f.Type != "":
		f.Message = f.Type + ": " + f.Message
	}
	return f.Message, f.File, f.Line
}
