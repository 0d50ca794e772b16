package doctor

import (
	"fmt"
	"strings"
	"time"

	"pmcp/process/proctab"
	"pmcp/process/prose"
	"pmcp/registry"
)

// A row is one server, one guard of a command or one foreign file in a report. What is not known is left
// out.
type row struct {
	ID            string         `json:"id,omitempty"`
	State         registry.State `json:"state"`
	PID           int            `json:"pid,omitempty"`
	Alive         bool           `json:"alive"`
	GuardianPID   int            `json:"guardian_pid,omitempty"`
	GuardianAlive bool           `json:"guardian_alive,omitempty"`
	program
	parentage
	PGIDAtStart  int      `json:"process_group_at_start,omitempty"`
	PGIDNow      int      `json:"process_group_now,omitempty"`
	Children     []member `json:"children,omitempty"`
	Record       string   `json:"record"`
	Socket       string   `json:"socket,omitempty"`
	DiesWith     string   `json:"dies_with,omitempty"` // what ends a daemon; see registry.Record
	Problem      string   `json:"problem,omitempty"`
	CleanCommand string   `json:"clean_command,omitempty"`
	Database     string   `json:"database,omitempty"`

	stopped bool // by a signal
}

// A program is what a row shows of the server's program and its client.
type program struct {
	Version         string `json:"version,omitempty"`
	Guards          string `json:"guards,omitempty"` // the command that `+"`pmcp guard`"+` guards; empty for a server
	Executable      string `json:"executable,omitempty"`
	ExecutableMatch *bool  `json:"executable_match,omitempty"`
	Replaced        bool   `json:"executable_replaced,omitempty"`
	Transport       string `json:"transport,omitempty"`
	Cwd             string `json:"cwd,omitempty"`
	Project         string `json:"project,omitempty"`
	Client          string `json:"client,omitempty"`
	StartedAt       string `json:"started_at,omitempty"`
	UptimeSeconds   *int64 `json:"uptime_seconds,omitempty"`

	outdated string // what happened to the executable
}

// A parentage is what a row shows of the process that started the server.
type parentage struct {
	ParentAtStart  int    `json:"parent_at_start,omitempty"`
	ParentName     string `json:"parent_name,omitempty"`
	ParentNow      int    `json:"parent_now,omitempty"`
	ParentAlive    bool   `json:"parent_alive"`
	ClientAnswered string `json:"client_answered_at,omitempty"`
	StaleClient    bool   `json:"stale_client"`
}

// A member is a process of a session.
type member struct {
	PID     int    `json:"pid"`
	Name    string `json:"name"`
	Session string `json:"session,omitempty"`
	// State is "running" or "zombie", in a cleanup the reason why the process was
	// left alone.
	State string `json:"state,omitempty"`
}

// A snapshot is the process table at one moment, with what dead sessions left.
type snapshot struct {
	boot  string
	mask  func(argv []string) []string // see Options.Mask
	now   time.Time
	table []proctab.Proc
	rows  map[int]proctab.Proc
	left  map[string][]registry.Leftover // by dead session

	strays  []registry.Leftover
	cleaned bool // there was a clean-up just now
}

// takeSnapshot reads the process table once. If it cannot be read, only a held
// lock shows that a server is alive.
func takeSnapshot(list []registry.Entry, o Options) *snapshot {
	s := &snapshot{boot: proctab.BootID(), mask: o.Mask, cleaned: o.Cleanup, now: time.Now(), rows: map[int]proctab.Proc{}, left: map[string][]registry.Leftover{}}
	s.table, _ = proctab.All()
	for _, p := range s.table {
		s.rows[p.PID] = p
	}
	for _, l := range registry.Leftovers(list, s.table) {
		s.left[l.Session] = append(s.left[l.Session], l)
	}
	s.strays = registry.Strays(o.Dir, list, s.table)
	return s
}

// lookup returns the process that a record names. It reports whether it is alive:
// false for a zombie, and for a record of another boot.
func (s *snapshot) lookup(r registry.Record, p registry.Process) (proctab.Proc, bool) {
	found, ok := s.rows[p.PID]
	return found, ok && r.Boot == s.boot && found.ID == p.Identity() && !found.Zombie
}

