package health

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// AwaitHealthy returns nil as soon as the run of name with the id run, or a
// later one, is healthy. Its error wraps ErrNoCheck, or ErrUnhealthy if that
// run is unhealthy and is not going to be restarted for it, or ErrClosed, or is
// ctx's error.
// It does not end when the process does.
func (m *Monitor) AwaitHealthy(ctx context.Context, name string, run int64) error {
	feed := m.Watch()
	for {
		st, ok := m.Status(name)
		switch {
		case !ok:
			return noCheck(name)
		case st.RunID < run:
		case st.State == Healthy:
			return nil
		case st.State == Unhealthy && (st.Spec.OnUnhealthy != ActRestart || st.NotRestarted != ""):
			return fmt.Errorf("%s is %w: %s", name, ErrUnhealthy, st.why())
		}
		switch _, err := feed.Next(ctx); {
		case errors.Is(err, io.EOF):
			return ErrClosed
		case err != nil:
			return err
		}
	}
}

// why says what the last failure was.
func (s *Status) why() string {
	last := s.Last()
	if last == nil {
		return "not checked yet"
	}
	return last.Message
}
