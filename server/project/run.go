package project

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/server/sources"
)

// A Run is one run of a process: of this session, of another window, or stored by a
// session that has ended. Everything that is shown of a process is shown from it.
type Run struct {
	// Status describes the run, or a process of this session that has a definition and
	// no run yet. The secrets in Spec.Args are masked. If the run was read from the
	// database, Spec has only Name, Args, Dir and whether there is a readiness rule.
	process.Status
	// Project is the project of the run.
	Project string
	// Stored means that the run was read from the run table: this session did not
	// start it.
	Stored bool
	// Defined means that there is only a definition: it never ran, or its runs are gone.
	Defined bool
	// Owner is the window that is running the run, or nil.
	Owner *Owner
	// ran is the live window that has run the run, if that has ended and was not kept.
	ran *Owner
	// session is that of a lost run, and main the pid of its first process.
	session string
	main    int
	// By is who started or restarted the run, as events name them, or what restarted it, as "its restart policy"; "" if
	// that is not known any more. Only History sets it.
	By string
	// Since is a sentence on what happened to the process after the run ended, or "".
	Since string
	// Serves is why a wait for the end of the run has ended before: "listens on 9323, silent for 10s", or "".
	Serves string
	// Asks says that the run waits for input, and for which; see Project.setAsks.
	Asks string
	// Changed is what was found out about its sources, and Head the commit at which they are, if that is not the one of
	// Commit; see Project.LookAtSources.
	Changed sources.Changed
	Head    string
}

// An Owner is the server that started a run.
type Owner struct {
	PID    int    `json:"pid"`
	Client string `json:"client,omitempty"`

	session string // its ID, by which its socket is found
}

// String returns text such as "pid 7 editor".
func (o Owner) String() string {
	return strings.TrimSpace("pid " + strconv.Itoa(o.PID) + " " + o.Client)
}

// maxProgramFiles bounds the arguments of a run that Stale looks at.
const maxProgramFiles = 32

// Stale returns the file of the program of a live MCP server that was changed after the run began:
// the executable, or an argument that names a file, such as a script. It returns "" if there is
// none, and for other runs: they reload what they need, or are restarted by those who edit them.
func (r *Run) Stale() string {
	if !process.SpeaksMCP(r.Spec.Stdio) || !r.State.Live() {
		return ""
	}
	for _, path := range append([]string{r.Executable}, r.Spec.Args[:min(len(r.Spec.Args), maxProgramFiles)]...) {
		if path == "" {
			continue
		}
		shown := path
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.Spec.Dir, path)
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.ModTime().After(r.StartedAt) {
			return shown
		}
	}
	return ""
}

// maxNamedSurvivors is how many survivors of a run an answer names.
const maxNamedSurvivors = 10

// Left returns the processes that have outlived the run, in words.
func (r *Run) Left() []string {
	var left []string
	for i, s := range r.Survivors {
		if i == maxNamedSurvivors {
			return append(left, fmt.Sprintf("%d more", len(r.Survivors)-i))
		}
		left = append(left, fmt.Sprintf("pid %d (%s)", s.PID, s.Comm))
	}
	return left
}

// Over reports whether the run has ended or was lost. The process may have another
// run.
func (r *Run) Over() bool { return !r.EndedAt.IsZero() || r.State == process.Lost }

// Idle reports whether the process has ended and will not be restarted. In a
// process that is being restarted, EndedAt is the end of the previous run.
func (r *Run) Idle() bool { return r.Over() && !r.State.Active() }

// EndedBadly reports whether the errors of the run explain how it ended. They do not
// if another window stopped it.
func (r *Run) EndedBadly() bool {
	return r.Exit != nil && !r.Exit.Clean() && !(r.Stored && r.State == process.Stopped) || r.State == process.Failed || r.State == process.Backoff || r.State == process.Lost
}

// IsUnready reports whether the run has not ended, but is not ready yet.
func (r *Run) IsUnready() bool { return !r.Over() && r.Ready != nil && !*r.Ready }

func (r *Run) lacksReadiness() bool {
	return r.Ready == nil && !r.Over() && r.State != process.Starting
}

// Duration returns how long the run took, or 0 if it has not ended.
func (r *Run) Duration() time.Duration {
	if r.Exit == nil && !r.Stored || r.EndedAt.IsZero() {
		return 0
	}
	return r.EndedAt.Sub(r.StartedAt)
}

