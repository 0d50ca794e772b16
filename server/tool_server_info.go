package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/registry"
	"pmcp/server/args"
	"pmcp/server/upstream"
)

type serverInfoArgs struct{}

type serverInfoResult struct {
	Build
	CurrentPID             int            `json:"current_pid"`
	GuardianPID            int            `json:"guardian_pid,omitempty"`
	CurrentUptimeSeconds   int64          `json:"current_uptime_seconds"`
	CurrentUptimeFormatted string         `json:"current_uptime_formatted"`
	Project                string         `json:"project"`
	TotalServerProcesses   int            `json:"total_server_processes"`
	ServerProcesses        []serverResult `json:"server_processes"`
	Health                 string         `json:"health"`
	Reasons                []string       `json:"reasons,omitempty"`
	Record                 string         `json:"record,omitempty"`
	Socket                 string         `json:"socket,omitempty" schema:"extra"`
	Replaced               string         `json:"replaced,omitempty"` // the path of this program, if it was replaced
	Database               databaseResult `json:"database"`
	Storage                string         `json:"storage"`
	Unattributed           []memberResult `json:"unattributed,omitempty"`
	MCPConnections         int            `json:"mcp_connections"`
	Kept                   []string       `json:"kept,omitempty" schema:"extra"`   // what outlives its session, and for how long
	Others                 []string       `json:"others,omitempty" schema:"extra"` // what there is no room for

	outdated string // what has become of this program
}

type serverResult struct {
	PID             int    `json:"pid"`
	IsCurrent       bool   `json:"is_current"`
	Version         string `json:"version,omitempty"`
	Cwd             string `json:"cwd,omitempty"`
	Client          string `json:"client,omitempty"`
	UptimeSeconds   int64  `json:"uptime_seconds"`
	UptimeFormatted string `json:"uptime_formatted"`
	Status          string `json:"status"`
}

type databaseResult struct {
	Path         string `json:"path"`
	Bytes        int64  `json:"bytes"`
	Runs         int64  `json:"runs"`
	PendingBytes int64  `json:"pending_bytes,omitempty"`
	DroppedLines int64  `json:"dropped_lines,omitempty"`
	RetiredLines int64  `json:"retired_lines,omitempty"`
	Quarantined  string `json:"quarantined,omitempty"`
}

// maxClientName bounds, in bytes, how much of the name that a client gives itself
// an answer's text shows.
const maxClientName = 200

func (r serverInfoResult) write(t *answerText) {
	t.line("pmcp %s (commit %.12s, built %s), pid %d, guardian %d, up %s: %s", r.Version, r.Commit, r.Date, r.CurrentPID, r.GuardianPID, r.CurrentUptimeFormatted, r.Health)
	for _, reason := range r.Reasons {
		t.line("reason: %s", reason)
	}
	if r.outdated != "" {
		t.line("replaced: %s %s", r.Replaced, r.outdated)
	}
	t.optLine("kept: %s", strings.Join(r.Kept, "; "))
	t.line("project: %s", r.Project)
	t.optLine("record: %s", r.Record)
	t.optLine("socket: %s", r.Socket)
	if r.Database.Path != "" {
		t.part("database: %s, %s, ", r.Database.Path, formatBytes(r.Database.Bytes))
	}
	t.line("storage %s", r.Storage)
	t.optLine("the database was corrupt and was moved to %s", r.Database.Quarantined)
	if r.Database.DroppedLines > 0 {
		t.line("dropped because storage did not keep up: %s", lineCount(r.Database.DroppedLines))
	}
	for _, p := range r.ServerProcesses {
		if p.PID == 0 {
			t.line("server without a readable record: %s", p.Status)
			continue
		}
		t.part("server %d", p.PID)
		if p.IsCurrent {
			t.part(" (this one)")
		}
		t.part(": %s, ", p.Status)
		t.optPart("pmcp %s, ", upstream.OneLine(cut(p.Version, maxClientName)))
		t.optPart("%s, ", upstream.OneLine(cut(p.Client, maxClientName)))
		t.line("up %s, in %s", p.UptimeFormatted, upstream.OneLine(p.Cwd))
	}
	t.optLine("connections to MCP servers: %d", r.MCPConnections)
	for _, m := range r.Unattributed {
		t.line("unattributed process %d: %s", m.PID, m.Command)
	}
	for _, more := range r.Others {
		t.line("and %s", more)
	}
}

