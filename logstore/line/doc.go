// Package line turns what a process prints into lines: it splits the stream, strips
// what is meant for a terminal (escape sequences, control characters, redraws) and
// recognises the level that a line states.
//
// It guarantees that text is valid UTF-8 without control characters except TAB, that no
// byte of text is dropped (a line over MaxLineBytes comes in pieces), and that the
// result does not depend on how the stream was cut into reads. Memory is bounded by
// one line per stream. It knows neither runs nor storage.
package line
