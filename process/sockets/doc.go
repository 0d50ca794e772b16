// Package sockets lists the listening TCP sockets and the processes
// that hold them, and distinguishes a debugger's port from a program's own.
//
// Listening returns every listening socket of this network namespace; AddHolders
// adds the processes that hold them, as far as this user may see them. Both return
// snapshots and wait only for the kernel. The package does not know which holders
// belong to pmcp: that is for the caller to decide.
package sockets