// fit drops unattributed processes, then servers, until the answer is at most limit bytes.
func (r *serverInfoResult) fit(limit int) {
	size := func() int { return answerSize(r) }
	if size() <= limit {
		return
	}
	limit -= 2 * leftOutBytes
	if n := dropLast(&r.Unattributed, limit, size); n > 0 {
		r.Others = append(r.Others, countNoun(int64(n), "more unattributed process", "more unattributed processes"))
	}
	if n := dropLast(&r.ServerProcesses, limit, size); n > 0 {
		r.Others = append(r.Others, countNoun(int64(n), "more server", "more servers")+": pmcp --doctor shows all")
	}
}

func getServerInfoTool() tool {
	return define(tool{
		name: "get_server_info", title: "Server details", toolset: setMonitoring,
		description: "pmcp itself: version, health, servers, database.",
		hints:       hints{readOnly: true},
	}, getServerInfo)
}

func getServerInfo(ctx context.Context, s *call, _ serverInfoArgs) (serverInfoResult, error) {
	up := uptime(s.started)
	store := s.project.StorageStatus()
	r := serverInfoResult{
		Build: s.o.Build, CurrentPID: os.Getpid(), GuardianPID: s.o.GuardianPID,
		CurrentUptimeSeconds: int64(up.Seconds()), CurrentUptimeFormatted: args.FormatAge(up), Project: s.project.Dir(),
		Health: "healthy", Storage: store.State,
		Database: databaseResult{
			Path: store.Path, Bytes: store.Bytes, Runs: store.Runs, PendingBytes: store.PendingBytes,
			DroppedLines: store.DroppedLines, RetiredLines: store.RetiredLines, Quarantined: store.Quarantined,
		},
	}
	degrade := func(format string, args ...any) {
		r.Health = "degraded"
		r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...))
	}
	if store.State != logstore.StateOK {
		degrade("storage is %s: %s", store.State, store.Reason)
	}
	if err := process.CheckDir(r.Project, r.Project); err != nil {
		degrade("%s", withoutInvalid(err.Error()))
	}
	if s.o.Registry != nil {
		r.Record = s.o.Registry.Path()
		if _, err := os.Stat(r.Record); err != nil {
			degrade("the record of this server is gone: %v", err)
		}
		record := s.o.Registry.Record()
		r.Socket = record.Socket
		if r.outdated = record.Outdated(); r.outdated != "" {
			r.Replaced = record.Executable
		}
	} else {
		degrade("this server has no record in %s; if that directory cannot be written, set PM_REGISTRY_DIR", s.o.RegistryDir)
	}
	err := s.listServers(&r)
	if err != nil {
		degrade("%v", err)
	}
	if strays, err := registry.FindStrays(s.o.RegistryDir); err == nil && len(strays) > 0 {
		degrade("%s of a pmcp session without a record, such as pid %d (%s): pmcp --doctor --cleanup-stale-records ends them", countNoun(int64(len(strays)), "process is left", "processes are left"), strays[0].ID.PID, strays[0].Name)
	}
	if r.TotalServerProcesses > s.o.MaxServers {
		degrade("%d pmcp servers are running, more than %d (PM_MAX_SERVERS); pmcp --doctor shows their clients", r.TotalServerProcesses, s.o.MaxServers)
	}
	if r.Kept, err = s.keptProcesses(ctx); err != nil {
		degrade("%v", err)
	}
	r.MCPConnections = s.o.Upstream.Connections()
	for _, m := range s.project.Strays() {
		r.Unattributed = append(r.Unattributed, memberResult{PID: m.PID, PPID: m.PPID, Command: m.Command})
	}
	r.fit(logLimit(0))
	return r, nil
}

