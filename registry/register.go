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

// Describe returns a record with what this process can tell about itself: boot,
// server, guardian, parent, executable, working directory and start. guardian is
// the pid of the parent that guards it, 0 without one. One that has died is not
// described, nor is its parent: who takes over its children, as pid 1, lives on
// for ever. It belongs at the beginning of the program, while the parent is the
// one that started it.
func Describe(guardian int) Record {
	r := Record{Boot: proctab.BootID(), Transport: "stdio", StartedAt: time.Now()}
	r.Executable, _ = os.Executable()
	r.Cwd, _ = os.Getwd()
	self := describeProcess(os.Getpid())
	r.Server = self.Process
	launcher := self
	if guardian > 0 {
		launcher = describeProcess(guardian)
		if os.Getppid() != guardian {
			launcher = described{}
		}
		r.Guardian = launcher.Process
	}
	r.Parent = describeProcess(launcher.parent).Process
	return r
}

// described is a process with its parent's pid.
type described struct {
	Process
	parent int
}

// describeProcess is zero for a process that cannot be seen, such as a parent
// outside our pid namespace.
func describeProcess(pid int) described {
	row, err := proctab.Read(pid)
	if pid <= 0 || err != nil {
		return described{}
	}
	return described{
		Process: Process{PID: row.PID, Start: row.Start, PGID: row.PGID, Name: row.Comm},
		parent:  row.PPID,
	}
}

// Registration is this server's own entry in the registry. Its methods are safe
// for concurrent use.
type Registration struct {
	dir, id string

	mu     sync.Mutex
	record Record
	procs  *procsFile // nil once closed
}

// errClosed says that the record was already removed.
var errClosed = errors.New("the registration is closed")

// Register writes the record of the session, whose lock must be held by then
// (see Publish), and starts its list of processes.
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

// Path is where the record is.
func (r *Registration) Path() string { return file(r.dir, r.id, recordSuffix) }

// Update changes the record and replaces the file as a whole: a reader sees the
// old record or the new one. If it cannot be written, record and file stay as
// they were.
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

// AddProcess notes processes of the session, so that they can be stopped by the
// next sweep if this server is killed together with its guardian. Those already
// noted are skipped. It costs one write to a file, without a sync.
func (r *Registration) AddProcess(ids ...proctab.ID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.procs == nil {
		return errClosed
	}
	if err := r.procs.add(ids); err != nil {
		return fmt.Errorf("cannot note processes in the record: %w", err)
	}
	return nil
}

// Close removes the session's files, the record first and the lock last. The
// lock itself stays held until its descriptors are closed. Calling it again is
// harmless.
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