// here returns the entry st of this session as a Run.
func (p *Project) here(st *process.Status) Run {
	r := Run{Status: *st, Project: p.of(st.Spec.Name).name}
	r.Spec.Args = p.o.Mask.Texts(st.Spec.Args)
	return r
}

// hereOf is here for one run of an entry, which may have started another run since.
func (p *Project) hereOf(st *process.Status) Run {
	r := p.here(st)
	if !r.Over() {
		return r
	}
	current, err := p.o.Manager.Status(st.Spec.Name)
	if err == nil && current.RunID == st.RunID && !current.BetweenRuns() {
		return r
	}
	r.State, r.NextRetry, r.Survivors = stateOfRun(st), time.Time{}, nil
	if err == nil && current.RunID != st.RunID {
		r.Since = fmt.Sprintf("run %d has been started since", current.Run)
	}
	return r
}

// row is the JSON object in a row of the run table. It holds names of environment
// variables, but no values.
type row struct {
	Command  string   `json:"command"`
	Args     []string `json:"args,omitempty"`
	Cwd      string   `json:"cwd"`
	EnvKeys  []string `json:"env_keys,omitempty"`
	PID      int      `json:"pid"`
	Owner    Owner    `json:"owner"`
	State    string   `json:"state"`
	ExitCode *int     `json:"exit_code,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	EndedBy  string   `json:"ended_by,omitempty"`
	Uncaught bool     `json:"uncaught,omitempty"` // older versions of pmcp did not store it
	Restarts int      `json:"restarts,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Ready    *bool    `json:"ready,omitempty"` // only for a run that has not ended
	// Ports are the ports that were assigned to the run, by variable.
	Ports map[string]int `json:"ports,omitempty"`
	// Until is the time until which the process is kept.
	Until time.Time `json:"until,omitzero"`
	// Retries means that the process waits for the next try of its restart policy.
	Retries bool `json:"retries,omitempty"`
	// Left means that a kept process has ended and left others.
	Left  bool   `json:"left,omitempty"`
	Stdio string `json:"stdio,omitempty"` // Spec.Stdio
	// Service is Spec.Service. Older versions of pmcp did not store it.
	Service bool `json:"service,omitempty"`
	// Refused is NotReady of a run that refuses: see process.Status.Refuses.
	Refused string `json:"refused,omitempty"`
	// The rest is as in process.Status.
	Lost        string    `json:"lost,omitempty"`
	LostAt      time.Time `json:"lost_at,omitzero"`
	Suspended   string    `json:"suspended,omitempty"`
	Commit      string    `json:"commit,omitempty"`
	Unhealthy   string    `json:"unhealthy,omitempty"`
	UnhealthyAt time.Time `json:"unhealthy_at,omitzero"`
}

// stored returns a row of the run table as a Run. Until the server of the run has
// stored what it spawned, only the number of the run is known. If the row was
// written by another version of pmcp, stored returns what can be read.
func stored(run *logstore.Run) Run {
	var info row
	_ = json.Unmarshal(run.Info, &info)
	r := Run{Project: run.Project, Stored: true, Status: process.Status{
		Spec:       process.Spec{Name: run.Name, Args: info.Args, Dir: info.Cwd, Until: info.Until, Stdio: info.Stdio, Service: info.Service},
		Executable: info.Command, Run: run.Number, RunID: run.ID, StartedAt: run.Started, EndedAt: run.Ended,
		Restarts: info.Restarts, Reason: info.Reason, Commit: info.Commit,
	}}
	if info.Ready != nil {
		r.Spec.Ready = new(process.Ready)
	}
	r.Exit = exitOf(info.ExitCode, info.Signal, info.EndedBy, info.Uncaught)
	if run.Lost {
		r.State, r.session, r.main = process.Lost, run.Session, info.PID
		return r
	}
	if r.EndedAt.IsZero() {
		info.State = cmp.Or(info.State, process.Starting.String())
	}
	r.State, _ = process.ParseState(info.State)
	if run.Live && r.EndedAt.IsZero() {
		if r.PID, r.Ready = info.PID, info.Ready; info.Refused != "" {
			r.SetRefused(info.Refused)
		}
		r.Lost, r.LostAt, r.Suspended, r.Unhealthy, r.UnhealthyAt = info.Lost, info.LostAt, info.Suspended, info.Unhealthy, info.UnhealthyAt
		if inWindow(run) {
			r.Owner = &info.Owner
			r.Owner.session = run.Session
		}
		for variable, port := range info.Ports {
			if r.Spec.Ports == nil {
				r.Spec.Ports = make(map[string]process.AssignedPort, len(info.Ports))
			}
			r.Spec.Ports[variable] = process.AssignedPort{Port: port}
		}
	}
	return r
}