func (s *snapshot) row(e registry.Entry) row {
	r := row{ID: e.ID, State: e.State, Alive: e.State == registry.Live, Record: e.Path, Problem: e.Problem}
	if e.Record.Format != 0 {
		s.describe(&r, e.Record)
	}
	other, hidden := proctab.Elsewhere(e.Record.Boot)
	switch {
	case e.Record.Format == 0 || e.State == registry.Foreign || !other:
	case hidden:
		r.Problem = registry.HiddenProblem
	default:
		r.Problem = elsewhereProblem
	}
	switch e.State {
	case registry.Live:
		if why := e.Record.Stopped(); why != "" {
			r.Problem, r.stopped = why, true
		}
		if !e.Record.Daemon() { // its children are servers, which have rows of their own
			r.Children = s.children(e)
		}
		if r.StaleClient {
			r.CleanCommand = fmt.Sprintf("kill -TERM %d", launched(e.Record).PID)
		}
	case registry.Stale:
		spared := false
		for _, l := range s.left[e.ID] {
			state := "running"
			if l.Why != "" {
				spared = true
				state += ", spared: " + l.Why
			}
			r.Children = append(r.Children, member{PID: l.ID.PID, Name: l.Name, State: state})
		}
		if !hidden && !spared && !s.cleaned { // it would do nothing, or has just failed
			r.CleanCommand = cleanupCommand()
		}
	}
	return r
}

// elsewhereProblem is the problem of a record from another pid namespace.
const elsewhereProblem = "its pids are of another pid namespace: whether it hangs or has lost its client cannot be checked, and what it left is found by its marks alone"

// launched returns the process that the client started.
func launched(r registry.Record) registry.Process {
	if r.Guardian.PID != 0 {
		return r.Guardian
	}
	return r.Server
}

// describe adds to r what the record holds, and what the process table shows of its processes.
func (s *snapshot) describe(r *row, rec registry.Record) {
	r.PID, r.GuardianPID, r.PGIDAtStart, r.Database, r.Socket = rec.Server.PID, rec.Guardian.PID, rec.Server.PGID, rec.Database, rec.Socket
	r.DiesWith = rec.DiesWith
	r.program = program{
		Version: rec.Version, Guards: s.commandLine(rec.Guards), Executable: rec.Executable, Transport: rec.Transport, Cwd: rec.Cwd, Project: rec.Project,
		Client: strings.TrimSpace(rec.ClientName + " " + rec.ClientVersion), StartedAt: formatTime(rec.StartedAt),
	}
	r.parentage = parentage{ParentAtStart: rec.Parent.PID, ParentName: rec.Parent.Name, ClientAnswered: formatTime(rec.ClientAnsweredAt)}
	_, r.GuardianAlive = s.lookup(rec, rec.Guardian)
	_, r.ParentAlive = s.lookup(rec, rec.Parent)
	if now, ok := s.lookup(rec, launched(rec)); ok {
		r.ParentNow = now.PPID
		r.StaleClient = rec.Parent.PID > 1 && !r.ParentAlive && rec.ClientAnsweredAt.IsZero() && !rec.Daemon()
	}
	if now, ok := s.lookup(rec, rec.Server); ok {
		r.PGIDNow = now.PGID
		up := max(0, int64(s.now.Sub(rec.StartedAt).Seconds()))
		r.UptimeSeconds = &up
		if path, known := proctab.Executable(now.PID); known && rec.Executable != "" {
			match := path == rec.Executable
			r.ExecutableMatch, r.outdated = &match, rec.Outdated()
			r.Replaced = r.outdated != ""
		}
	}
}

// maxGuards is how many bytes of a guarded command a row shows.
const maxGuards = 200

// commandLine returns the command of a guard in one line of at most maxGuards bytes, "" for a
// server.
func (s *snapshot) commandLine(argv []string) string {
	if s.mask != nil {
		argv = s.mask(argv)
	}
	return prose.Cut(strings.Join(argv, " "), maxGuards)
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

// children returns the processes below a live server and those in its list, if
// they are alive or zombies.
func (s *snapshot) children(e registry.Entry) []member {
	var list []member
	seen := map[int]bool{e.Record.Server.PID: true, e.Record.Guardian.PID: true}
	add := func(p proctab.Proc) {
		if seen[p.PID] {
			return
		}
		seen[p.PID] = true
		state := "running"
		if p.Zombie {
			state = "zombie"
		}
		list = append(list, member{PID: p.PID, Name: p.Comm, State: state})
	}
	if _, ok := s.lookup(e.Record, e.Record.Server); ok {
		for _, p := range proctab.Descendants(s.table, e.Record.Server.PID) {
			add(p)
		}
	}
	for _, id := range e.Processes {
		if p, ok := s.rows[id.PID]; ok && p.ID == id {
			add(p)
		}
	}
	return list
}
