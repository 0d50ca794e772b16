package project

import (
	"maps"
	"slices"
	"sync"

	"pmcp/process"
)

// An assignments holds the ports of starts that have not happened yet, and which ports
// earlier starts were given. Its zero value is ready for use.
type assignments struct {
	mu sync.Mutex // guards the fields below
	// pending are the ports of members of groups that are to be started, by process.
	pending map[string]*pendingPorts
	// used are the processes whose ports the latest start of a process was given.
	used map[string][]string
}

// pendingPorts are the ports of one member, of the start of a group that reserved them.
type pendingPorts struct {
	ports map[string]process.AssignedPort
	start *groupStart
}

// A groupStart identifies one start of a group. It has a size, so that its address is its own.
type groupStart struct{ _ byte }

// wanted returns the pending ports of name, or nil if there are none for these ports.
func (a *assignments) wanted(name string, ports map[string]int) map[string]process.AssignedPort {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pending[name]
	if p == nil || !maps.EqualFunc(p.ports, ports, func(a process.AssignedPort, preferred int) bool { return a.Preferred == preferred }) {
		return nil
	}
	return p.ports
}

// remove ends that ports of name are pending, of the given start or, if that is nil, of any.
// It reports whether they were. Call it once name was started: until then, the templates of
// others find them here.
func (a *assignments) remove(name string, of *groupStart) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pending[name]
	if p == nil || of != nil && p.start != of {
		return false
	}
	delete(a.pending, name)
	return true
}

// find returns a pending port.
func (a *assignments) find(name, variable string) (process.AssignedPort, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pending[name]
	if p == nil {
		return process.AssignedPort{}, false
	}
	port, ok := p.ports[variable]
	return port, ok
}

// add makes ports pending for a start of a group.
func (a *assignments) add(all map[string]map[string]process.AssignedPort) *groupStart {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil {
		a.pending = make(map[string]*pendingPorts)
	}
	of := new(groupStart)
	for name, assigned := range all {
		a.pending[name] = &pendingPorts{assigned, of}
	}
	return of
}

// setUsed records that name was started with the ports of the processes in uses. It deletes
// what was recorded of processes that no longer exist.
func (a *assignments) setUsed(name string, uses []string, exists func(name string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used == nil {
		a.used = make(map[string][]string)
	}
	maps.DeleteFunc(a.used, func(name string, _ []string) bool { return !exists(name) })
	if delete(a.used, name); len(uses) > 0 {
		a.used[name] = uses
	}
}

// users returns the processes that were started with a port of name.
func (a *assignments) users(name string) (users []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for user, uses := range a.used {
		if user != name && slices.Contains(uses, name) {
			users = append(users, user)
		}
	}
	return users
}
