// Package host serves whole MCP sessions to other processes of the user. It belongs to one
// process, the daemon. Each connection opens with one line, the Hello, which has everything that
// a session has from the process that started it: directory, environment (with it every
// PM_ variable: project, database, policies), umask. The Host starts an ordinary pmcp with
// it, guardian and server, whose stdin and stdout are the connection. So nothing of a
// session comes from the daemon, whose directory is /, and sessions share nothing.
//
// A session ends with its connection, except for what is kept: its server runs until the last
// kept process has ended. A Hello can also ask for a keeper, a session without a client, which
// all callers with the same Hello share.
//
// It guarantees that the Hello is bounded in size and time, that sessions are bounded in
// number, that a connection without a valid Hello is refused with one line, that over TCP no
// Hello is sent or read before both sides have proved that they know the token, and that
// Close leaves no session. It knows no tool, no process of a session and no protocol but
// the ids of messages. The caller checks who the peer of a connection is.
package host
