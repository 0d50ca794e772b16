package logstore

import "time"

// The streams of a run. Two bits in storage.
const (
	Stdout   uint8 = iota // standard output
	Stderr                // standard error
	Messages              // protocol messages of an MCP child ("mcp")

	streamCount = 3
)

// Line is one line of a run, cleaned: no escape sequences, no control characters but TAB, valid UTF-8, no newline.
type Line struct {
	// Run is the id of the run that wrote it.
	Run int64
	// Number counts the run's lines from 1, over all its streams. A dropped line keeps its number.
	Number int64
	// At is when the read that completed the line returned. It never falls within a run.
	At time.Time
	// Stream is Stdout, Stderr or Messages.
	Stream uint8
	// Level is what the line says of itself.
	Level Level
	// Continuation tells that the text continues the stream's previous line, which was over 16 KiB
	// or was stored unfinished.
	Continuation bool
	// Partial tells that no newline had come when the line was stored: a prompt, or the end of the output.
	Partial bool
	// Text is the line without its newline, at most 16 KiB.
	Text string
}

// Gap stands for lines that are not there.
type Gap struct {
	// Run is the id of the run that wrote them.
	Run int64
	// At is when they were given up.
	At time.Time
	// After is the number of the line before them; 0 when they were the run's first.
	After int64
	// Lines and Bytes count them; -1 = unknown.
	Lines, Bytes int64
	// Reason says why, in words for a person.
	Reason string
}
