package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// WithRead calls fn in a read transaction. ctx bounds the wait for a connection; the context that fn
// receives is not canceled when ctx ends.
func (f *File) WithRead(ctx context.Context, fn func(context.Context, Querier) error) error {
	conn, err := f.ReadDB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // returns it to the pool
	uncut := context.WithoutCancel(ctx)
	// BeginTx would start a goroutine, and so would each query, which costs as much as a small query.
	if _, err := conn.ExecContext(uncut, "BEGIN"); err != nil {
		return err
	}
	defer func() {
		if _, err := conn.ExecContext(uncut, "ROLLBACK"); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // so that the pool drops the connection
		}
	}()
	return fn(uncut, conn)
}

// Update calls fn in a write transaction. It may call fn more than once: see RetryWhenFull.
func (f *File) Update(ctx context.Context, fn func(*sql.Tx) error) error {
	return f.RetryWhenFull(ctx, func() error { return f.Transact(ctx, fn) })
}

// Transact calls fn in a write transaction, and commits it unless fn returns an error.
func (f *File) Transact(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := f.WriteDB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, IgnoreTxDone(tx.Rollback()))
	}
	return tx.Commit()
}

// IgnoreTxDone returns nil if err says that the transaction to roll back is already done, and err otherwise.
func IgnoreTxDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}
