package logstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"pmcp/logstore/db"
)

// execute executes a statement. The purpose completes an error that starts with "cannot".
func execute(ctx context.Context, q db.Querier, purpose, statement string, args ...any) error {
	if _, err := q.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("cannot %s: %w", purpose, err)
	}
	return nil
}

// queryAll returns the rows of a query, each as scan fills it in. The purpose completes an error that starts with
// "cannot".
func queryAll[T any](ctx context.Context, q db.Querier, purpose string, scan func(*sql.Rows, *T) error, query string, args ...any) (all []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("cannot %s: %w", purpose, err)
	}
	defer rows.Close()
	for rows.Next() {
		var row T
		if err := scan(rows, &row); err != nil {
			return nil, fmt.Errorf("cannot %s: %w", purpose, err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("cannot %s: %w", purpose, err)
	}
	return all, nil
}

// queryColumn returns the values of a query with one column.
func queryColumn[T any](ctx context.Context, q db.Querier, purpose, query string, args ...any) ([]T, error) {
	return queryAll(ctx, q, purpose, func(row *sql.Rows, v *T) error { return row.Scan(v) }, query, args...)
}

// blob returns b, or nil for a nil slice, to distinguish NULL from an empty value.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// A strictNumber is an int64 that database/sql scans without the detour over text and reflection that it takes
// for plain integers.
type strictNumber int64

// Scan implements sql.Scanner.
func (n *strictNumber) Scan(v any) error {
	i, ok := v.(int64)
	if !ok {
		return fmt.Errorf("%w: %T where a number should be", db.ErrCorrupt, v)
	}
	*n = strictNumber(i)
	return nil
}

// A lenientNumber is a number in a row that may be damaged. Instead of an error, Scan stores -1 for a value that is not
// an integer.
type lenientNumber int64

// Scan implements sql.Scanner.
func (n *lenientNumber) Scan(v any) error {
	i, ok := v.(int64)
	if !ok {
		i = -1
	}
	*n = lenientNumber(i)
	return nil
}

// inList returns "column IN (?, …)" and its arguments.
func inList[T any](column string, values []T) (string, []any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return column + " IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(values)), ", ") + ")", args
}

// jsonArray returns numbers as a JSON array, for SQLite's json_each.
func jsonArray(numbers []int64) string {
	b := []byte{'['}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, ']'))
}
