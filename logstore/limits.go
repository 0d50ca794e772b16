package logstore

import "pmcp/logstore/db"

// limits divides a total size among the files of the database so that together they stay below it.
type limits struct {
	db.Limits
	file  int64 // the database itself
	batch int64 // size of one transaction of the flusher
	chunk int64
	slice int64 // pages that one transaction returns to the file system
}

const (
	// smallestChunk is the smallest chunk that is worth its own row.
	smallestChunk = 16 << 10
	// minBlockedWAL is how long the write-ahead log may grow while a reader blocks its truncation, however
	// small the total size is.
	minBlockedWAL = 16 << 20
	// changedPages is about how many pages a transaction changes in addition to those that it fills.
	changedPages = 8
)

// limitsOf returns the limits for a total size.
func limitsOf(size int64) limits {
	l := limits{
		Limits: db.Limits{
			WAL:        min(size/8, 64<<20),
			BlockedWAL: max(size, minBlockedWAL),
			Reserve:    min(size/16, db.ReserveBytes),
		},
		batch: min(size/48, batchBytes),
		chunk: min(max(size/32, smallestChunk), chunkBytes),
	}
	l.slice = min(max(l.WAL/db.PageBytes/2, 4), vacuumSlice)
	l.file = size - l.Reserve - l.WAL - walBytes(l.batch+l.chunk) - l.batch // the last term is for what another server stores at the same time
	return l
}

// walBytes returns about how many bytes a transaction that stores the given number of bytes adds to the
// write-ahead log.
func walBytes(stored int64) int64 { return fileBytes(stored) + changedPages*db.PageBytes }

// fileBytes returns about how many bytes a transaction that stores the given number of bytes adds to the file.
func fileBytes(stored int64) int64 { return stored + stored/16 + 2*db.PageBytes }

// batchBytes bounds a transaction, and thereby how long another server waits to write. See also limits.
const batchBytes = 4 << 20

// vacuumSlice is how many pages one transaction returns to the file system.
const vacuumSlice = 128
