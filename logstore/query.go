package logstore

import "time"

// CursorStart as Query.After stands for the oldest line that is kept.
const CursorStart = "start"

const (
	defaultLimit     = 100
	defaultPageBytes = 8 << 20
)

// Query says which lines to read. The zero value reads the oldest 100 lines of everything.
type Query struct {
	// Project limits the query to one project; "" = all.
	Project string
	// Names limits it to these processes; nil = all.
	Names []string
	// Runs limits it to these run ids; nil = every run of the names.
	Runs []int64
	// UpTo is the id of a run: those of its process that started after it are left out. 0 = none.
	UpTo int64
	// Latest limits it to the latest run of each name. Ignored with Runs, After and Before.
	Latest bool
	// Streams is a bit set of 1<<stream; 0 = all.
	Streams uint8
	// MinLevel drops lines of a lower level. LevelNone = no such limit.
	MinLevel Level
	// Since and Until bound the lines' times: Since <= At < Until. Zero = no bound.
	Since, Until time.Time
	// After and Before are cursors: only lines after, or before, that position. At most one may be
	// set. CursorStart as After is the oldest line kept. Of a process that After does not cover the
	// runs are left out that were over when the latest of the cursor's runs started.
	After, Before string
	// Limit is the largest number of lines; 0 = 100.
	Limit int
	// Newest asks for the last Limit lines instead of the first; they still come oldest first. Implied by Before.
	Newest bool
	// MaxBytes stops the page after so many bytes of text; at least one line is given. 0 = 8 MiB.
	MaxBytes int
}

// Page is a stretch of lines, oldest first. Lines of several processes are merged by time.
type Page struct {
	// Lines are the lines, oldest first.
	Lines []Line
	// Runs describes each run that Lines or Gaps name.
	Runs map[int64]Run
	// Gaps are what is missing within the stretch, ordered by run and line.
	Gaps []Gap
	// MoreAfter and MoreBefore tell that matching lines follow or precede. In the direction
	// opposite to the reading they are a guess: true when there may be some.
	MoreAfter, MoreBefore bool
	// Scanned counts the lines that were looked at, those the filters left out included.
	Scanned int64

	places [][]*runPlace // by process
}

// RunFilter says which runs to list. The zero value lists the newest 100 of each name.
type RunFilter struct {
	// Project limits the list to one project; "" = all.
	Project string
	// Names limits it to these processes; nil = all.
	Names []string
	// Number is the run's number; 0 = all; negative counts back: -1 = the latest, -2 = the one before.
	Number int
	// Limit is how many runs of each name at most, newest first; 0 = 100.
	Limit int
}

// Run is one start-to-exit of one process.
type Run struct {
	// ID is unique in the database.
	ID int64
	// Project and Name address the process.
	Project, Name string
	// Number counts the runs of (Project, Name) from 1.
	Number int
	// Session is the id of the server that started it.
	Session string
	// Started is when it started. Ended is zero while no end was saved.
	Started, Ended time.Time
	// Own: started by this Store. Live: the server that started it lives. Lost: it has no end, and its server is dead.
	Own, Live, Lost bool
	// Info is the JSON object that SaveRun was given; nil if none.
	Info []byte
}

// RunStats sums up the log of a run.
type RunStats struct {
	// Lines and Bytes are what is kept and can be read.
	Lines, Bytes int64
	// ByLevel counts the kept lines by level.
	ByLevel map[Level]int64
	// Oldest and Newest are the times of the first and last kept line; zero without lines.
	Oldest, Newest time.Time
	// DroppedLines and DroppedBytes count what was written but is no longer, or never was, stored.
	DroppedLines, DroppedBytes int64
}