// maxKeptShown bounds how many kept processes an answer names.
const maxKeptShown = 50

// keptProcesses returns the processes of every project that outlive their session.
func (s *call) keptProcesses(ctx context.Context) (kept []string, err error) {
	runs, err := s.project.Kept(ctx)
	for i := range runs {
		if i == maxKeptShown {
			return append(kept, fmt.Sprintf("%d more", len(runs)-i)), err
		}
		text := runs[i].Spec.Name + " for " + args.FormatAge(runs[i].KeptFor())
		if !s.project.IsOfSession(runs[i].Project) {
			text += ", project " + runs[i].Project
		}
		kept = append(kept, text)
	}
	return kept, err
}

func uptime(started time.Time) time.Duration {
	return max(0, time.Since(started)).Truncate(time.Second)
}

// listServers adds this server, even if its record cannot be read, and the other
// servers in the registry.
func (s *Server) listServers(r *serverInfoResult) error {
	r.TotalServerProcesses, r.ServerProcesses = 1, []serverResult{s.ownServer()}
	if s.o.RegistryDir == "" {
		return nil
	}
	entries, err := registry.List(s.o.RegistryDir)
	if err != nil {
		return fmt.Errorf("cannot list the servers: %w", err)
	}
	daemons := map[int]bool{} // pids
	for _, e := range entries {
		if e.Record.Daemon() {
			daemons[e.Record.Server.PID] = true
		}
	}
	for _, e := range entries {
		live := e.State == registry.Live
		if e.ID == s.o.Session || e.Record.Format == 0 && !live || len(e.Record.Guards) > 0 {
			continue
		}
		other := serverResult{Status: string(e.State)}
		switch ofDaemon := daemonStatus(&e.Record, daemons); {
		case live && ofDaemon != "": // it serves no client, which one could close
			other.Status = ofDaemon
		case live:
			r.TotalServerProcesses++
			other.Status = "running"
		}
		if e.Record.Format != 0 {
			other.describe(e.Record)
		} else { // the record cannot be read
			other.Status = "running, " + e.Problem
		}
		if why := e.Record.Stopped(); live && why != "" {
			other.Status += ", " + why
		}
		r.ServerProcesses = append(r.ServerProcesses, other)
	}
	return nil
}

// daemonStatus returns what a daemon, or the server in which a daemon keeps processes, is; "" for
// any other server.
func daemonStatus(r *registry.Record, daemons map[int]bool) string {
	switch {
	case r.Daemon() && r.DiesWith != "":
		return "the daemon, may end with " + r.DiesWith
	case r.Daemon():
		return "the daemon"
	case daemons[r.Parent.PID] && r.ClientName == registry.ClientDaemon:
		return "runs what the daemon keeps"
	}
	return ""
}

// ownServer returns this server from its record. If there is no record, it returns
// what the record would hold.
func (s *Server) ownServer() serverResult {
	record := registry.Record{Server: registry.Process{PID: os.Getpid()}, Version: s.o.Version}
	record.Cwd, _ = os.Getwd()
	if s.o.Registry != nil {
		record = s.o.Registry.Record()
	}
	record.StartedAt = s.started
	own := serverResult{IsCurrent: true, Status: "running"}
	own.describe(record)
	return own
}

func (r *serverResult) describe(record registry.Record) {
	up := uptime(record.StartedAt)
	r.PID, r.Version, r.Cwd, r.Client = record.Server.PID, record.Version, record.Cwd, prose.Join(" ", record.ClientName, record.ClientVersion)
	r.UptimeSeconds, r.UptimeFormatted = int64(up.Seconds()), args.FormatAge(up)
}
