package project

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"pmcp/logstore"
	"pmcp/server/socket"
)

// MarkedMethod is the method by which a window that has marked an error tells another one, with a Mark. Its result is
// empty.
const MarkedMethod = "marked"

// A Mark says that an error was resolved or reopened; the database has which.
type Mark struct {
	ErrorID string `json:"error_id"`
	By      string `json:"by"` // see Store.Actor
}

// DecodeMark returns the parameters of MarkedMethod. The error is for the other window.
func DecodeMark(params json.RawMessage) (m Mark, err error) {
	if err := json.Unmarshal(params, &m); err != nil {
		return m, fmt.Errorf("invalid mark: %w", err)
	}
	m.By = cmp.Or(cleanActor(m.By), actorWindow)
	return m, nil
}

// tellOfMark tells the live window that runs the process of an error, or has run it last, that by has marked the error. A
// session for which the daemon keeps the process reads that in the database.
func (s *Store) tellOfMark(ctx context.Context, f *logstore.Fault, by string) {
	rows, err := s.Runs(ctx, logstore.RunFilter{Project: f.Project, Names: []string{f.Name}, Current: true})
	if err != nil || len(rows) == 0 || s.dir == "" {
		return
	}
	if row := &rows[0]; row.Live && !row.Own && stored(row).Spec.Until.IsZero() && !s.isSilent(row.Session) {
		_ = socket.CallLive(ctx, s.dir, row.Session, MarkedMethod, Mark{f.ID, s.Actor(by)}, new(struct{}), s.within)
	}
}
