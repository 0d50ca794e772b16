package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"pmcp/process/proctab"
)

// Describe returns a record with what this process knows of itself: boot, server,
// guardian, parent, executable, working directory and start. guardian is the pid of the
// parent that guards it, 0 without one. A guardian that has died is left out, and so is
// its parent: the process that takes over its children, such as pid 1, lives for ever.
// Describe is to be called when the program starts, while its parent is still the process
// that started it.
func Describe(guardian int) Record {
	r := Record{Boot: proctab.BootID(), Transport: "stdio", StartedAt: time.Now()}
	r.Executable, _ = os.Executable()
	r.Cwd, _ = os.Getwd()
	var parent int
	r.Server, parent = describeProcess(os.Getpid())
	if guardian > 0 {
		r.Guardian, parent = describeProcess(guardian)
		if os.Getppid() != guardian {
			r.Guardian, parent = Process{}, 0
		}
	}
	r.Parent, _ = describeProcess(parent)
	return r
}

// describeProcess returns the process with that pid, and its parent's pid. It returns zero
// for a parent outside our pid namespace, and the pid alone, which identifies nothing, for a
// process that cannot be seen.
func describeProcess(pid int) (p Process, parent int) {
	if pid <= 0 {
		return Process{}, 0
	}
	row, err := proctab.Read(pid)
	if err != nil {
		return Process{PID: pid}, 0
	}
	return Process{PID: row.PID, Start: row.Start, PGID: row.PGID, Name: row.Comm}, row.PPID
}

// A Registration is this server's own entry in the registry. Its methods are safe for
// concurrent use.
type Registration struct {
	dir, id string

	mu     sync.Mutex
	record Record     // guarded by mu
	procs  *procsFile // guarded by mu; nil once closed
}

// errClosed is returned once the record was removed.
var errClosed = errors.New("the registration is closed")

// Register writes the record of the session and starts its list of processes. The
// session's lock must already be held (see Publish).
func Register(dir, id string, r Record) (*Registration, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	if r.Boot == "" {
		r.Boot = proctab.BootID()
	}
	procs, err := createProcs(dir, id, r.Boot)
	if err != nil {
		return nil, fmt.Errorf("cannot register the server: %w", err)
	}
	reg := &Registration{dir: dir, id: id, record: r, procs: procs}
	if err := reg.Update(func(*Record) {}); err != nil {
		return nil, errors.Join(err, procs.close(), os.Remove(procs.path))
	}
	return reg, nil
}

// Path returns the path of the record.
func (r *Registration) Path() string { return file(r.dir, r.id, recordSuffix) }

// Update changes the record and replaces the whole file: a reader sees the old record or
// the new one. If the file cannot be written, record and file stay as they were.
func (r *Registration) Update(change func(*Record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.procs == nil {
		return errClosed
	}
	next := r.record
	change(&next)
	next.Format, next.ID = Format, r.id
	content, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the record: %w", err)
	}
	f, err := replaceFile(r.Path(), unfinished(r.dir, r.id, recordSuffix), append(content, '\n'))
	if err != nil {
		return fmt.Errorf("cannot write the record: %w", err)
	}
	r.record = next
	return f.Close()
}

// Record returns the record as last written.
func (r *Registration) Record() Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record
}

// AddProcess adds processes to the session's list, so that the next sweep can stop them if
// this server is killed together with its guardian. It skips those already listed. It
// costs one write to a file, without a sync.
func (r *Registration) AddProcess(ids ...proctab.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.procs == nil {
		return errClosed
	}
	if err := r.procs.add(ids); err != nil {
		return fmt.Errorf("cannot add processes to the record: %w", err)
	}
	return nil
}

// Close removes the session's files, the record first and the lock last. The lock itself
// stays held until its descriptors are closed. Further calls do nothing.
func (r *Registration) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.procs == nil {
		return nil
	}
	err := errors.Join(Remove(r.dir, r.id), r.procs.close())
	r.procs = nil
	return err
}
