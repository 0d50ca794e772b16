package logstore

import sqlite3 "github.com/mattn/go-sqlite3"

// SQLiteVersion is the version of the SQLite that this program is built with.
func SQLiteVersion() string {
	version, _, _ := sqlite3.Version()
	return version
}
