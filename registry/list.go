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

// A State is what an entry of the registry stands for.
type State string

const (
	// Live is a server that holds its lock, or is just ending.
	Live State = "live"
	// Stale is what a dead server left, intact or corrupt.
	Stale State = "stale"
	// Foreign is a file that does not belong to this user's pmcp or was written
	// by a newer one. No code ever touches it.
	Foreign State = "foreign"
)

// maxForeign bounds the entries for foreign files: a directory that was configured
// by mistake may hold thousands.
const maxForeign = 50

// startup is how long a lock may keep its unfinished name before its session counts
// as dead.
const startup = time.Minute

// An Entry is one server in the registry, or one file that does not belong there.
type Entry struct {
	// ID is the session id, empty for a foreign file that has none.
	ID string
	// State is what the entry stands for.
	State State
	// Path is the path of the record or of the foreign file.
	Path string
	// Record is zero (Format 0) if there is none yet or if it cannot be read.
	Record Record
	// Processes are the processes that the server started and listed on this
	// boot, oldest first. They may have ended since.
	Processes []proctab.ID
	// Problem is what is wrong with the entry, in a few words; empty if nothing is.
	Problem string

	unlocked bool // the server or the guardian runs, but the lock of the session is free
}

// List returns the entries of the registry, ordered by the server's pid; those without
// a readable record come last. A bad file is an entry and never an error. List fails
// only if the directory cannot be read or is unsafe. A directory that does not exist
// is an empty registry.
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

// dyingLimit is how long ListSettled waits for a killed server. The kernel frees its
// lock first; its threads are gone some milliseconds later, or more on a machine under
// load. It is a variable so that tests can change it.
var dyingLimit = time.Second

// ListSettled is List, but waits until servers that are being killed are dead. A server
// that keeps running without its lock costs the whole dyingLimit.
func ListSettled(ctx context.Context, dir string, log *slog.Logger) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, dyingLimit)
	defer cancel()
	for logged := false; ; pause(ctx) {
		list, err := List(dir)
		unlocked := slices.IndexFunc(list, func(e Entry) bool { return e.unlocked })
		if err != nil || ctx.Err() != nil || unlocked < 0 {
			return list, err
		}
		if !logged {
			logged = true
			log.Debug("waiting for a server without its lock to die", "path", list[unlocked].Path)
		}
	}
}

// entries returns the entries for the files of a registry, in the order of List.
func entries(dir string, names []string) []Entry {
	boot := proctab.BootID()
	found := make(map[string]bool)
	var list []Entry
	foreign := 0
	for _, name := range names {
		id, ours := sessionOf(name)
		switch {
		case isDaemonFile(name):
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

// rank returns the group that an entry is sorted into: those with a pid come first.
func rank(e Entry) int {
	if e.State == Foreign {
		return 2
	}
	if e.Record.Format == 0 {
		return 1
	}
	return 0
}

// session returns the entry of one session. It reports whether the session exists:
// false if it has ended since the directory was read, or is just being created.
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

// runs reports whether the server or the guardian that a record names is alive. It is
// asked only if the lock is free: some network file systems lie about locks, and people
// delete lock files. A process that runs another program than the record's does not
// count, or it would be shown as a server for as long as it lives.
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

// isAnother reports whether a process is known not to belong to a record's session: it
// runs another program, and no file that it has open is named after the session. A server
// keeps its list of processes open, and its program may have been moved since. It is false
// where the kernel does not show the open files.
func isAnother(pid int, r Record) bool {
	program, known := proctab.Executable(pid)
	if !known || r.Executable == "" || strings.TrimSuffix(program, " (deleted)") == r.Executable {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(open, func(fd os.DirEntry) bool {
		name, _ := os.Readlink(filepath.Join(dir, fd.Name()))
		return strings.Contains(name, r.ID)
	})
}

// alive reports whether the process with that identity runs. A zombie does not.
func alive(id proctab.ID) bool {
	if id.PID <= 0 {
		return false
	}
	now, err := proctab.Read(id.PID)
	return err == nil && now.ID == id && !now.Zombie
}

// lingers reports whether a file of a dead session still exists: all may have been
// removed since the directory was read. A session with nothing but a lock under its
// unfinished name is just starting, unless that lock is old.
func lingers(dir, id string) bool {
	return slices.ContainsFunc(paths(dir, id), func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && (path != unfinished(dir, id, lockSuffix) || time.Since(info.ModTime()) > startup)
	})
}
