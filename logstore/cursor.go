package logstore

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
)

// A cursor is a position in each process that it covers. Its wire form is base64url of a version
// byte and, for each entry in rising order of runs, the difference to the run before and the line,
// as varints. Of a process's entries the one with the latest run is where the process stands: later
// runs are still to come, earlier ones are over unless they have an entry themselves (runs of one
// process overlap when two servers run it).
type cursor map[int64]int64 // run id to the number of the last line before the position

const cursorVersion = 1

// maxCursor bounds what is decoded: more entries than any query has processes.
const maxCursor = 1 << 20

func (c cursor) String() string {
	runs := make([]int64, 0, len(c))
	for run := range c {
		runs = append(runs, run)
	}
	slices.Sort(runs)
	b := []byte{cursorVersion}
	last := int64(0)
	for _, run := range runs {
		b = binary.AppendUvarint(b, uint64(run-last))
		b = binary.AppendUvarint(b, uint64(c[run]))
		last = run
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(s string) (cursor, error) {
	if len(s) > maxCursor {
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
