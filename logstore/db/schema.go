package db

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
)

// ApplicationID marks the file as ours: "pmcp".
const ApplicationID = 0x706d6370

var (
	//go:embed schema.sql
	SchemaV1 string
	//go:embed schema2.sql
	SchemaV2 string
	//go:embed schema3.sql
	SchemaV3 string
	//go:embed schema4.sql
	SchemaV4 string
	//go:embed schema5.sql
	schemaV5 string
	//go:embed schema6.sql
	schemaV6 string

	// migrations holds the scripts that lead from each schema version (PRAGMA user_version) to the next. Only
	// append to the scripts: a released script never changes.
	migrations = []string{SchemaV1, SchemaV2, SchemaV3, SchemaV4, schemaV5, schemaV6}
)

var (
	// ErrCorrupt is wrapped by errors about a file whose contents are damaged.
	ErrCorrupt = errors.New("the log database is corrupt")
	// ErrOlderSchema means that the file must be migrated first.
	ErrOlderSchema = errors.New("the log database has an older schema")
	// ErrNewerSchema is wrapped by Open's error when a newer version of the program wrote the file.
	ErrNewerSchema = errors.New("the log database was written by a newer version")
	// ErrForeign is wrapped by Open's error when the file is another program's SQLite database, or when the file
	// is not a database and no server has ever used it. Open leaves such a file unchanged.
	ErrForeign = errors.New("the file is another program's, not a log database")
)

// CheckSchema returns nil if the file has exactly the schema of this version. Otherwise its error wraps
// ErrOlderSchema, ErrNewerSchema or ErrForeign, or says why the schema cannot be read.
func CheckSchema(ctx context.Context, q Querier) error {
	_, err := schemaVersion(ctx, q)
	return err
}

// schemaVersion returns the schema version of the file, and the error of CheckSchema.
func schemaVersion(ctx context.Context, q Querier) (version int, err error) {
	var app, tables int
	err = q.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)`).Scan(&app, &version, &tables)
	switch {
	case err != nil:
	case app == 0 && version == 0 && tables == 0:
		err = ErrOlderSchema
	case app != ApplicationID:
		err = ErrForeign
	case version > len(migrations):
		err = fmt.Errorf("%w (schema %d, this is %d)", ErrNewerSchema, version, len(migrations))
	case version < len(migrations):
		err = ErrOlderSchema
	}
	return version, err
}

// migrate brings the file to the schema of this version in one transaction. The caller must hold the file's
// lock exclusively.
func migrate(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cannot begin the migration: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // no-op after the commit
	version, err := schemaVersion(ctx, tx)
	if !errors.Is(err, ErrOlderSchema) {
		return err
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
			return fmt.Errorf("cannot migrate to schema %d: %w", version+1, err)
		}
	}
	pragmas := fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA user_version = %d`, ApplicationID, version)
	if _, err := tx.ExecContext(ctx, pragmas); err != nil {
		return fmt.Errorf("cannot mark the schema's version: %w", err)
	}
	return tx.Commit()
}

// Querier is implemented by transactions, connections and pools.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}
