// Package daemon finds the daemon of a database, the server that keeps processes beyond
// the end of a session, and starts it.
//
// It guarantees that callers that find none at the same time get one and the same, and
// that the process behind a connection is a server of this user in the same namespaces
// (package socket checks it), and names the process that has the daemon's TCP port
// instead. It knows no tool, no process of a session and no hello: a caller that
// meets the end of the connection before an answer calls Dial again, because a daemon that
// has nothing to do exits.
package daemon
