// Package fault recognises errors in the lines that a program prints: stack traces, panics,
// compiler diagnostics, failed tests, structured and plain log lines of error level, and the end of
// a run that nothing else explains.
//
// A Recogniser is fed the lines of one run, both streams interleaved, as they come, and emits a
// Fault for each error once it has seen all of it. It is pure: no clock, no files, no goroutines. A
// line that has nothing to do with an error costs a scan for keywords and a copy of its start (for
// looking back); only the rest is parsed.
//
// What is recognised is held by a corpus, testdata/corpus: output of real programs, which
// testdata/record records from the sources in testdata/programs, and the faults that are expected
// of it. testdata/clean is output that speaks of errors without there being one.
//
// Each language or tool has a file of its own with its shapes: how an error starts, which lines
// belong to it, what they mean. Lines of another stream, of another prefix ("web-1 | …"), or of no
// known form are never added to a stack. Two stacks of one language that are mixed line by line in
// one stream without any prefix cannot be told apart, and are not.
package fault
