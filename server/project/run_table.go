package project

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"pmcp/process"
)

// RunTable maintains the rows of the run table. It follows the manager's feed and
// saves the start and the end of each run to the store, which buffers them. For
// package groups it reads the rows of other windows.
type RunTable struct {
	store   *Store
	project string
	log     *slog.Logger
	done    sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	owner   Owner
	actor   string          // see Store.Actor
	waiters []chan struct{} // of AwaitStored
	wake    context.CancelFunc
}

// NewRunTable returns a RunTable that follows manager. pid is the id of the process
// that doctor and get_server_info show for this server.
func NewRunTable(manager *process.Manager, store *Store, pid int, log *slog.Logger) *RunTable {
	t := &RunTable{store: store, project: manager.Project(), log: log}
	t.setOwner(Owner{PID: pid})
	store.table = t
	feed := manager.Watch()
	t.done.Go(func() { t.follow(feed) })
	starts := manager.Watch()
	t.done.Go(func() { recordCommits(manager, starts) })
	return t
}

// SetClient sets the client's name and version in the rows saved from now on, so that other
// servers can show the owner of a run, and its name in events.
func (t *RunTable) SetClient(name, version string) {
	t.setOwner(Owner{PID: t.currentOwner().PID, Client: strings.TrimSpace(name + " " + version)})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.actor = actorOf(name)
}

// setOwner sets the owner that is stored with every run from now on, including runs
// that are being spawned.
func (t *RunTable) setOwner(owner Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owner = owner
	if raw, err := json.Marshal(map[string]Owner{"owner": owner}); err == nil { // cannot fail for numbers and text
		t.store.SetNewInfo(raw)
	}
}

// currentOwner returns the owner of new rows.
func (t *RunTable) currentOwner() Owner {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owner
}

// Close waits until everything that manager published has been saved. The manager
// must be closed first.
func (t *RunTable) Close() { t.done.Wait() }

// AwaitStored waits until everything that the manager has published so far can be read from the
// database.
func (t *RunTable) AwaitStored(ctx context.Context) error {
	saved := make(chan struct{})
	t.mu.Lock()
	t.waiters = append(t.waiters, saved)
	wake := t.wake
	t.mu.Unlock()
	if wake != nil { // else the table has not begun, or has ended
		wake()
	}
	select {
	case <-saved:
		return t.store.Flush(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow saves every change until the manager is closed.
func (t *RunTable) follow(feed *process.Feed) {
	for {
		woken, wake := context.WithCancel(context.Background())
		t.mu.Lock()
		t.wake = wake
		waiting := len(t.waiters) > 0
		t.mu.Unlock()
		if waiting {
			wake()
		}
		err := t.saveAll(woken, feed)
		t.mu.Lock()
		waiters := t.waiters
		t.waiters = nil
		t.mu.Unlock()
		if errors.Is(err, context.Canceled) { // they came before changes that are not saved yet
			err = t.saveAll(woken, feed)
		}
		wake()
		for _, saved := range waiters {
			close(saved)
		}
		if !errors.Is(err, context.Canceled) {
			if !errors.Is(err, io.EOF) {
				t.log.Error("cannot follow the processes", "error", err)
			}
			return
		}
	}
}

// saveAll saves every change until the manager is closed, or ctx has ended and there is none.
func (t *RunTable) saveAll(ctx context.Context, feed *process.Feed) error {
	for {
		change, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		t.handleChange(feed, &change)
	}
}

// handleChange saves one change. After a gap in the feed it saves every end of a
// run that the manager has kept, and the current state of every process. Everything
// that follows on the feed is newer, so nothing overwrites newer data.
func (t *RunTable) handleChange(feed *process.Feed, change *process.Change) {
	if change.Missed == 0 {
		t.save(&change.Status)
		return
	}
	ends, entries := feed.Resync()
	for i := range ends {
		t.save(&ends[i].Status)
	}
	for i := range entries {
		t.save(&entries[i])
	}
}

// save writes the row of the current or last run of the entry st.
func (t *RunTable) save(st *process.Status) {
	if st.RunID == 0 || st.BetweenRuns() {
		return
	}
	info := row{
		Command: st.Executable, Args: st.Spec.Args, Cwd: st.Spec.Dir, EnvKeys: slices.Sorted(maps.Keys(st.Spec.Env)),
		PID: st.PID, Owner: t.currentOwner(), State: stateOfRun(st).String(), Restarts: st.Restarts, Reason: st.Reason, Ready: st.Ready,
		Until: st.Spec.Until, Retries: st.State == process.Backoff, Left: !st.Spec.Until.IsZero() && len(st.Survivors) > 0, Stdio: st.Spec.Stdio,
		Service: st.Spec.Service, Lost: st.Lost, LostAt: st.LostAt, Suspended: st.Suspended, Commit: st.Commit,
	}
	if st.Unhealthy != "" {
		info.Unhealthy, info.UnhealthyAt = st.Unhealthy, st.UnhealthyAt
	}
	if st.Refuses() {
		info.Refused = st.NotReady
	}
	if st.Exit != nil {
		info.Signal, info.EndedBy, info.Uncaught = st.Exit.Signal, string(st.Exit.By), st.Exit.Uncaught
		if st.Exit.Signal == "" {
			info.ExitCode = &st.Exit.Code
		}
	}
	for variable, port := range st.Spec.Ports {
		if info.Ports == nil {
			info.Ports = make(map[string]int, len(st.Spec.Ports))
		}
		info.Ports[variable] = port.Port
	}
	raw, err := json.Marshal(info)
	if err != nil {
		t.log.Error("cannot save a run", "process", st.Spec.Name, "error", err)
		return
	}
	t.store.SaveRun(st.RunID, st.StartedAt, st.EndedAt, raw)
}
