package project

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pmcp/groups"
	"pmcp/logstore"
)

// In a session, the address of a process or group is its name in the session's own
// project, and its name, @ and the label of the project in any other: web@feature. The
// managers know only addresses, and the store only projects and names. A Store
// translates between the two.

// A Store is a logstore.Store to which processes and groups are named by their
// addresses. A name that has no label of the session belongs to the project that the
// caller gives. The methods may be called from several goroutines.
type Store struct {
	*logstore.Store
	own    string // path of the session's own project
	labels labels
	dir    string        // the registry directory, in which the sockets of other windows are; "" = none
	within time.Duration // see ReachWindows
	table  *RunTable     // of the session; nil = none

	mu      sync.RWMutex
	byLabel map[string]string    // guarded by mu; paths of the other projects of the session
	byPath  map[string]string    // guarded by mu; their labels
	paths   []string             // guarded by mu; in the order in which they joined the session
	silent  map[string]time.Time // guarded by mu; when windows gave no sign of life, by session
}

// labels is the part of a store that names projects.
type labels interface {
	// ProjectLabel returns the label of a project, which never changes.
	ProjectLabel(ctx context.Context, path string) string
	// ProjectPaths returns the paths of the projects that a label, a path or the end of
	// a path may stand for, sorted.
	ProjectPaths(ctx context.Context, name string) ([]string, error)
}

// NewStore returns a Store for a session whose own project is the directory own.
func NewStore(store *logstore.Store, own string) *Store {
	return &Store{Store: store, own: own, labels: store, byLabel: make(map[string]string), byPath: make(map[string]string), silent: make(map[string]time.Time)}
}

// projects returns the paths of the projects of the session, its own first: those that
// a call has named.
func (s *Store) projects() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return append([]string{s.own}, s.paths...)
}

func (s *Store) has(path string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return path == s.own || s.byPath[path] != ""
}

// join makes a project one of the session. Its label becomes part of addresses, unless
// a process of the session has such a name: then its path does.
func (s *Store) join(ctx context.Context, path string) error {
	if s.has(path) {
		return nil
	}
	s.labels.ProjectLabel(ctx, s.own) // so that no other project gets a label that could mean this one
	label := s.labels.ProjectLabel(ctx, path)
	for _, known := range s.projects() {
		names, err := s.names(ctx, known, nil)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, "@"+label) }) {
			label = path
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPath[path] == "" {
		s.byPath[path], s.byLabel[label] = label, path
		s.paths = append(s.paths, path)
	}
	return nil
}

// names returns the addresses of a project that have a run or a definition. Nil among
// stands for all names, else only these count.
func (s *Store) names(ctx context.Context, path string, among []string) ([]string, error) {
	names, err := s.Store.ProcessNames(ctx, path, among)
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes: %w", err)
	}
	for i := range names {
		names[i] = s.address(path, names[i])
	}
	return names, nil
}

