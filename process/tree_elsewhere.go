package process

import (
	"time"

	"pmcp/process/proctab"
)

// TreeElsewhere returns the living processes of a run of another server, parents before their
// children, or none if this server cannot see them. CPUPercent is the mean since the run began.
func TreeElsewhere(run ElsewhereRun) ([]Member, error) {
	table, err := proctab.All()
	if err != nil {
		return nil, err
	}
	age := time.Since(run.Started)
	procs := elsewhereTrees(table, []ElsewhereRun{run})[run.Run]
	return newMembers(procs, func(p proctab.Proc) float64 { return meanShare([]proctab.Proc{p}, age) })
}
