package registry

import (
	"fmt"
	"strings"
	"time"

	"pmcp/process/proctab"
)

// row is one server, or one file that is none, as Doctor shows it. What is not
// known is left out.
type row struct {
	ID              string   `json:"id,omitempty"`
	State           State    `json:"state"`
	PID             int      `json:"pid,omitempty"`
	Alive           bool     `json:"alive"`
	GuardianPID     int      `json:"guardian_pid,omitempty"`
	GuardianAlive   bool     `json:"guardian_alive,omitempty"`
	Version         string   `json:"version,omitempty"`
	Executable      string   `json:"executable,omitempty"`
	ExecutableMatch *bool    `json:"executable_match,omitempty"`
	Transport       string   `json:"transport,omitempty"`
	Cwd             string   `json:"cwd,omitempty"`
	Project         string   `json:"project,omitempty"`
	Client          string   `json:"client,omitempty"`
	UptimeSeconds   int64    `json:"uptime_seconds,omitempty"`
	ParentAtStart   int      `json:"parent_at_start,omitempty"`
	ParentName      string   `json:"parent_name,omitempty"`
	ParentNow       int      `json:"parent_now,omitempty"`
	ParentAlive     bool     `json:"parent_alive"`
	StaleClient     bool     `json:"stale_client"`
	PGIDAtStart     int      `json:"process_group_at_start,omitempty"`
	PGIDNow         int      `json:"process_group_now,omitempty"`
	Children        []member `json:"children,omitempty"`
	Record          string   `json:"record"`
	Problem         string   `json:"problem,omitempty"`
	CleanCommand    string   `json:"clean_command,omitempty"`
	Database        string   `json:"database,omitempty"`
}

// member is a process of a session.
type member struct {
	PID     int    `json:"pid"`
	Name    string `json:"name"`
	Session string `json:"session,omitempty"`
	// State is "running", "zombie", or why it was left alone.
	State string `json:"state,omitempty"`
}

// machine is what the process table showed when Doctor looked.
type machine struct {
	boot  string
	now   time.Time
	table []proctab.Proc
	rows  map[int]proctab.Proc
	left  map[string][]Leftover // by dead session
}

// survey looks at the process table once. Without one every server is shown as
// not alive, as far as its lock does not tell otherwise.
func survey(list []Entry) *machine {
	m := &machine{boot: proctab.BootID(), now: time.Now(), rows: map[int]proctab.Proc{}, left: map[string][]Leftover{}}
	m.table, _ = proctab.All()
	for _, p := range m.table {
		m.rows[p.PID] = p
	}
	left, spared := newHunt(list).find(m.table)
	for _, l := range append(left, spared...) {
		m.left[l.Session] = append(m.left[l.Session], l)
	}
	return m
}

// lookup finds the process that a record of this boot named; a zombie does not
// count as found.
func (m *machine) lookup(r Record, p Process) (proctab.Proc, bool) {
	found, ok := m.rows[p.PID]
	return found, ok && r.Boot == m.boot && found.ID == p.Identity() && !found.Zombie
}

func (m *machine) row(e Entry, o DoctorOptions) row {
	r := row{ID: e.ID, State: e.State, Alive: e.State == Live, Record: e.Path, Problem: e.Problem}
	if e.Record.Format != 0 {
		m.describe(&r, e.Record)
	}
	switch e.State {
	case Live:
		r.Children = m.children(e)
		if r.StaleClient {
			r.CleanCommand = fmt.Sprintf("kill -TERM %d", launched(e.Record).PID)
		}
	case Stale:
		for _, l := range m.left[e.ID] {
			state := "running"
			if l.Why != "" {
				state += ", spared: " + l.Why
			}
			r.Children = append(r.Children, member{PID: l.ID.PID, Name: l.Name, State: state})
		}
		r.CleanCommand = cleanupCommand(o)
	}
	return r
}

// launched is the process that the client started.
func launched(r Record) Process {
	if r.Guardian.PID != 0 {
		return r.Guardian
	}
	return r.Server
}

func (m *machine) describe(r *row, rec Record) {
	r.PID, r.GuardianPID, r.PGIDAtStart = rec.Server.PID, rec.Guardian.PID, rec.Server.PGID
	r.Version, r.Executable, r.Transport = rec.Version, rec.Executable, rec.Transport
	r.Cwd, r.Project, r.Database = rec.Cwd, rec.Project, rec.Database
	r.Client = strings.TrimSpace(rec.ClientName + " " + rec.ClientVersion)
	r.ParentAtStart, r.ParentName = rec.Parent.PID, rec.Parent.Name
	_, r.GuardianAlive = m.lookup(rec, rec.Guardian)
	_, r.ParentAlive = m.lookup(rec, rec.Parent)
	if now, ok := m.lookup(rec, launched(rec)); ok {
		r.ParentNow = now.PPID
		r.StaleClient = rec.Parent.PID > 1 && !r.ParentAlive
	}
	if now, ok := m.lookup(rec, rec.Server); ok {
		r.PGIDNow = now.PGID
		r.UptimeSeconds = max(0, int64(m.now.Sub(rec.StartedAt).Seconds()))
		if path, known := proctab.Executable(now.PID); known && rec.Executable != "" {
			match := path == rec.Executable
			r.ExecutableMatch = &match
		}
	}
}

// children are the processes below a live server and those that it noted, as
// far as they are alive or zombies.
func (m *machine) children(e Entry) []member {
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
	if _, ok := m.lookup(e.Record, e.Record.Server); ok {
		for _, p := range proctab.Descendants(m.table, e.Record.Server.PID) {
			add(p)
		}
	}
	for _, id := range e.Processes {
		if p, ok := m.rows[id.PID]; ok && p.ID == id {
			add(p)
		}
	}
	return list
}
