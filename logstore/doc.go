// Package logstore keeps what processes print: bytes go in, lines come out, and in between they
// live in memory and in one SQLite file that several servers may share.
//
// The way of a line: [Store.Capture] splits and cleans what a process wrote and appends it to the
// open chunk of its run in memory; a flusher commits what is new every 100 ms; readers see memory
// and file as one. Nothing but the flusher and the readers ever waits for SQLite.
//
// A run is one start-to-exit of one process. Its lines are numbered from 1. A cursor names a line
// in each of the processes it covers and stays valid while lines are added, flushed or dropped.
//
// What the package guarantees:
//
//   - A line is kept, or a [Gap] counts it and says why: the bounds of memory, age and size are
//     the reasons.
//   - A run over its own bound waits, once, for 2 s at most; nobody else waits for it, nor for a
//     disk that fails or hangs.
//   - A Store that cannot use its file works in memory and says so ([Store.Status]); it tries again
//     by itself.
//
// What it refuses: a file that a newer version wrote ([ErrNewerSchema]) or another program
// ([ErrForeign]), a cursor that it did not make ([ErrCursor]), a pattern that is none
// ([ErrPattern]). A file that is corrupt is moved aside, never written to.
//
// The package holds every SQL statement of the program and knows nothing about processes beyond an
// id.
package logstore
