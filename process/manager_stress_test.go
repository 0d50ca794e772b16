package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pmcp/process/proctab"
)

// TestRandomOperationsLeaveNoProcess runs random operations from many callers on a few processes
// at once. It checks that nothing hangs, that only documented errors occur, and
// that no process is left after Close.
func TestRandomOperationsLeaveNoProcess(t *testing.T) {
	t.Parallel()
	inSubreaper(t, "random")
}

func scenarioRandom(ctx context.Context, m *Manager, j *memJournal, _ []string) error {
	const callers, operations = 8, 40
	errs := make([]error, callers)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(caller), 1))
			for range operations {
				if err := randomOperation(ctx, m, r); err != nil && !expected(err) {
					errs[caller] = err
					return
				}
			}
		})
	}
	all.Wait()
	errs = append(errs, m.Close(ctx))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if hasChildren() {
		return fmt.Errorf("children are left: %s", proctab.Describe(m.deps.tree.descendants()))
	}
	for _, st := range m.List() {
		if st.Alive() || st.State == Backoff {
			return fmt.Errorf("%s is %s after Close, want it ended", st.Spec.Name, st.State)
		}
	}
	return j.await(ctx, func() bool { return len(j.ended) == int(j.runs) })
}

// expected reports whether err is an error that concurrent callers must expect.
func expected(err error) bool {
	var state *StateError
	var differs *DiffersError
	return errors.As(err, &state) || errors.As(err, &differs) || errors.Is(err, ErrCalledOff) || errors.Is(err, ErrLeft) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrNoStdin) || errors.Is(err, ErrNotReading)
}

func randomOperation(ctx context.Context, m *Manager, r *rand.Rand) error {
	name := fmt.Sprintf("p%d", r.IntN(3))
	scripts := []string{"exit 0", "exit 3", "exec sleep 1000", "sleep 1000 & exit 1", `trap "" TERM; while :; do sleep 1; done`, "(setsid sleep 1000 &); cat"}
	spec := shell(name, scripts[r.IntN(len(scripts))])
	spec.Stop.Timeout = 20 * time.Millisecond
	spec.Restart = []RestartPolicy{RestartNever, RestartOnFailure, RestartAlways}[r.IntN(3)]
	spec.Stdin = r.IntN(2) == 0
	spec.PTY = r.IntN(4) == 0
	var err error
	switch r.IntN(10) {
	case 0, 1:
		_, _, err = m.Start(ctx, spec, KeepRunning)
	case 2:
		_, _, err = m.Start(ctx, spec, RestartRunning)
	case 3:
		_, err = m.Stop(ctx, name, StopOptions{})
	case 4:
		_, err = m.Stop(ctx, name, StopOptions{Force: true})
	case 5:
		_, err = restart(ctx, m, name, func(s *Spec) { s.Args = spec.Args })
	case 6:
		st, _ := m.Status(name)
		err = m.Recycle(name, st.Run, ByHealth, "random")
	case 7:
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		if _, err = m.Input(short, name, []byte("x\n"), false); errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
	case 8:
		_, err = m.Tree(name)
	case 9:
		err = m.Remove(ctx, name)
	}
	return err
}
