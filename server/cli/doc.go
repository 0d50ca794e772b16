// Package cli holds the commands that a person runs in a terminal:
// pmcp ps, logs, errors, events, start, stop, restart, top and open. They read the database
// and change nothing in it, also while no server runs. Start asks the
// daemon; stop, restart, top and the page of open ask the server that runs a process.
//
// It guarantees that every line it prints is text: output of processes cannot move
// the cursor, set the title or colour the terminal. In a pipe there are no colours, and
// with --json each line is one JSON object. The exit codes are those of grep: 0 if
// something was found, 1 if nothing was, 2 if a command failed.
package cli
