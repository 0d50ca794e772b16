package db

import (
	"context"
	"testing"
	"time"
)

// TestMemoryOutlivesItsConnection checks that a database in memory keeps its rows when database/sql closes the
// connection of a transaction whose context has ended.
func TestMemoryOutlivesItsConnection(t *testing.T) {
	f, err := OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := AddSession(t.Context(), f.WriteDB, 7, Owner{UUID: "own"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := f.WriteDB.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = tx.Rollback()
	if open, err := OpenSessions(t.Context(), f.ReadDB); err != nil || len(open) != 1 || open[0].UUID != "own" {
		t.Errorf("got the sessions %v, %v; want that of own", open, err)
	}
}
