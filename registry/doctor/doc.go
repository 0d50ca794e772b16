// Package doctor shows a user the pmcp servers of this machine: what lives, what
// dead servers left behind, how to clean that up, and what is wrong with the
// surroundings (directories, descriptors, clock, database).
//
// It needs no running server. Without Options.Cleanup it changes nothing: it asks
// the kernel whether a directory can be written to, and does not try. With it,
// package registry's sweep does the work, under the same rules as in a server: the
// doctor itself signals no process and removes no file. It proves the identity of
// a process before it shows one as alive, and prints what other programs call
// themselves only quoted, within a line.
//
// The text is for people and may change; the JSON's fields are for programs.
package doctor
