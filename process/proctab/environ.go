package proctab

import "bytes"

// The variables that mark the environment of every child of a session, and so of all
// its descendants that do not change them.
const (
	EnvSession = "PMCP_SESSION" // the id of the session
	EnvRun     = "PMCP_RUN"     // the id of the run
)

// Getenvs returns the values of keys in the environment that a process was started
// with, "" for a missing one. known reports whether there is an environment to search.
// A process has none in the middle of execve or if it was started without one; that of
// another user's process, or of a process that is gone, cannot be read.
func Getenvs(pid int, keys ...string) (values []string, known bool) {
	env := environ(pid)
	values = make([]string, len(keys))
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		name, value, _ := bytes.Cut(entry, []byte("="))
		for i, key := range keys {
			if key == string(name) && values[i] == "" { // the first entry of a name counts
				values[i] = string(value)
			}
		}
	}
	return values, len(env) > 0
}
