package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"

	"pmcp/logstore"
	"pmcp/process"
)

// RunTable keeps the rows of the run table: it follows the manager's feed and
// saves each run's start and end to the store, which buffers it. For groups it
// reads the rows of other servers.
type RunTable struct {
	store   *logstore.Store
	project string
	log     *slog.Logger
	done    sync.WaitGroup

	mu    sync.Mutex
	owner runOwner
}

// runInfo is the JSON object of a run row. It holds names of environment
// variables and no values.
type runInfo struct {
	Command  string   `json:"command"`
	Args     []string `json:"args,omitempty"`
	Cwd      string   `json:"cwd"`
	EnvKeys  []string `json:"env_keys,omitempty"`
	PID      int      `json:"pid"`
	Owner    runOwner `json:"owner"`
	State    string   `json:"state"`
	ExitCode *int     `json:"exit_code,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	EndedBy  string   `json:"ended_by,omitempty"`
	Restarts int      `json:"restarts,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Ready    *bool    `json:"ready,omitempty"` // of a run that has not ended
}

// runOwner is the server that started a run.
type runOwner struct {
	PID    int    `json:"pid"`
	Client string `json:"client,omitempty"`
}

// String is "pid 7 editor".
func (o runOwner) String() string { return joinNonEmpty("pid", strconv.Itoa(o.PID), o.Client) }

// NewRunTable begins to follow manager. pid is the process that doctor and
// get_server_info show for this server.
func NewRunTable(manager *process.Manager, store *logstore.Store, pid int, log *slog.Logger) *RunTable {
	t := &RunTable{store: store, project: manager.Project(), owner: runOwner{PID: pid}, log: log}
	feed := manager.Watch()
	t.done.Go(func() { t.follow(feed) })
	return t
}

// SetClient enters the name of the client in the rows saved from now on, so that
// other servers can say whose a run is.
func (t *RunTable) SetClient(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owner.Client = name
}

func (t *RunTable) currentOwner() runOwner {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owner
}

// Close returns when everything that manager published has been saved. The
// manager must be closed first.
func (t *RunTable) Close() { t.done.Wait() }

// follow saves every change until the manager is closed.
func (t *RunTable) follow(feed *process.Feed) {
	for {
		change, err := feed.Next(context.Background())
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.log.Error("cannot follow the processes", "error", err)
			}
			return
		}
		t.take(feed, &change)
	}
}

// take saves one change. After a gap it saves every end that the manager has
// kept, and what is now: what comes next on the feed is newer than that, so
// nothing is saved over something newer.
func (t *RunTable) take(feed *process.Feed, change *process.Change) {
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

// save writes the row of the entry's current or last run.
func (t *RunTable) save(st *process.Status) {
	if st.RunID == 0 || betweenRuns(st) {
		return
	}
	info := runInfo{
		Command: st.Executable, Args: st.Spec.Args, Cwd: st.Spec.Dir, EnvKeys: slices.Sorted(maps.Keys(st.Spec.Env)),
		PID: st.PID, Owner: t.currentOwner(), State: stateOfRun(st).String(), Restarts: st.Restarts, Reason: st.Reason, Ready: st.Ready,
	}
	if st.Exit != nil {
		info.Signal, info.EndedBy = st.Exit.Signal, string(st.Exit.By)
		if st.Exit.Signal == "" {
			info.ExitCode = &st.Exit.Code
		}
	}
	raw, err := json.Marshal(info)
	if err != nil {
		t.log.Error("cannot save a run", "process", st.Spec.Name, "error", err)
		return
	}
	t.store.SaveRun(st.RunID, st.StartedAt, st.EndedAt, raw)
}

// betweenRuns says that the next run is being spawned: the status has its
// definition already, and the number of the run before.
func betweenRuns(st *process.Status) bool {
	return st.State == process.Starting || st.State == process.Stopping && !st.EndedAt.IsZero()
}

// stateOfRun is the state of the run itself: that the entry will try again, or is
// told not to, says nothing about a run that has ended by itself.
func stateOfRun(st *process.Status) process.State {
	switch {
	case st.Exit == nil, st.State != process.Backoff && st.State != process.Stopped:
		return st.State
	case st.State == process.Stopped && !endedByItself(st.Exit):
		return st.State
	case st.Exit.Clean():
		return process.Exited
	default:
		return process.Crashed
	}
}

// endedByItself says that nobody in pmcp ended the run.
func endedByItself(exit *process.Exit) bool {
	return exit.By == process.BySelf || exit.By == process.ByOutside || exit.By == process.ByOOM
}

// stateOfRow is the state of a stored run. Until its server has stored what it
// spawned, nothing but the number of the run is known.
func stateOfRow(run *logstore.Run, info *runInfo) string {
	switch {
	case run.Lost:
		return process.Lost.String()
	case run.Ended.IsZero():
		return cmp.Or(info.State, process.Starting.String())
	default:
		return info.State
	}
}

// decodeRunInfo reads what save wrote. A row that never got its info, or one of
// another version, gives what can be read of it.
func decodeRunInfo(raw []byte) (info runInfo) {
	_ = json.Unmarshal(raw, &info)
	return info
}
