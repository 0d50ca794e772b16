// Package process starts, supervises, restarts and stops local processes, and
// measures their resource usage.
//
// A Spec says what to run. A Run is one start-to-exit of one child; it never
// restarts. The Manager maps each name to an entry: its current or last run,
// its state and its restart policy. A Feed delivers every change of state.
//
// What the package guarantees:
//
//   - A stop ends the whole tree of a run, not only its first process: children
//     in other process groups and sessions, and orphans too.
//   - No signal is sent without the identity check of package proctab, so
//     unrelated processes are never touched.
//   - A run counts as ended only when the Journal has received everything that
//     its first process wrote.
//   - Nothing here waits for storage, MCP or health checks: they are behind
//     interfaces or read the feed.
//
// It refuses, before it starts anything: an invalid Spec ([ErrInvalid]), a
// command that cannot be found ([ErrNoExecutable]) or is not allowed
// ([ErrNotAllowed]), and a process beyond the limit of live ones ([ErrTooMany]).
package process