// address returns the address of a process or group. In a project outside the
// session it is the name.
func (s *Store) address(path, name string) string {
	if path == s.own {
		return name
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if label := s.byPath[path]; label != "" {
		return name + "@" + label
	}
	return name
}

// split returns the project and the name of an address, or project and address if the
// address has no label of the session.
func (s *Store) split(project, address string) (path, name string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := range address {
		if address[i] != '@' {
			continue
		}
		if path, ok := s.byLabel[address[i+1:]]; ok {
			return path, address[:i]
		}
	}
	return project, address
}

// errSeveralProjects is returned for a read of processes of several projects.
var errSeveralProjects = errors.New("the processes are of several projects; make a call for each project")

// splitAll returns the project and the names of addresses, which must be of one
// project. Nil stands for all of the given project.
func (s *Store) splitAll(project string, addresses []string) (path string, names []string, err error) {
	path = project
	for i, address := range addresses {
		of, name := s.split(project, address)
		if i > 0 && of != path {
			return "", nil, errSeveralProjects
		}
		path, names = of, append(names, name)
	}
	return path, names, nil
}

// NewRun is logstore.Store.NewRun, except that MCP servers on demand belong to one
// session each: no other session can connect to them, and their names only identify a
// command line. If another window has claimed the name, the error names that window.
func (s *Store) NewRun(project, address string) (run int64, number int, err error) {
	path, name := s.split(project, address)
	if strings.HasPrefix(name, OnDemandPrefix) {
		return s.Store.NewSharedRun(path, name)
	}
	run, number, err = s.Store.NewRun(path, name)
	var claimed *logstore.RunsElsewhereError
	if errors.As(err, &claimed) {
		claimed.Run.Name = address
		err = &WindowError{run: stored(&claimed.Run)}
	}
	return run, number, err
}

// Runs is logstore.Store.Runs. The addresses may be of several projects.
func (s *Store) Runs(ctx context.Context, f logstore.RunFilter) (runs []logstore.Run, err error) {
	scopes := map[string][]string{f.Project: nil}
	paths := []string{f.Project}
	if f.Names != nil {
		clear(scopes)
		paths = nil
	}
	for _, address := range f.Names {
		path, name := s.split(f.Project, address)
		if scopes[path] == nil {
			paths = append(paths, path)
		}
		scopes[path] = append(scopes[path], name)
	}
	for _, path := range paths {
		f.Project, f.Names = path, scopes[path]
		found, err := s.Store.Runs(ctx, f)
		if err != nil {
			return nil, err
		}
		runs = append(runs, found...)
	}
	for i := range runs {
		runs[i].Name = s.address(runs[i].Project, runs[i].Name)
	}
	return runs, nil
}

// Latest returns the run of each of the named processes that another window is running now or, if there
// is none, the latest one.
func (s *Store) Latest(ctx context.Context, project string, names []string) (runs []Run, err error) {
	rows, err := s.Runs(ctx, logstore.RunFilter{Project: project, Names: names, Current: true})
	for i := range rows {
		runs = append(runs, latestOf(&rows[i]))
	}
	return runs, err
}

// Run is logstore.Store.Run.
func (s *Store) Run(ctx context.Context, id int64) (logstore.Run, error) {
	run, err := s.Store.Run(ctx, id)
	run.Name = s.address(run.Project, run.Name)
	return run, err
}

// WaitRun is logstore.Store.WaitRun.
func (s *Store) WaitRun(ctx context.Context, id int64, until func(*logstore.Run) bool) (logstore.Run, error) {
	run, err := s.Store.WaitRun(ctx, id, until)
	run.Name = s.address(run.Project, run.Name)
	return run, err
}

// Definition is logstore.Store.Definition.
func (s *Store) Definition(ctx context.Context, project, address string) ([]byte, bool, error) {
	path, name := s.split(project, address)
	return s.Store.Definition(ctx, path, name)
}

// Definitions is logstore.Store.Definitions.
func (s *Store) Definitions(ctx context.Context, project string) (map[string][]byte, error) {
	all, err := s.Store.Definitions(ctx, project)
	if err != nil || project == s.own {
		return all, err
	}
	addressed := make(map[string][]byte, len(all))
	for name, definition := range all {
		addressed[s.address(project, name)] = definition
	}
	return addressed, nil
}

// SaveDefinition is logstore.Store.SaveDefinition.
func (s *Store) SaveDefinition(project, address string, definition []byte) (saved []byte) {
	path, name := s.split(project, address)
	return s.Store.SaveDefinition(path, name, definition)
}

// SaveGroup is logstore.Store.SaveGroup. Members are stored by their names.
func (s *Store) SaveGroup(project, address string, definition []byte) {
	path, name := s.split(project, address)
	if path != project {
		definition = renamed(definition, func(member string) string {
			_, name := s.split(path, member)
			return name
		})
	}
	s.Store.SaveGroup(path, name, definition)
}

// Groups returns the groups of the given project and of all projects of the session,
// keyed by address.
func (s *Store) Groups(ctx context.Context, project string) (map[string][]byte, error) {
	all := make(map[string][]byte)
	for _, path := range slices.Compact(append([]string{project}, s.projects()...)) {
		found, err := s.Store.Groups(ctx, path)
		if err != nil {
			return nil, err
		}
		for name, definition := range found {
			if path != s.own {
				definition = renamed(definition, func(member string) string { return s.address(path, member) })
			}
			all[s.address(path, name)] = definition
		}
	}
	return all, nil
}

// renamed returns the definition of a group with other names for it and its members. A
// definition that cannot be read is returned as it is: package groups reports it.
func renamed(definition []byte, name func(string) string) []byte {
	var g groups.Group
	if definition == nil || json.Unmarshal(definition, &g) != nil {
		return definition
	}
	g.Name = name(g.Name)
	for i := range g.Members {
		m := &g.Members[i]
		m.Process = name(m.Process)
		for j := range m.DependsOn {
			m.DependsOn[j].Process = name(m.DependsOn[j].Process)
		}
	}
	raw, err := json.Marshal(g)
	if err != nil { // cannot happen for text and numbers
		return definition
	}
	return raw
}

// scope translates what a query selects. Runs identify their project themselves.
func (s *Store) scope(q logstore.Query) (_ logstore.Query, err error) {
	q.Project, q.Names, err = s.splitAll(q.Project, q.Names)
	if q.Names == nil && q.Runs != nil {
		q.Project = ""
	}
	return q, err
}

// addressRuns gives the runs of a page their addresses.
func (s *Store) addressRuns(runs map[int64]logstore.Run) {
	for id, run := range runs {
		if run.Project != s.own {
			run.Name = s.address(run.Project, run.Name)
			runs[id] = run
		}
	}
}

// Read is logstore.Store.Read. All addresses must be of one project.
func (s *Store) Read(ctx context.Context, q logstore.Query) (*logstore.Page, error) {
	return s.page(ctx, q, s.Store.Read)
}

// Follow is logstore.Store.Follow. All addresses must be of one project.
func (s *Store) Follow(ctx context.Context, q logstore.Query) (*logstore.Page, error) {
	return s.page(ctx, q, s.Store.Follow)
}

func (s *Store) page(ctx context.Context, q logstore.Query, read func(context.Context, logstore.Query) (*logstore.Page, error)) (*logstore.Page, error) {
	q, err := s.scope(q)
	if err != nil {
		return nil, err
	}
	page, err := read(ctx, q)
	if err == nil {
		s.addressRuns(page.Runs)
	}
	return page, err
}

// Search is logstore.Store.Search. All addresses must be of one project.
func (s *Store) Search(ctx context.Context, q logstore.SearchQuery) (found *logstore.Matches, err error) {
	if q.Query, err = s.scope(q.Query); err != nil {
		return nil, err
	}
	if found, err = s.Store.Search(ctx, q); err == nil {
		s.addressRuns(found.Runs)
	}
	return found, err
}

// End is logstore.Store.End. It ignores the addresses of other projects than the first.
func (s *Store) End(ctx context.Context, project string, addresses []string) (string, error) {
	path, names, err := s.splitAll(project, addresses)
	if err != nil {
		return "", nil //nolint:nilerr // no cursor covers them
	}
	return s.Store.End(ctx, path, names)
}

// Clear is logstore.Store.Clear. All addresses must be of one project.
func (s *Store) Clear(ctx context.Context, project string, addresses []string, until time.Time) (lines, bytes int64, err error) {
	path, names, err := s.splitAll(project, addresses)
	if err != nil {
		return 0, 0, err
	}
	return s.Store.Clear(ctx, path, names, until)
}

// Faults is logstore.Store.Faults. All addresses must be of one project.
func (s *Store) Faults(ctx context.Context, q logstore.FaultQuery) (faults []logstore.Fault, total int, err error) {
	if q.Project, q.Names, err = s.splitAll(q.Project, q.Names); err != nil {
		return nil, 0, err
	}
	if q.Names == nil && q.Runs != nil { // runs identify their project themselves
		q.Project = ""
	}
	faults, total, err = s.Store.Faults(ctx, q)
	for i := range faults {
		faults[i].Name = s.address(faults[i].Project, faults[i].Name)
	}
	return faults, total, err
}

// MarkFault is logstore.Store.MarkFault.
func (s *Store) MarkFault(ctx context.Context, id string, resolved bool, note string) (f logstore.Fault, changed bool, err error) {
	f, changed, err = s.Store.MarkFault(ctx, id, resolved, note)
	f.Name = s.address(f.Project, f.Name)
	return f, changed, err
}

// FaultsSeen is logstore.Store.FaultsSeen.
func (s *Store) FaultsSeen(project, address string) int64 {
	return s.Store.FaultsSeen(s.split(project, address))
}

// SaveEvent is logstore.Store.SaveEvent. The name of the process is its address.
func (s *Store) SaveEvent(e logstore.Event) {
	e.Project, e.Name = s.split(e.Project, e.Name)
	s.Store.SaveEvent(e)
}

// Events is logstore.Store.Events. All addresses must be of one project.
func (s *Store) Events(ctx context.Context, project string, addresses []string, limit int) ([]logstore.Event, error) {
	path, names, err := s.splitAll(project, addresses)
	if err != nil {
		return nil, err
	}
	return s.Store.Events(ctx, path, names, limit)
}

// Address returns the address of the process of a fault.
func (s *Store) Address(f *logstore.Fault) string { return s.address(f.Project, f.Name) }

// A WindowError is returned for a change to a process that another window is running.
// Nothing was done.
type WindowError struct {
	run Run
	why error // why the owner could not be asked; nil if it was not tried
}

// Error names the window that owns the run.
func (e *WindowError) Error() string {
	text := fmt.Sprintf("%s belongs to another pmcp server (%s), which alone can change it; its log can be read from here", e.run.Spec.Name, e.run.Owner)
	if e.why != nil && !errors.Is(e.why, errNoSocket) {
		text += "; " + e.why.Error()
	}
	return text
}

// Unwrap returns the reason why the owner could not be asked.
func (e *WindowError) Unwrap() error { return e.why }

// errNoSocket means that the owner has no socket: it is of an older version, or has ended.
var errNoSocket = errors.New("it has no socket")
