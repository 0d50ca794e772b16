package logstore

import (
	"time"

	"pmcp/logstore/line"
)

// CursorStart is the value of Query.After for the position before the oldest line kept.
const CursorStart = "start"

const (
	defaultLimit     = 100
	defaultPageBytes = 8 << 20
)

// A Query selects lines. The zero value selects the oldest 100 lines of all projects.
type Query struct {
	// Project limits the query to one project; "" = all.
	Project string
	// Names limits the query to these processes; nil = all.
	Names []string
	// Runs limits the query to these run ids; nil = all runs of the names.
	Runs []int64
	// UpTo is the id of a run. Runs of the same process that started later are excluded. 0 excludes no run.
	UpTo int64
	// Latest limits the query to the latest run of each name. It is ignored with Runs, After and Before.
	Latest bool
	// Streams is a bit set of 1<<stream; 0 = all.
	Streams uint8
	// MinLevel excludes lines of a lower level. LevelNone excludes no line.
	MinLevel line.Level
	// Since and Until bound the lines' times: Since <= At < Until. Zero = no bound.
	Since, Until time.Time
	// After and Before are cursors: only lines after, or before, that position are read. At most one of them may
	// be set. CursorStart as After is the position before the oldest line kept. If After does not cover a process,
	// the runs of that process are excluded that had ended when the latest run of the cursor started.
	After, Before string
	// Limit is the maximum number of lines; 0 = 100.
	Limit int
	// Newest selects the last Limit lines instead of the first; they are still ordered oldest first. Before
	// implies it.
	Newest bool
	// MaxBytes is the number of bytes of text after which the page ends; a page has at least one line. 0 = 8 MiB.
	MaxBytes int
}

// A RunFilter selects runs. The zero value selects the newest 100 of each name.
type RunFilter struct {
	// Project limits the list to one project; "" = all.
	Project string
	// Names limits the list to these processes; nil = all.
	Names []string
	// Number is the run's number; 0 = all. A negative number counts from the latest: -1 is the latest run,
	// -2 the run before it.
	Number int
	// Limit is the maximum number of runs of each name, newest first; 0 = 100.
	Limit int
	// Current selects one run of each name and applies only without a Number. It selects the run that is still
	// active in another live server, even if a later run has ended, or else the latest run.
	Current bool
}

// A Run is one process from start to exit.
type Run struct {
	// ID is unique in the database.
	ID int64
	// Project and Name identify the process.
	Project, Name string
	// Number is the run's number among the runs of (Project, Name), counted from 1.
	Number int
	// Session is the id of the server that started the run.
	Session string
	// Started is when the run started. Ended is when it ended, or zero if no end was saved.
	Started, Ended time.Time
	// Own means that this Store started the run, Live that the server that started the run is alive, and Lost that
	// the run has no end and its server is dead.
	Own, Live, Lost bool
	// Info is the JSON object that was passed to SaveRun; nil if there was no such object.
	Info []byte
}

// RunStats summarizes the log of a run.
type RunStats struct {
	// Lines and Bytes count the lines that are stored and can be read.
	Lines, Bytes int64
	// ByLevel counts the stored lines by level.
	ByLevel map[line.Level]int64
	// Oldest and Newest are the times of the first and last stored line; zero if no line is stored.
	Oldest, Newest time.Time
	// DroppedLines and DroppedBytes count output that was printed but is no longer, or never was, stored.
	DroppedLines, DroppedBytes int64
}

// The streams of a run. A stream takes two bits in storage.
const (
	Stdout   uint8 = iota // standard output
	Stderr                // standard error
	Messages              // protocol messages of an MCP child ("mcp")

	streamCount = 3
)

// StreamNames are the names by which the streams are shown.
var StreamNames = [...]string{Stdout: "out", Stderr: "err", Messages: "mcp"}

// A Line is one line of a run, cleaned: it has no escape sequences, no control characters except TAB, no
// newline, and is valid UTF-8.
type Line struct {
	// Run is the id of the run that printed the line.
	Run int64
	// Number is the line's number in the run, counted from 1 over all its streams. A dropped line keeps its
	// number.
	Number int64
	// At is when the read that completed the line returned. It never decreases within a run.
	At time.Time
	// Stream is Stdout, Stderr or Messages.
	Stream uint8
	// Level is the severity that the line itself states.
	Level line.Level
	// Continuation means that the text continues the stream's previous line, which was longer than 16 KiB
	// or was stored unfinished.
	Continuation bool
	// Partial means that the line was stored before its newline came: a prompt, or the end of the output.
	Partial bool
	// Text is the line without its newline, at most 16 KiB.
	Text string
}

// A Gap stands for missing lines.
type Gap struct {
	// Run is the id of the run that printed the missing lines.
	Run int64
	// At is when the lines were dropped.
	At time.Time
	// After is the number of the line before the missing lines; 0 if they were the run's first.
	After int64
	// Lines and Bytes count the missing lines and their text; -1 = unknown.
	Lines, Bytes int64
	// Reason says why the lines are missing, for a human reader.
	Reason string
}
