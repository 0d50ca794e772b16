package registry

import (
	"fmt"
	"os"
	"time"

	"pmcp/process/proctab"
)

// Format is the version of the record that this build reads and writes.
const Format = 1

// A Record is what a server publishes about itself: the content of <id>.json. A field is
// zero if its value was not known.
type Record struct {
	// Format is the version of this structure; Register sets it.
	Format int `json:"v"`
	// ID is the session id; Register sets it.
	ID string `json:"id"`
	// Boot is the id of the machine's boot and pid namespace (proctab.BootID).
	// Process identities of another boot or namespace mean nothing.
	Boot string `json:"boot_id"`
	// Version is the version of pmcp.
	Version string `json:"version"`
	// Guardian is the process that the client launched; zero without one.
	Guardian Process `json:"guardian,omitzero"`
	// Server is the process that wrote the record.
	Server Process `json:"server"`
	// Parent is the parent of the launched process at start: the client, or
	// a wrapper such as npx.
	Parent Process `json:"parent,omitzero"`
	// Client is the client, above Parent if that is a wrapper; zero if it is not known.
	Client Process `json:"client,omitzero"`
	// Executable is the path of the program, Cwd its working directory.
	Executable string `json:"executable"`
	Cwd        string `json:"cwd"`
	// Project is the directory that identifies the project.
	Project string `json:"project,omitempty"`
	// Database is the path of the log database.
	Database string `json:"database,omitempty"`
	// Guards is the command of `pmcp guard`; empty for a server. Server is then the process
	// that started the command.
	Guards []string `json:"guards,omitempty"`
	// Socket is the path of the server's socket; empty if it has none.
	Socket string `json:"socket,omitempty"`
	// Transport is how the client speaks to the server: "stdio", or TransportDaemon.
	Transport string `json:"transport"`
	// DiesWith is what ends a daemon although no session does: the process that is its
	// parent now, a control group, a container. Empty for none, and for a session.
	DiesWith string `json:"dies_with,omitempty"`
	// ClientName and ClientVersion are what the client calls itself. They are empty
	// until it has sent them.
	ClientName    string `json:"client_name,omitempty"`
	ClientVersion string `json:"client_version,omitempty"`
	// ClientAnsweredAt is when the client last showed that it lives after its
	// launcher, Parent, had ended; zero before.
	ClientAnsweredAt time.Time `json:"client_answered_at,omitzero"`
	// StartedAt is when the server started.
	StartedAt time.Time `json:"started_at"`
}

// Replaced reports whether the program of the record's server, which must run, was
// replaced since the start: a new session runs another one.
func (r Record) Replaced() bool { return proctab.Replaced(r.Server.PID, r.Executable) }

// Outdated returns what happened to the program of the record's server, which must run, since the
// start, as what is said of that program; "" if it is the same.
func (r Record) Outdated() string {
	if !r.Replaced() {
		return ""
	}
	if _, err := os.Stat(r.Executable); err != nil {
		return "was deleted since the start: a new session needs it there again"
	}
	return "was replaced since the start: a new session runs the new one"
}

// Stopped returns what is wrong with a server that SIGSTOP has stopped, or whose guardian it has stopped,
// and the command that resumes them. It returns "" for any other server.
func (r Record) Stopped() string {
	if r.Boot != proctab.BootID() {
		return ""
	}
	var pids string
	for _, p := range []Process{r.Guardian, r.Server} {
		if now, err := proctab.Read(p.PID); p.PID > 0 && err == nil && now.ID == p.Identity() && now.Stopped {
			pids += fmt.Sprint(" ", p.PID)
		}
	}
	if pids == "" {
		return ""
	}
	return "stopped by a signal; to let it go on: kill -CONT" + pids
}

// A Process is a process as a record names it.
type Process struct {
	// PID and Start identify it on the record's boot (see proctab.ID).
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	// PGID is its process group at the time of the record.
	PGID int `json:"pgid,omitempty"`
	// Name is the kernel's short name of its program. For display only.
	Name string `json:"name,omitempty"`
}

// Identity returns the identity of the process in the process table.
func (p Process) Identity() proctab.ID { return proctab.ID{PID: p.PID, Start: p.Start} }
