package fault

import (
	"regexp"
	"sync"
)

// watcherLines is the number of the last lines of a stream in which a watcher may say that it waits.
const watcherLines = 3

// watcherWaits matches what a watcher prints when its program has failed: node --watch, deno, nodemon, dotnet watch,
// cargo watch, watchexec, air, and those that run go.
var watcherWaits = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\bwaiting for (a file to change|(a )?(file )?changes?\b)|\brestarting on file change|^Failed running '|^\[Finished running\. Exit status: [1-9]|^\[Command exited with [1-9]|^failed to build, error:|^exit status [1-9]\d*$`)
})

// Failing reports whether the output so far ends with an error that ends a program, or with what a watcher prints
// about the end of its program.
func (r *Recogniser) Failing() bool {
	if fatal := r.notes.emitted.fatal; fatal > 0 && r.lastLine-fatal <= explainNearLines {
		return true
	}
	for i := range r.streams {
		b := &lookback{stream: &r.streams[i], all: true, before: r.lastLine + 1}
		for n := range watcherLines {
			if l, ok := b.line(n); ok && r.lastLine-l.number < watcherLines && watcherWaits().MatchString(l.trim()) {
				return true
			}
		}
	}
	return false
}
