package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"pmcp/groups"
	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/server/config"
	"pmcp/server/project"
)

// A log is what commands read: the store itself for all projects, or a session's view of
// it for one.
type log interface {
	Runs(ctx context.Context, f logstore.RunFilter) ([]logstore.Run, error)
	Read(ctx context.Context, q logstore.Query) (*logstore.Page, error)
	Follow(ctx context.Context, q logstore.Query) (*logstore.Page, error)
	Search(ctx context.Context, q logstore.SearchQuery) (*logstore.Matches, error)
	Faults(ctx context.Context, q logstore.FaultQuery) ([]logstore.Fault, int, error)
	Events(ctx context.Context, project string, names []string, limit int) ([]logstore.Event, error)
}

// A reader reads the database for one command. It is a session that starts nothing, so
// that names mean what they mean to an agent.
type reader struct {
	log
	store    *logstore.Store
	manager  *process.Manager
	groups   *groups.Manager
	project  *project.Project
	view     *project.Store
	stderr   *os.File
	reported []string // the reasons that askToStore has printed
	dir      string   // the project; "" = all
	records  string   // the directory of the servers' records
}

// openReader opens the database of the configuration. It reports on progress if the
// database must be migrated first, which a server would do at its start.
func openReader(ctx context.Context, c *config.Config, where place, stderr *os.File) (*reader, error) {
	o := logstore.Options{Path: c.DatabasePath, ReadOnly: true, Alive: c.Alive}
	store, err := logstore.Open(ctx, o)
	if errors.Is(err, logstore.ErrOlderSchema) {
		p := StartProgress(stderr, func() string { return "migrating the database of an older version" })
		err = migrate(ctx, o)
		if p.End(); err == nil {
			store, err = logstore.Open(ctx, o)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &noDatabaseError{c.DatabasePath}
	}
	if err != nil {
		return nil, err
	}
	view := project.NewStore(store, c.ProjectDir)
	r := &reader{records: c.RegistryDir, log: view, store: store, view: view, stderr: stderr, manager: process.NewManager(process.Options{Project: c.ProjectDir, Log: slog.New(slog.DiscardHandler)})}
	r.groups = groups.New(groups.Options{Processes: r.manager, Journal: view, Elsewhere: latestRuns{view: view, dir: c.ProjectDir}, Project: c.ProjectDir})
	r.project, _, err = project.New(project.Options{Manager: r.manager, Store: view, Groups: r.groups}).At(ctx, where.project, "", "")
	if err != nil {
		r.Close()
		return nil, err
	}
	if r.dir = r.project.Dir(); where.all {
		r.dir, r.log = "", store
	}
	view.ReachWindows(c.RegistryDir, 0)
	r.askToStore(ctx) // for all that the command reads
	return r, nil
}

// askToStore asks the servers whose processes the command is about to store what they hold
// in memory. It prints why one cannot, unless its last call has printed that reason: the
// command does not show that part.
func (r *reader) askToStore(ctx context.Context) {
	runs, _ := r.view.Runs(ctx, logstore.RunFilter{Project: r.dir, Current: true}) // what the command reads fails, too
	now, _ := r.view.AskToStore(ctx, runs)
	for _, why := range now {
		if !slices.Contains(r.reported, why) {
			fmt.Fprintln(r.stderr, "pmcp: a server holds its latest lines in memory, which are not shown: "+line.Visible(why))
		}
	}
	r.reported = now
}

// A noDatabaseError is returned if no server has used the database yet.
type noDatabaseError struct{ path string }

func (e *noDatabaseError) Error() string {
	return "nothing was started yet: there is no database " + e.path
}

// migrate brings the database to the schema of this version.
func migrate(ctx context.Context, o logstore.Options) error {
	o.ReadOnly = false
	store, err := logstore.Open(ctx, o)
	if err != nil {
		return err
	}
	if st := store.Status(); st.State == logstore.StateMemory {
		why, _, _ := strings.Cut(st.Reason, ";") // a server would keep its log in memory now
		err = errors.New(why + "; pmcp --doctor lists the servers")
	}
	return errors.Join(err, store.Close())
}

// Close closes the database.
func (r *reader) Close() {
	r.groups.Close()
	_ = r.manager.Close(context.Background())
	_ = r.store.Close() // nothing was written
}

// names returns the names of all processes.
func (r *reader) names(ctx context.Context) ([]string, error) {
	if r.dir != "" {
		return r.project.Names(ctx)
	}
	runs, err := r.Runs(ctx, logstore.RunFilter{Current: true})
	var names []string
	for i := range runs {
		names = append(names, runs[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// resolve returns the names that one argument stands for, or nil for all.
func (r *reader) resolve(ctx context.Context, argument string) ([]string, error) {
	if r.dir != "" {
		return r.project.Resolve(ctx, argument, true)
	}
	if known, err := r.names(ctx); err != nil || slices.Contains(known, argument) {
		return []string{argument}, err
	}
	return nil, fmt.Errorf("%w: %q", process.ErrUnknown, argument)
}

// others returns the processes of other projects with that name.
func (r *reader) others(ctx context.Context, name string) (others []string) {
	runs, err := r.store.Runs(ctx, logstore.RunFilter{Current: true})
	for i := range runs {
		if err == nil && runs[i].Name == name && runs[i].Project != r.dir {
			others = append(others, name+"@"+r.store.ProjectLabel(ctx, runs[i].Project))
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// name returns what a process is called: its name, with the label of its project if
// that is not the project of the command. It is safe to print.
func (r *reader) name(ctx context.Context, path, name string) string {
	return line.Visible(r.address(ctx, path, name))
}

// address is name, for a call of a tool.
func (r *reader) address(ctx context.Context, path, name string) string {
	if r.dir != "" || path == r.project.Dir() {
		return name
	}
	return name + "@" + r.store.ProjectLabel(ctx, path)
}
