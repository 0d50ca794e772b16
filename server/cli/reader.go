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

	"pmcp/logstore"
	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
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
	r.project, _, err = project.New(project.Options{Manager: r.manager, Store: view}).At(ctx, where.project, "", "")
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

// find returns the names that arguments stand for, or nil for all.
func (r *reader) find(ctx context.Context, arguments []string) ([]string, error) {
	if r.dir != "" {
		names, err := r.project.Resolve(ctx, strings.Join(arguments, ","), true)
		if errors.Is(err, process.ErrUnknown) {
			err = r.withOthers(ctx, arguments, err)
		}
		return names, err
	}
	if len(arguments) == 0 {
		return nil, nil
	}
	known, err := r.names(ctx)
	for _, name := range arguments {
		if err == nil && !slices.Contains(known, name) {
			err = fmt.Errorf("%w: %s (there are: %s)", process.ErrUnknown, args.QuoteWithNearest(name, known), prose.OrNone(known))
		}
	}
	return arguments, err
}

// withOthers adds to err, that a name is unknown, the processes of other projects with such a
// name.
func (r *reader) withOthers(ctx context.Context, arguments []string, err error) error {
	runs, listErr := r.store.Runs(ctx, logstore.RunFilter{Current: true})
	var others []string
	for i := range runs {
		if listErr == nil && slices.Contains(arguments, runs[i].Name) && runs[i].Project != r.dir {
			others = append(others, runs[i].Name+"@"+r.store.ProjectLabel(ctx, runs[i].Project))
		}
	}
	if len(others) == 0 {
		return err
	}
	slices.Sort(others)
	return fmt.Errorf("%w; of other projects: %s", err, strings.Join(slices.Compact(others), ", "))
}

// name returns what a process is called: its name, with the label of its project if
// that is not the project of the command. It is safe to print.
func (r *reader) name(ctx context.Context, path, name string) string {
	if r.dir != "" || path == r.project.Dir() {
		return line.Visible(name)
	}
	return line.Visible(name + "@" + r.store.ProjectLabel(ctx, path))
}
