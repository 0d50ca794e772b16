package process

import (
	"cmp"
	"time"

	"pmcp/process/proctab"
)

// maxProgram bounds Program.Command, in bytes.
const maxProgram = 4 << 10

// A Program is a living process of the tree of a run.
type Program struct {
	PID int
	// Command is the command line, its words joined with blanks, with the secrets that it holds.
	Command string
	// Dir is the working directory, or "" if this user may not see it.
	Dir string
	// Started is when the process started, to a hundredth of a second, or zero if that is not known.
	Started time.Time
}

// WatchesFiles reports whether the process waits for changes of files.
func (p *Program) WatchesFiles() bool { return watchesFiles(p.PID) }

// Programs returns the processes of those runs of this session, by run, parents before their children.
func (m *Manager) Programs(runs ...int64) map[int64][]Program {
	if len(runs) == 0 {
		return nil
	}
	members := m.deps.tree.scanSince(time.Now()).members
	found := make(map[int64][]Program, len(runs))
	for _, run := range runs {
		found[run] = programs(members[run])
	}
	return found
}

// ProgramsElsewhere returns the processes of those runs that this server can see, by run.
func ProgramsElsewhere(runs []ElsewhereRun) map[int64][]Program {
	table, err := proctab.All()
	if err != nil || len(runs) == 0 {
		return nil
	}
	found := make(map[int64][]Program, len(runs))
	for run, members := range elsewhereTrees(table, runs) {
		found[run] = programs(members)
	}
	return found
}

func programs(members []proctab.Proc) []Program {
	all := make([]Program, 0, len(members))
	for _, p := range members {
		line := cmp.Or(commandLine(p.PID), p.Comm)
		all = append(all, Program{PID: p.PID, Command: line[:min(len(line), maxProgram)], Dir: workingDir(p.PID), Started: p.Since()})
	}
	return all
}

// SetCommit sets Status.Commit of a run of name. run is its id. It does nothing to a run that is not current or not running.
func (m *Manager) SetCommit(name string, run int64, commit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[name]
	if e == nil || e.status.RunID != run || e.status.State != Running {
		return
	}
	e.status.Commit = commit
	m.publishLocked(e, Running)
}
