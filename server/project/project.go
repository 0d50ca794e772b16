// Package project owns what the processes of one project are: what a name means (a
// process of this session, of another window, or of an earlier session), the
// definitions and their secrets, and how a process is started, stopped and waited
// for. A window is another live pmcp server; a project may have several.
//
// It guarantees that a process of another window is never changed from here, that a
// value that looks secret is never stored, and that every answer about a process is
// made from one type, Run. It knows no tool and no protocol.
package project

import (
	"log/slog"
	"sync"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/logstore"
	"pmcp/logstore/mask"
	"pmcp/process"
)

// Options configure a Project. Mask may be nil; the other fields are required.
type Options struct {
	Manager *process.Manager
	Store   *logstore.Store
	Health  *health.Monitor
	Groups  *groups.Manager
	Log     *slog.Logger
	// Mask masks secrets, and learns the secrets of each process that is started.
	Mask *mask.Masker
	// Changed is called when something about a process has changed that the feed of
	// the Manager does not show, also when lines were removed from its log; the name ""
	// stands for a group.
	Changed func(name string, cleared bool)
}

// A Project is what one session knows of its project: it starts and stops the session's
// processes, and finds the runs, definitions and groups of every session. Its methods
// may be called from several goroutines.
type Project struct {
	o    Options
	name string // the path of the project's directory, which identifies it

	mu          sync.Mutex // held while a definition is saved or deleted, here and in the store
	definitions sync.Map   // *ownDefinition, keyed by process name
	inputs      sync.Map   // lastInput, keyed by process name
}

// New returns the project of o.Manager.
func New(o Options) *Project {
	return &Project{o: o, name: o.Manager.Project()}
}

// Dir returns the directory of the project, which is also its name in the store.
func (p *Project) Dir() string { return p.name }
