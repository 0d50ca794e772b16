// Package socket lets the pmcp servers of one user call each other. Each server listens
// on a unix socket beside its record. A connection carries one call: the caller sends
// one line, the request, and reads one line, the response. Until then the listener sends
// an empty line once it has read the request and every few seconds, so that a caller
// notices a server that is frozen. The caller cancels the call by closing the connection.
//
// It guarantees that both sides are processes of this user, in the same mount, pid and
// user namespaces: otherwise a sandbox could escape through the socket. Connections, the
// size of a message and the time that a peer may take for it are bounded; Serve waits for
// its goroutines. A call is sent once; a caller that gets no answer learns that the
// outcome is unknown (ErrUnknownOutcome), in contrast to a call that never began
// (ErrUnavailable, Refusal).
//
// It refuses a socket that is a symbolic link, no socket at all or another user's. It
// knows no tool and no process.
package socket
