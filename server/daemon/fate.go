package daemon

import (
	"cmp"
	"fmt"
	"strings"

	"pmcp/process/proctab"
	"pmcp/registry"
)

// diesWith returns with what a daemon dies although no session ends it: a process that has
// adopted it, the control group that it could not leave, or the container. It returns "" if only
// the end of the machine ends the daemon.
func diesWith(r registry.Record) string {
	var all []string
	if p := r.Parent; p.PID > 1 {
		all = append(all, fmt.Sprintf("process %d (%s)", p.PID, cmp.Or(p.Name, "unknown")))
	}
	if group := controlGroup(); group != "" {
		all = append(all, "control group "+group)
	}
	if inContainer() {
		all = append(all, "its container")
	}
	return proctab.Printable(strings.Join(all, ", "))
}
