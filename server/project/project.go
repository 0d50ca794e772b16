// Package project owns what the processes of one project are: what a name means (a
// process of this session, of another window, or of an earlier session), the
// definitions and their secrets, and how a process is started, stopped and waited
// for. A window is another live pmcp server; a project may have several.
//
// It guarantees that a process of another window is changed only by that window, to
// which a call is sent at most once, that a value that looks secret is never stored,
// and that every answer about a process is made from one type, Run. It knows no tool
// and no protocol.
package project

import (
	"log/slog"
	"sync"

	"pmcp/groups"
	"pmcp/health"
	"pmcp/logstore/mask"
	"pmcp/process"
	"pmcp/process/command"
)

// Options configure a Project. Mask may be nil; the other fields are required.
type Options struct {
	Manager *process.Manager
	Store   *Store
	Health  *health.Monitor
	Groups  *groups.Manager
	Log     *slog.Logger
	// Mask masks secrets, and learns the secrets of each process that is started.
	Mask *mask.Masker
	// Changed is called when something about a process has changed that the feed of
	// the Manager does not show, also when lines were removed from its log; the name ""
	// stands for a group.
	Changed func(name string, cleared bool)
	// Input is called when a process has got input by (see Project.For): how much of it what says.
	Input func(by string, st *process.Status, what string)
	// Watched is called when watched files have changed, or cannot be watched any more.
	Watched func(WatchEvent)
	// Keep says how processes outlive the session.
	Keep Keep
}

// A Project is what one session knows of a project: it starts and stops the session's
// processes, and finds the runs, definitions and groups of every session. Processes and
// groups are named by their addresses (see Store), also those of other projects, which
// every method accepts unless its comment restricts it. Its methods may be called from
// several goroutines.
type Project struct {
	*session
	name string // the path of the project's directory, which identifies it
	// chosen means that a call has named the project: then no name falls through to
	// another one.
	chosen bool
	// received means that the call came from another window.
	received bool
	by       string // see For
	// read is the command line of the call; see Definition.read.
	read command.Source
}

// For returns p for a call that was made for by, as events name them: "" is the client of this session.
func (p *Project) For(by string) *Project {
	called := *p
	called.by = by
	return &called
}

// By returns for whom the call was made: see For.
func (p *Project) By() string { return p.by }

// Received returns p for a call that came from another window: nothing that it does is sent on to a third one.
func (p *Project) Received() *Project {
	return &Project{session: p.session, name: p.name, chosen: p.chosen, by: p.by, received: true}
}

// IsReceived reports whether p is that of a call that came from another window.
func (p *Project) IsReceived() bool { return p.received }

// A session is what the projects of one session share.
type session struct {
	o Options

	mu          sync.Mutex // held while a definition is saved or deleted, here and in the store
	definitions sync.Map   // *ownDefinition, keyed by address
	unordered   sync.Map   // true for each address that FirstUnordered was called with
	unnamed     sync.Map   // *Definition of each unnamed process, keyed by address
	inputs      sync.Map   // lastInput, keyed by address
	assignments assignments
	watches     watches
	elsewhere   process.ElsewhereMeter
}

// New returns the session's own project, that of o.Manager.
func New(o Options) *Project {
	p := &Project{session: &session{o: o}, name: o.Manager.Project()}
	o.Manager.SetTakenPorts(p.takenPorts)
	return p
}

// Dir returns the directory of the project, which is also its name in the store.
func (p *Project) Dir() string { return p.name }

// of returns the project of a process or group.
func (p *Project) of(address string) *Project {
	path, _ := p.o.Store.split(p.o.Manager.Project(), address)
	return &Project{session: p.session, name: path, by: p.by}
}

func (p *Project) isOwn() bool { return p.name == p.o.Manager.Project() }

// IsOfSession reports whether a call has named the project with that path, or it is the
// session's own.
func (p *Project) IsOfSession(path string) bool { return p.o.Store.has(path) }
