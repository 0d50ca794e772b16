// Package screen emulates the terminal of a program: what it shows, as text, what it answers to the
// program, and what its keys send.
//
// It guarantees that no input makes it fail or allocate more than the cells of its size and 64 KiB, that
// the result does not depend on how the input was cut into writes, and that a write takes time in
// proportion to its length. Text is drawn when the screen is viewed, or something else is to be drawn. It follows xterm in what programs with a terminfo entry of xterm use;
// colours and other looks of characters are left out. It knows neither files nor processes.
//
// github.com/charmbracelet/x/vt 0.1.0 was measured for this: 0.1 to 1.3 MB/s of output where this
// package draws 35 to 310, 5 MB a terminal, and up to 146 MB in lines that scroll off the alternate screen.
package screen