// exitOf returns the end of a run that was encoded, or nil for a run without one.
func exitOf(code *int, signal, by string, uncaught bool) *process.Exit {
	switch {
	case code != nil:
		return &process.Exit{Code: *code, Signal: signal, By: process.EndedBy(by), Uncaught: uncaught}
	case signal != "":
		return &process.Exit{Code: -1, Signal: signal, By: process.EndedBy(by)}
	}
	return nil
}

// inWindow reports whether another window is running the run of a row.
func inWindow(row *logstore.Run) bool { return row.Live && !row.Own && row.Ended.IsZero() }

// latestOf is stored for the latest run of a process. A process that waits for its next try is still
// its owner's: no other session may start it. What a kept process has left is the daemon's to stop.
func latestOf(run *logstore.Run) Run {
	r := stored(run)
	if !run.Live || run.Own || r.EndedAt.IsZero() {
		return r
	}
	var info row
	if json.Unmarshal(run.Info, &info) != nil {
		return r
	}
	info.Owner.session = run.Session
	if r.Spec.Until.IsZero() {
		r.ran = &info.Owner
	}
	if !info.Retries && !(info.Left && r.Spec.Until.After(time.Now())) {
		return r
	}
	r.Owner = &info.Owner
	if info.Retries {
		r.State = process.Backoff
	}
	return r
}

// stateOfRun returns the state of the run itself. A run that has ended on its own
// keeps its state, even if the entry will be retried or has been stopped since.
func stateOfRun(st *process.Status) process.State {
	switch {
	case st.Exit == nil, st.State != process.Backoff && st.State != process.Stopped:
		return st.State
	case st.State == process.Stopped && !slices.Contains([]process.EndedBy{process.BySelf, process.ByOutside, process.ByOOM}, st.Exit.By):
		return st.State // pmcp caused the end
	case st.Exit.Clean():
		return process.Exited
	default:
		return process.Crashed
	}
}

// Here returns the entry of this session called name, or nil if there is none.
func (p *Project) Here(name string) *Run {
	st, err := p.o.Manager.Status(name)
	if err != nil {
		return nil
	}
	r := p.here(&st)
	return &r
}

// Find returns the run that name stands for: that of this session or, if it is idle,
// the run of another window or a later one that has ended there; else the latest stored run. For a process that never ran
// it returns a stopped one. If the store cannot be read, this session decides.
func (p *Project) Find(ctx context.Context, name string) (Run, error) {
	st, ownErr := p.o.Manager.Status(name)
	if ownErr == nil && st.GoesOn() { // an active process here is ours, whatever the store has
		return p.here(&st), nil
	}
	run, ok, err := p.latest(ctx, name)
	switch {
	case ownErr == nil && (err != nil || !ok || run.Owner == nil && st.RunID != 0 && run.Run <= st.Run):
		return p.here(&st), nil
	case !ok:
		run = Run{Project: p.of(name).name, Stored: true, Status: process.Status{Spec: process.Spec{Name: name}}}
	}
	return run, err
}

// LatestRun returns the number of the latest run of name, or 0 if it never ran.
func (p *Project) LatestRun(ctx context.Context, name string) (int, error) {
	run, _, err := p.latest(ctx, name)
	return run.Run, err
}

// latest returns the run of name that another window is running now or, if there is
// none, the latest stored run; ok is false if there is none either.
func (p *Project) latest(ctx context.Context, name string) (r Run, ok bool, err error) {
	runs, err := p.o.Store.Runs(ctx, logstore.RunFilter{Project: p.name, Names: []string{name}, Current: true})
	if err != nil || len(runs) == 0 {
		return Run{}, false, err
	}
	return latestOf(&runs[0]), true, nil
}
