package logstore

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// A cursor is a position in each process that it covers. Its wire form is base64url of a version byte and, for
// each entry in ascending order of runs, the difference from the previous run id and the line, as varints. Of
// the entries of one process, the entry with the latest run is the current position: later runs have not been
// read yet, and earlier runs were read to their end unless they have entries of their own (runs of one process
// overlap if two servers run it).
type cursor map[int64]int64 // maps a run id to the number of the last line before the position

const cursorVersion = 1

// maxCursor is the maximum length of a cursor that is decoded. A cursor of this length has more entries than
// any query has processes.
const maxCursor = 1 << 20

func (c cursor) String() string {
	b := []byte{cursorVersion}
	last := int64(0)
	for _, run := range slices.Sorted(maps.Keys(c)) {
		b = binary.AppendUvarint(b, uint64(run-last))
		b = binary.AppendUvarint(b, uint64(c[run]))
		last = run
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// CheckCursor returns an error that wraps ErrCursor unless s is "" or can be a cursor of a query.
func CheckCursor(s string) error {
	_, err := parseCursor(s)
	return err
}

// CursorAfter returns the cursor after the given line of each run; line 0 is before the first line. The key of
// lines is the run's id, the value the number of the line.
func CursorAfter(lines map[int64]int64) string { return cursor(lines).String() }

// parseCursor parses a cursor of a query. It returns nil for an empty string.
func parseCursor(s string) (cursor, error) {
	switch {
	case s == "":
		return nil, nil
	case s == CursorStart:
		return cursor{}, nil
	case len(s) > maxCursor:
		return nil, fmt.Errorf("%w: too long", ErrCursor)
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 || b[0] != cursorVersion {
		return nil, fmt.Errorf("%w: %.40q", ErrCursor, s)
	}
	c := make(cursor)
	run := int64(0)
	for b = b[1:]; len(b) > 0; {
		d, n := binary.Uvarint(b)
		line, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || d == 0 || d > 1<<62 || line > 1<<62 || run+int64(d) < 0 {
			return nil, fmt.Errorf("%w: %.40q", ErrCursor, s)
		}
		run += int64(d)
		c[run] = int64(line)
		b = b[n+m:]
	}
	return c, nil
}
