// Package page serves the page on which a person sees and stops what agents run: one
// HTML file that calls pmcp's tools. The same file is an MCP App.
//
// It guarantees that only this machine's user reaches the page: it listens on a
// loopback address, at a random path, and every call needs a token that no command line,
// log or header of another site ever shows. The page loads nothing from elsewhere, and
// output of processes is text in it. It knows tools by their names only.
package page
