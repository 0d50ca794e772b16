// Package db owns the database file: it opens, checks, migrates and locks it, and manages
// its connections, its transactions and the sizes of the files beside it.
//
// It guarantees that only this user can have created or can read the file; that a file of
// another program or of a newer version stays as it is; that a corrupt file is moved aside
// and never deleted; that one server at a time changes the schema or removes log; and that
// the write-ahead log and the reserve stay within their limits unless a reader blocks a
// checkpoint. It refuses directories that other users may write to. The only tables that
// it uses are session and, for the summary of CheckFile, run.
package db
