// Package line turns what a process prints into lines: it splits the stream, strips
// what is meant for a terminal (escape sequences, control characters, redraws) and
// recognises the level that a line states.
//
// It guarantees that text is valid UTF-8 without control characters except TAB, that no
// byte of text is dropped unless the program redraws it (a line over MaxLineBytes comes
// in pieces), and that the result does not depend on how the stream was cut into reads.
// Memory is bounded by a line and a small window of rows per stream. It knows neither
// runs nor storage.
//
// # What is a line
//
// A newline ends a line. When the stream pauses, the unfinished line goes out as it is,
// because it may be a prompt; what follows continues it.
//
// Characters: escape sequences and control characters are removed. Invalid UTF-8 becomes
// U+FFFD (one for a run of bad bytes), U+2028 and U+2029 become a space, and hidden
// characters become their escapes (see isHidden).
//
// Moves within the line (carriage return, backspace, columns): text that comes next
// replaces the line from there on. A move to the right of the text becomes a blank. What
// is erased is gone. A move alone changes nothing.
//
// Moves to another row, except up and back down, end the line, as do clearing the screen
// and changing to or from the alternate screen.
//
// Redraws in time: a line that has gone out after a pause and is then redrawn goes out
// again, as a new line, at its newline. Until then it is held, and so is a line behind
// which the cursor has returned to the first column. If it is not redrawn for 1.2 s, it
// is a prompt after all and goes out; that time doubles, up to 4.8 s, each time that what
// has gone out is redrawn. A state that equals the last one does not go out again. So a
// progress bar gives its first state and its last, however slow it is, and a prompt that
// was not redrawn goes out at the first pause.
//
// Redraws of rows: from the first move up, or once the cursor is hidden, whole lines are
// held in a frame, and moves up and down choose the row that is redrawn. A row that has
// gone out before goes out again if it has changed. Rows go out, in order, when redraws
// no longer reach them, when there are more than 64 or they have more than 16 KiB, when
// no row has been redrawn for the time above, and at the end of the stream. The first
// line after that which is no redraw ends the frame.
package line
