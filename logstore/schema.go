package logstore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
)

const (
	// applicationID marks the file as ours: "pmcp".
	applicationID = 0x706d6370
)

//go:embed schema.sql
var schemaV1 string

//go:embed schema2.sql
var schemaV2 string

//go:embed schema3.sql
var schemaV3 string

// migrations lead from one schema version (PRAGMA user_version) to the next. Append only: a
// release's entries never change.
func migrations() []string {
	return []string{schemaV1, schemaV2, schemaV3}
}

// errOlderSchema: the file must be migrated first.
var errOlderSchema = errors.New("the log database has an older schema")

// checkSchema tells whether the file has exactly the schema of this version.
func checkSchema(ctx context.Context, q querier) error {
	app, version, tables, err := schemaState(ctx, q)
	switch {
	case err != nil:
		return err
	case app == 0 && version == 0 && tables == 0:
		return errOlderSchema
	case app != applicationID:
		return ErrForeign
	case version > len(migrations()):
		return fmt.Errorf("%w (schema %d, this is %d)", ErrNewerSchema, version, len(migrations()))
	case version < len(migrations()):
		return errOlderSchema
	default:
		return nil
	}
}

func schemaState(ctx context.Context, q querier) (app, version, tables int, err error) {
	err = q.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)`).Scan(&app, &version, &tables)
	return app, version, tables, err
}

// migrate brings the file to the schema of this version. The caller holds the file's lock exclusively.
func migrate(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cannot begin the migration: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after the commit
	if err := checkSchema(ctx, tx); !errors.Is(err, errOlderSchema) {
		return err
	}
	var version int
	if err := tx.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	all := migrations()
	for ; version < len(all); version++ {
		if _, err := tx.ExecContext(ctx, all[version]); err != nil {
			return fmt.Errorf("cannot migrate to schema %d: %w", version+1, err)
		}
	}
	pragmas := fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = %d`, applicationID, version)
	if _, err := tx.ExecContext(ctx, pragmas); err != nil {
		return fmt.Errorf("cannot mark the schema's version: %w", err)
	}
	return tx.Commit()
}

// querier is what a transaction, a connection and a pool have in common.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}
