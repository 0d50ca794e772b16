// Package guard keeps a session from leaving processes behind.
//
// The program that a client launches is the guardian. It starts its own binary
// once more as the server, in a session of its own, and then only waits. Three
// things hold the two together:
//
//   - The lifeline: a pipe whose only write end the guardian holds. When the
//     guardian dies, by whatever signal, the server reads end of file and shuts
//     down in the ordinary way.
//   - The subreaper flag: when the server dies, the kernel re-parents all that
//     it left, daemons included, to the guardian, which kills until wait4 says
//     that no child is left. Being a descendant is the registration, so there
//     is no protocol and no moment in which a process is not yet known.
//   - The record's lock, inherited by both (see package registry).
//
// macOS has no subreaper: there the guardian finds what is left by the server's
// session and by the mark in the environment.
//
// The guardian is a second process of the same binary, so this package imports
// little: no JSON, no log/slog, no os/exec.
package guard

import "os"

// Verb is the first argument of the program when it is to run as the server;
// the session id is the second.
const Verb = "__serve"

// SessionEnv is the environment variable that marks every process of a session
// with the session's id.
const SessionEnv = "PMCP_SESSION"

// guardianEnv tells the server the guardian's pid: the parent that it finds may
// be who took it over.
const guardianEnv = "PMCP_GUARDIAN"

// Config is what a guardian is told. ID is required.
type Config struct {
	// ID is the session id. It becomes the server's second argument.
	ID string
	// Args are further arguments for the server, after Verb and ID.
	Args []string
	// Lock is the record's lock, passed on as descriptor 4 and held by the
	// guardian until Run returns; Run closes nothing. Nil passes none: then
	// descriptor 4 is /dev/null.
	Lock *os.File
	// OnGone is called once, when nothing is left of the session; it removes
	// the record. It is not called if something could not be killed, so that
	// the record goes on naming it. Nil does nothing.
	OnGone func() error
	// Logf reports what the user should know, on stderr and never on stdout.
	// It is called from one goroutine of the guardian's own and may block
	// without holding the guardian up. Nil drops the reports.
	Logf func(format string, args ...any)
}
