// Package ports chooses TCP ports that are free, and replaces the names of ports in
// texts.
//
// A port is free if no socket of this network namespace listens on it, it is not
// reserved, and it can be bound with SO_REUSEADDR on IPv4 and on IPv6; connections
// in TIME_WAIT do not count. The choice depends on the key of the port and on what is
// free, and on nothing else, so that a program gets the same port again. The package
// keeps no state and starts no process; the caller knows which ports are reserved.
package ports
