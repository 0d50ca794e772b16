// Package logstore stores what processes print: it takes bytes and returns lines. In between, the
// lines are in memory and in one SQLite file that several servers may share.
//
// [Store.Capture] splits and cleans what a process wrote and appends the lines to the open chunk of
// its run in memory. The flusher commits new lines every 100 ms. Readers see memory and file as one log.
// Only the flusher and the readers ever wait for SQLite.
//
// A run is one start-to-exit of one process. Its lines are numbered from 1. A cursor names a line
// in each process that it covers, and stays valid while lines are added, flushed or dropped.
//
// The package guarantees:
//
//   - A line is either kept, or counted by a [Gap] that says why it is missing: a limit on memory,
//     age or size.
//   - A run that exceeds its own limit waits once, for at most 2 s. No other run waits for it, and
//     no run waits for a disk that fails or hangs.
//   - A Store that cannot use its file works in memory and reports that ([Store.Status]). It retries
//     by itself.
//
// The package refuses a file that a newer version ([ErrNewerSchema]) or another program
// ([ErrForeign]) wrote, an invalid cursor ([ErrCursor]), and an invalid pattern ([ErrPattern]). A corrupt file is
// moved aside and never written to.
//
// # Owners
//
// A [Store] is the sum of its owners. Each has its own lock, and its Close waits for its goroutines. They share the
// storage: the database file, and the reasons not to use it.
//
//   - captureTable: the runs that this server captures, with their lines, watchers and recognised errors
//   - faultLog: the errors that are not stored yet
//   - writer: the flusher, with the claimer of names for new runs, and the records that wait for a commit
//   - reader: pages, searches, waits and lists of runs; it has no state but the cache of filters
//   - maintainer: checkpoints of the write-ahead log, with the retainer of log and the builder of missing filters
//   - projectTable: the labels of projects
//   - portTable: the ports that this server has reserved for its processes
//   - runIDs: the blocks of run ids, and the servers that they belong to
//
// A lock may be acquired while one that stands before it in this list is held, never the other way round:
//
//  1. db.File.MaintLock, under which transactions run
//  2. budget.dropping
//  3. captureTable.mu
//  4. runLog.mu
//  5. any other lock; none is acquired under these
//
// A method whose name ends in Locked needs the lock of its receiver; of a run, for its chunks and streams.
//
// SQLite is not used under the locks from 2 to 5, except for a new block of run ids, once in 65,535 runs.
//
// The package and its subpackage db contain every SQL statement of the program. They know nothing
// about processes except their ids.
package logstore
