// Package fault recognises errors in the lines that a program prints: stack traces, panics,
// compiler diagnostics, failed tests, structured and plain log lines at error level, and a bad exit
// that no other error explains.
//
// A Recogniser takes the lines of one run in order, both streams interleaved, and emits a Fault for
// each error once the error is complete. It uses no clock, no files and no goroutines. A line that
// is unrelated to any error costs one scan for keywords and a copy of its first bytes (kept for
// lookback); only the other lines are parsed.
//
// A corpus pins what is recognised: testdata/corpus holds the output of real programs with the
// faults expected in it. testdata/record recorded the output from the sources in testdata/programs.
// testdata/clean holds output that mentions errors but contains none. testdata/openings.txt holds short
// output of many tools, each with the message and the place that the first error must have, and
// testdata/benign.txt such output without errors.
//
// Each language or tool has a row, and each kind of tool its own file of rows. A row defines how a
// report starts, which lines belong to the report and what these lines mean; a block reads one
// report. Lines from another stream, with another prefix ("web-1 | …") or of an unknown form are
// never added to a stack. If two stacks of one language are interleaved line by line in one stream
// without prefixes, the package does not try to separate them.
package fault
