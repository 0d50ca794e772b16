package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/registry"
	"pmcp/server/upstream"
)

type serverInfoArgs struct{}

type serverInfoResult struct {
	ServerVersion          string         `json:"server_version"`
	BuildDate              string         `json:"build_date"`
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
	Database               databaseResult `json:"database"`
	Storage                string         `json:"storage"`
	Unattributed           []memberResult `json:"unattributed,omitempty"`
	MCPConnections         int            `json:"mcp_connections"`
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

// maxClientName bounds what a client calls itself in a text, in bytes.
const maxClientName = 200

func (r serverInfoResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pmcp %s (built %s), pid %d, guardian %d, up %s: %s\n", r.ServerVersion, r.BuildDate, r.CurrentPID, r.GuardianPID, r.CurrentUptimeFormatted, r.Health)
	for _, reason := range r.Reasons {
		fmt.Fprintf(&b, "reason: %s\n", reason)
	}
	fmt.Fprintf(&b, "project: %s\n", r.Project)
	if r.Record != "" {
		fmt.Fprintf(&b, "record: %s\n", r.Record)
	}
	if r.Database.Path != "" {
		fmt.Fprintf(&b, "database: %s, %s, ", r.Database.Path, formatBytes(r.Database.Bytes))
	}
	fmt.Fprintf(&b, "storage %s\n", r.Storage)
	if r.Database.Quarantined != "" {
		fmt.Fprintf(&b, "the database was corrupt and was moved to %s\n", r.Database.Quarantined)
	}
	if r.Database.DroppedLines > 0 {
		fmt.Fprintf(&b, "dropped because storage did not keep up: %s\n", lineCount(r.Database.DroppedLines))
	}
	for _, p := range r.ServerProcesses {
		current := ""
		if p.IsCurrent {
			current = " (this one)"
		}
		fmt.Fprintf(&b, "server %d%s: %s, %s, up %s, in %s\n", p.PID, current, p.Status, upstream.OneLine(cut(p.Client, len(p.Client), maxClientName)), p.UptimeFormatted, upstream.OneLine(p.Cwd))
	}
	if r.MCPConnections > 0 {
		fmt.Fprintf(&b, "connections to MCP servers: %d\n", r.MCPConnections)
	}
	for _, m := range r.Unattributed {
		fmt.Fprintf(&b, "unattributed process %d: %s\n", m.PID, m.Command)
	}
	return b.String()
}

func getServerInfoTool() tool {
	return define(tool{
		name: "get_server_info", title: "Server details", toolset: setMonitoring,
		description: "pmcp itself: version, health, servers, database.",
		hints:       hints{readOnly: true, idempotent: true},
	}, getServerInfo)
}

func getServerInfo(_ context.Context, s *Server, _ serverInfoArgs) (serverInfoResult, error) {
	up := time.Since(s.started)
	store := s.o.Store.Status()
	r := serverInfoResult{
		ServerVersion: s.o.Version, BuildDate: s.o.BuildDate, CurrentPID: os.Getpid(), GuardianPID: s.o.GuardianPID,
		CurrentUptimeSeconds: int64(up.Seconds()), CurrentUptimeFormatted: formatAge(up), Project: s.o.Manager.Project(),
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
	if s.o.Registry != nil {
		r.Record = s.o.Registry.Path()
		if _, err := os.Stat(r.Record); err != nil {
			degrade("the record of this server is gone: %v", err)
		}
	} else {
		degrade("this server has no record")
	}
	if err := s.listServers(&r); err != nil {
		degrade("%v", err)
	}
	if r.TotalServerProcesses > s.o.MaxServers {
		degrade("%d pmcp servers live, more than %d (PM_MAX_SERVERS); pmcp --doctor shows whom they serve", r.TotalServerProcesses, s.o.MaxServers)
	}
	r.MCPConnections = s.o.Upstream.Connections()
	for _, m := range s.o.Manager.Strays() {
		r.Unattributed = append(r.Unattributed, memberResult{PID: m.PID, PPID: m.PPID, Command: s.commandOf(&m)})
	}
	return r, nil
}

// listServers adds the servers that the registry knows.
func (s *Server) listServers(r *serverInfoResult) error {
	r.ServerProcesses = []serverResult{}
	if s.o.RegistryDir == "" {
		return nil
	}
	entries, err := registry.List(s.o.RegistryDir)
	if err != nil {
		return fmt.Errorf("cannot list the servers: %w", err)
	}
	for _, e := range entries {
		if e.Record.Format == 0 {
			continue // no record yet, or none of ours
		}
		up := time.Since(e.Record.StartedAt)
		status := "running"
		if e.State == registry.Live {
			r.TotalServerProcesses++
		} else {
			status = string(e.State)
		}
		r.ServerProcesses = append(r.ServerProcesses, serverResult{
			PID: e.Record.Server.PID, IsCurrent: e.ID == s.o.Session, Version: e.Record.Version, Cwd: e.Record.Cwd,
			Client:        joinNonEmpty(e.Record.ClientName, e.Record.ClientVersion),
			UptimeSeconds: int64(up.Seconds()), UptimeFormatted: formatAge(up), Status: status,
		})
	}
	return nil
}
