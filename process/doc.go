// Package process starts, watches, restarts and stops local processes, and
// measures what they use.
//
// A Spec says what to run. A Run is one start-to-exit of one child; it never
// restarts. The Manager holds the table from name to entry: the wish (up or
// down), the current run, the state, the restart policy, and a feed of every
// state change.
//
// What the package guarantees:
//
//   - The whole tree of a run is known and stopped, not only its first process:
//     children in other process groups and sessions, and what was orphaned.
//   - No signal is sent without the identity check of package proctab, so a
//     process that was not started here is never touched.
//   - A run counts as ended only when everything that its first process wrote
//     has been handed to the Journal.
//   - Nothing here waits for storage, MCP or health checks; those are behind
//     interfaces or behind the feed.
//
// What it refuses, before anything is started: a Spec that does not fit
// ([ErrInvalid]), a command that cannot be found ([ErrNoExecutable]) or is not
// allowed ([ErrNotAllowed]), and one live process too many ([ErrTooMany]).
package process
