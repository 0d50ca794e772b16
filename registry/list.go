package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pmcp/process/proctab"
)

// State says what an entry of the registry is.
type State string

const (
	// Live is a server that holds its lock, or is finishing.
	Live State = "live"
	// Stale is what a dead server left, whole or corrupt.
	Stale State = "stale"
	// Foreign is a file that is not one of this user's pmcp or was written by
	// a newer one. Nothing ever touches it.
	Foreign State = "foreign"
)

// maxForeign bounds the entries for foreign files: a directory that was set by
// mistake may hold thousands.
const maxForeign = 50

// startup is the longest time for which a lock may stand under its unfinished
// name.
const startup = time.Minute

// Entry is one server as the registry knows it, or one file that does not
// belong there.
type Entry struct {
	// ID is the session id, empty for a foreign file that has none.
	ID string
	// State says whether the server lives.
	State State
	// Path is the record, or the foreign file.
	Path string
	// Record is zero (Format 0) if there is none yet or it cannot be read.
	Record Record
	// Processes are the processes that the server started and noted on this
	// boot, oldest first. They may have ended since.
	Processes []proctab.ID
	// Problem says in a few words what is wrong with the entry; empty if
	// nothing is.
	Problem string

	unlocked bool // its server or guardian runs, but nobody holds its lock
}

// List reads the registry, ordered by the server's pid, entries without a
// readable record last. A bad file is an entry of its own and never an error;
// an error is only that the directory cannot be read or is unsafe. A directory
// that does not exist is an empty registry.
func List(dir string) ([]Entry, error) {
	d, err := openDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the registry: %w", err)
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot list the registry: %w", err)
	}
	slices.Sort(names)
	return entries(dir, names), nil
}

// dying is the longest time for which a killed server is waited for: the kernel
// frees its lock first, and its threads are gone some milliseconds later, or
// more on a machine under load. It is a constant but in tests.
var dying = time.Second

// listSettled is List, but waits until servers that are being killed are dead.
// One that runs on without its lock costs the whole of dying.
func listSettled(ctx context.Context, dir string, log *slog.Logger) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, dying)
	defer cancel()
	for told := false; ; tick(ctx) {
		list, err := List(dir)
		unlocked := slices.IndexFunc(list, func(e Entry) bool { return e.unlocked })
		if err != nil || ctx.Err() != nil || unlocked < 0 {
			return list, err
		}
		if !told {
			told = true
			log.Debug("a server without its lock is given time to die", "path", list[unlocked].Path)
		}
	}
}

func entries(dir string, names []string) []Entry {
	boot := proctab.BootID()
	found := make(map[string]bool)
	var list []Entry
	foreign := 0
	for _, name := range names {
		id, _, ours := sessionOf(name)
		switch {
		case !ours:
			if foreign++; foreign <= maxForeign {
				list = append(list, Entry{State: Foreign, Path: filepath.Join(dir, name), Problem: "not a file of pmcp"})
			}
		case !found[id]:
			found[id] = true
			if e, exists := session(dir, id, boot); exists {
				list = append(list, e)
			}
		}
	}
	if more := foreign - maxForeign; more > 0 {
		list = append(list, Entry{State: Foreign, Path: dir, Problem: fmt.Sprintf("%d more files that are not pmcp's", more)})
	}
	slices.SortStableFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Record.Server.PID, b.Record.Server.PID))
	})
	return list
}

// rank puts what has a pid to order by before what has none.
func rank(e Entry) int {
	switch {
	case e.State == Foreign:
		return 2
	case e.Record.Format == 0:
		return 1
	default:
		return 0
	}
}

// session reads what there is of one session. It does not exist if it ended
// meanwhile, or if it is only just being made.
func session(dir, id, boot string) (e Entry, exists bool) {
	e = Entry{ID: id, State: Live, Path: file(dir, id, recordSuffix)}
	record, err := readRecord(dir, id)
	e.Record = record
	held := Alive(dir, id)
	switch {
	case errors.Is(err, errForeign), errors.Is(err, errNewer) && !held:
		e.State = Foreign
		e.Problem = err.Error()
		return e, true
	case errors.Is(err, os.ErrNotExist) && held:
		e.Problem = "no record: it is starting or ending"
	case errors.Is(err, os.ErrNotExist):
		e.Problem = "no record"
	case err != nil:
		e.Problem = err.Error()
	}
	e.Processes, err = readProcs(dir, id, boot)
	if err != nil && !errors.Is(err, os.ErrNotExist) && e.Problem == "" {
		e.Problem = "process list: " + err.Error()
	}
	switch {
	case held:
	case runs(record, boot):
		e.unlocked = true
		e.Problem = "it runs, but its lock is not held"
	default:
		e.State = Stale
	}
	return e, e.State == Live || lingers(dir, id)
}

// runs says whether one of the two processes that a record names is alive. It
// decides only where the lock does not: some network file systems lie, and lock
// files are deleted by hand. A process that runs another program than the record
// says is neither, whatever the record claims: it would be shown as a server for
// as long as it lives.
func runs(r Record, boot string) bool {
	if r.Format == 0 || r.Boot != boot {
		return false
	}
	for _, p := range []Process{r.Server, r.Guardian} {
		if alive(p.Identity()) && !isAnother(p.PID, r) {
			return true
		}
	}
	return false
}

// isAnother says whether a process is known not to be of a record's session: it
// runs another program, and was not called with the session's id as servers are,
// whose program may have been moved since. Where the kernel does not show the
// arguments as a file, nothing is known.
func isAnother(pid int, r Record) bool {
	runs, known := proctab.Executable(pid)
	if !known || r.Executable == "" || strings.TrimSuffix(runs, " (deleted)") == r.Executable {
		return false
	}
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && !strings.Contains(string(arguments), r.ID)
}

// alive says whether the process of that identity runs; a zombie does not.
func alive(id proctab.ID) bool {
	if id.PID <= 0 {
		return false
	}
	now, err := proctab.Read(id.PID)
	return err == nil && now.ID == id && !now.Zombie
}

// lingers says whether a file of a dead session is still there: it may have
// been removed since the directory was read. A lock under its unfinished name
// alone is a session that begins, unless it is old.
func lingers(dir, id string) bool {
	for _, suffix := range []string{recordSuffix, procsSuffix, lockSuffix} {
		if _, err := os.Lstat(file(dir, id, suffix)); err == nil {
			return true
		}
	}
	for _, suffix := range []string{recordSuffix, procsSuffix} {
		if _, err := os.Lstat(unfinished(dir, id, suffix)); err == nil {
			return true
		}
	}
	info, err := os.Lstat(unfinished(dir, id, lockSuffix))
	return err == nil && time.Since(info.ModTime()) > startup
}
