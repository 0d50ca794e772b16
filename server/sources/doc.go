// Package sources finds out whether a run has the code that is there: which of the files that its programs read were
// changed since they read them, and at which commit the repository was when the run started.
//
// It looks only when it is asked, at 20,000 files and for 200 ms at most, asks git only once something has changed, and keeps
// nothing between two looks. It names a file only if the program cannot have read its present content; of programs that read
// their files again by themselves, and of those that it does not know, it says nothing. Git is run by its caller, without
// hooks, prompts and locks.
package sources
