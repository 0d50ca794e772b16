// Package guard keeps a session from leaving processes behind.
//
// The program that a client launches is the guardian. It starts its own binary again as
// the server, in a session of its own, and then only waits. Three things connect guardian
// and server:
//
//   - The lifeline: a pipe whose only write end the guardian holds. When the
//     guardian dies, by whatever signal, the server reads end of file and shuts
//     down in the ordinary way.
//   - The subreaper flag: when the server dies, the kernel re-parents all that
//     it left, daemons included, to the guardian, which kills until wait4 reports
//     that no child is left. A descendant need not be registered, so there is no
//     protocol, and no moment in which a process is not yet known.
//   - The lock of the session's record, which both hold (see package registry).
//
// macOS has no subreaper: there the guardian finds the remaining processes by
// the server's session and by the mark in the environment.
//
// `pmcp guard` guards any command in the same way: the launched guardian starts a second one in
// the place of the server (see Hold), which starts the command. If either is killed, the other
// one ends the command and all that it left.
//
// The guardian is a second process of the same binary, so this package imports
// little: no JSON, no log/slog, no os/exec.
package guard

import (
	"os"
	"time"
)

// Verb is the first argument of the program when it runs as the server. The second is the
// session id.
const Verb = "__serve"

// daemonArgument is the server's argument after the session id if the session is a daemon.
const daemonArgument = "daemon"

// IsDaemon reports whether args, those of a server after the session id, are a daemon's.
func IsDaemon(args []string) bool { return len(args) == 1 && args[0] == daemonArgument }

// guardianEnv is the variable that passes the guardian's pid to the server. The server
// cannot use the pid of its parent: that may already be the process that adopted the
// server after the guardian's death.
const guardianEnv = "PMCP_GUARDIAN"

// A Config configures a guardian. ID is required.
type Config struct {
	// ID is the session id. It becomes the server's second argument.
	ID string
	// Verb is the first argument of the server; "" means Verb.
	Verb string
	// Args are further arguments for the server, after Verb and ID.
	Args []string
	// Grace is how long the processes that the server leaves have to end after SIGTERM. The
	// server itself has ended the processes of a session, so there it is zero: they are
	// killed.
	Grace time.Duration
	// Lock is the record's lock. The server gets it as descriptor 4, and the guardian
	// holds it until Run returns; Run does not close it. If it is nil, descriptor 4
	// is /dev/null.
	Lock *os.File
	// Daemon is the lock of a daemon, which the server gets as descriptor 6 and which, as
	// Lock, the guardian holds until Run returns. The session then is a daemon: a hangup
	// is ignored, and the end of the parent is not reported. Nil for a session that a
	// client has launched.
	Daemon *os.File
	// OnGone is called once, when no process of the session is left; it removes the
	// record. OnGone is not called if a process could not be killed, so that the record
	// keeps naming that process. It may be nil.
	OnGone func() error
	// Logf writes a report for the user to stderr, never to stdout. One goroutine of
	// the guardian calls it, and it may block without delaying the guardian. Nil
	// drops the reports.
	Logf func(format string, args ...any)
}

// Replace makes f, one of the first three descriptors, a copy of fd.
func Replace(f *os.File, fd int) error { return dup2(fd, int(f.Fd())) }
