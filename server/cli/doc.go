// Package cli holds the commands that a person runs in a terminal beside an agent:
// pmcp ps, logs, errors, events, top and open. They read the database and change
// nothing, also while no server runs; only the page of open stops what a person clicks.
//
// It guarantees that every line it prints is text: output of processes cannot move
// the cursor, set the title or colour the terminal. In a pipe there are no colours, and
// with --json each line is one JSON object. The exit codes are those of grep: 0 if
// something was found, 1 if nothing was, 2 if a command failed.
package cli
