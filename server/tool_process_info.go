package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pmcp/logstore"
	"pmcp/logstore/mask"
	"pmcp/process"
)

// maskedValue stands for the value of a variable that looks secret.
const maskedValue = "***"

// historyLength is how many runs get_process_info lists.
const historyLength = 10

type processInfoArgs struct {
	Process string `json:"process"`
	Run     int    `json:"run,omitempty" jsonschema:"number; -1: latest"`
}

// processInfoResult is everything about one process.
type processInfoResult struct {
	processResult
	Env     map[string]string `json:"env,omitempty"` // values that look secret are masked
	Stdin   bool              `json:"stdin,omitempty"`
	Spec    *specArgs         `json:"spec,omitempty" schema:"extra"` // what it is started with next, but for what stands above
	Health  *healthResult     `json:"health,omitempty" schema:"extra"`
	History []historyResult   `json:"history,omitempty"`
	Tree    []memberResult    `json:"tree,omitempty"`
	MCP     *mcpInfo          `json:"mcp,omitempty"`
	Log     *logStats         `json:"log,omitempty"`
	logResult
	Errors []errorResult `json:"errors,omitempty"`
	Hint   string        `json:"hint,omitempty"`
}

type historyResult struct {
	Run        int    `json:"run" jsonschema:"number; -1: latest"`
	State      string `json:"state"`
	StartedAt  string `json:"started_at"`
	DurationMS int64  `json:"duration_ms,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	Signal     string `json:"signal,omitempty"`
	EndedBy    string `json:"ended_by,omitempty"`
}

type memberResult struct {
	PID         int     `json:"pid"`
	PPID        int     `json:"ppid"`
	Command     string  `json:"command"`
	CPUPercent  float64 `json:"cpu_percent,omitempty"`
	MemoryBytes uint64  `json:"memory_bytes,omitempty"`
	Ports       []int   `json:"ports,omitempty"`
}

type logStats struct {
	Lines        int64            `json:"lines"`
	Bytes        int64            `json:"bytes"`
	ByLevel      map[string]int64 `json:"by_level,omitempty"`
	Oldest       string           `json:"oldest,omitempty"`
	Newest       string           `json:"newest,omitempty"`
	DroppedLines int64            `json:"dropped_lines,omitempty"`
	DroppedBytes int64            `json:"dropped_bytes,omitempty"`
}

func (r processInfoResult) text() string {
	var b strings.Builder
	b.WriteString(r.line() + "\n")
	whole := quoteArgs(r.Command, r.Args)
	fmt.Fprintf(&b, "command: %s\ncwd: %s\n", cut(whole, len(whole), maxWholeCommand), r.Cwd)
	if r.StartedAt != "" {
		fmt.Fprintf(&b, "started at %s\n", r.StartedAt)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Env)) {
		fmt.Fprintf(&b, "env %s=%s\n", key, r.Env[key])
	}
	b.WriteString(r.Spec.text())
	if r.Health != nil {
		b.WriteString("health check of " + r.Health.text())
	}
	for _, m := range r.Tree {
		fmt.Fprintf(&b, "pid %d (parent %d)%s: %s\n", m.PID, m.PPID, portsText(m.Ports), m.Command)
	}
	b.WriteString(r.MCP.text())
	if l := r.Log; l != nil {
		fmt.Fprintf(&b, "log: %s, %s", lineCount(l.Lines), formatBytes(l.Bytes))
		for _, level := range slices.Sorted(maps.Keys(l.ByLevel)) {
			fmt.Fprintf(&b, ", %d %s", l.ByLevel[level], level)
		}
		if l.DroppedLines != 0 {
			fmt.Fprintf(&b, "; dropped: %s", lineCount(l.DroppedLines))
		}
		if l.Oldest != "" {
			fmt.Fprintf(&b, "; from %s to %s", l.Oldest, l.Newest)
		}
		b.WriteString("\n")
	}
	if len(r.History) > 1 {
		b.WriteString("runs:\n")
		for _, h := range r.History {
			past := processResult{Name: fmt.Sprintf("  %d", h.Run), State: h.State, ExitCode: h.ExitCode, Signal: h.Signal, EndedBy: h.EndedBy}
			fmt.Fprintf(&b, "%s, started %s\n", past.line(), h.StartedAt)
		}
	}
	b.WriteString(r.logResult.text())
	b.WriteString(markedErrors(r.Errors, r.Lines))
	if r.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", r.Hint)
	}
	return b.String()
}

func portsText(ports []int) string {
	if len(ports) == 0 {
		return ""
	}
	return " ports " + joinInts(ports)
}

func getProcessInfoTool() tool {
	return define(tool{
		name: "get_process_info", title: "Process details", toolset: setMonitoring,
		description: "One process: definition, state, runs, tree, ports, log statistics.",
		hints:       hints{readOnly: true, idempotent: true},
	}, getProcessInfo)
}

func getProcessInfo(ctx context.Context, s *Server, a processInfoArgs) (processInfoResult, error) {
	name, err := s.resolveName(ctx, a.Process)
	if err != nil {
		return processInfoResult{}, err
	}
	st, own := s.ownNow(ctx, name)
	runs, err := s.o.Store.Runs(ctx, logstore.RunFilter{Project: s.o.Manager.Project(), Names: []string{name}, Limit: historyLength})
	if err != nil {
		return processInfoResult{}, fmt.Errorf("cannot list the runs of %s: %w", name, err)
	}
	r := processInfoResult{processResult: processResult{Name: name, State: process.Stopped.String()}}
	run := int64(0)
	switch {
	case a.Run != 0:
		ids, err := s.runIDs(ctx, []string{name}, a.Run)
		if err != nil {
			return r, err
		}
		run = ids[0]
	case own && st.RunID != 0:
		run = st.RunID
	case len(runs) > 0:
		run = runs[0].ID
	}
	if own && run == st.RunID {
		s.describeOwn(&r, &st)
	} else if err := s.describeStored(ctx, &r, name, run); err != nil {
		return r, err
	}
	if err := s.describeSpec(ctx, &r, name); err != nil {
		return r, err
	}
	r.History = history(runs, &st)
	return r, s.describeLog(ctx, &r, run)
}

// describeOwn fills r from a process of this session.
func (s *Server) describeOwn(r *processInfoResult, st *process.Status) {
	r.processResult = s.ofStatus(st)
	r.Env, r.Stdin = s.masked(st.Spec.Env), st.Spec.Stdin
	r.MCP = s.mcpInfoOf(st.Spec.Name, st.RunID)
	members, err := s.o.Manager.Tree(st.Spec.Name)
	if err != nil {
		return // removed meanwhile: it has no tree
	}
	for _, m := range members {
		r.Tree = append(r.Tree, memberResult{PID: m.PID, PPID: m.PPID, Command: s.commandOf(&m), CPUPercent: round(m.CPUPercent), MemoryBytes: m.MemoryBytes, Ports: m.Ports})
	}
}

// describeSpec adds the rules of the definition, and how the health check goes.
// Variables, which may be secret, stand masked in env.
func (s *Server) describeSpec(ctx context.Context, r *processInfoResult, name string) error {
	definition := s.definition
	if r.Owner != nil {
		definition = s.storedDefinition // the owner's, not what this session ran before
	}
	def, ok, err := definition(ctx, name)
	if err != nil {
		return err
	}
	if ok {
		s.describeDefinition(ctx, r, name, def)
		def.Command, def.Args, def.Cwd, def.Env, def.SecretEnv, def.Stdin = "", nil, "", nil, nil, nil
		def.Masked = nil
		r.Spec = &def
	}
	if st, ok := s.o.Health.Status(name); ok && r.Owner == nil { // of another server's run nothing is checked here
		if last := st.Last(); last != nil {
			st.Results = st.Results[len(st.Results)-1:]
		}
		health := ofHealth(&st)
		r.Health = &health
	}
	return nil
}

// describeDefinition adds what a run would show: the variables of a definition
// that does not run here, and the command of one that never ran.
func (s *Server) describeDefinition(ctx context.Context, r *processInfoResult, name string, def specArgs) {
	if r.Env == nil {
		env := make(map[string]string, len(def.Env))
		for key, value := range def.Env {
			if value != nil {
				env[key] = *value
			}
		}
		r.Env = s.masked(env)
		for _, key := range def.SecretEnv {
			r.Env[key] = maskedValue
		}
	}
	if r.Command != "" {
		return
	}
	def.EnvFiles, def.SecretEnv = nil, nil // who only looks reads no files, and needs no secrets
	spec, err := s.specOf(ctx, name, def, false)
	r.Command, r.Args, r.Cwd = def.Command, def.Args, def.dir(s.o.Manager.Project())
	if err == nil {
		r.Command, r.Args = spec.Command, spec.Args
		if found, err := s.o.Manager.Resolve(spec); err == nil { // else who starts it is told why it cannot be
			r.Command = found
		}
	}
	r.Args = s.o.Mask.Texts(r.Args)
}

// text is what is given of a, a line each: "restart: always".
func (a *specArgs) text() string {
	if a == nil {
		return ""
	}
	given := a.arguments()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(given)) {
		fmt.Fprintf(&b, "%s: %s\n", key, strings.Trim(string(given[key]), `"`))
	}
	return b.String()
}

// describeStored fills r from the run table.
func (s *Server) describeStored(ctx context.Context, r *processInfoResult, name string, id int64) error {
	if id == 0 { // it never ran
		return nil
	}
	run, err := s.o.Store.Run(ctx, id)
	if err != nil {
		return fmt.Errorf("cannot read the run of %s: %w", name, err)
	}
	r.processResult = ofRun(&run)
	return nil
}

// describeLog adds what the run has printed: statistics, and where it has
// ended, the last lines.
func (s *Server) describeLog(ctx context.Context, r *processInfoResult, run int64) error {
	if run == 0 {
		return nil
	}
	stats, err := s.o.Store.RunStats(ctx, run)
	if err != nil {
		return fmt.Errorf("cannot read the log's statistics: %w", err)
	}
	r.Log = &logStats{
		Lines: stats.Lines, Bytes: stats.Bytes, ByLevel: make(map[string]int64),
		Oldest: formatTime(stats.Oldest), Newest: formatTime(stats.Newest),
		DroppedLines: stats.DroppedLines, DroppedBytes: stats.DroppedBytes,
	}
	for level, n := range stats.ByLevel {
		if n > 0 && level != logstore.LevelNone {
			r.Log.ByLevel[level.String()] = n
		}
	}
	if r.EndedAt == "" && r.State != process.Lost.String() {
		return nil
	}
	if r.logResult, err = s.lastOutput(ctx, run); err != nil {
		return fmt.Errorf("cannot read the last lines: %w", err)
	}
	found, err := s.runErrors(ctx, run)
	r.Errors, r.Hint = found.shown, found.rest(ofRunErrors(r.Name, r.Run))
	if len(r.Errors) > 0 {
		r.Notice = outputNotice
	}
	return err
}

// masked is env with the values that look secret taken out, and of the others what is secret in them.
func (s *Server) masked(env map[string]string) map[string]string {
	shown := make(map[string]string, len(env))
	for key, value := range env {
		if mask.SecretName(key) {
			value = maskedValue
		}
		shown[key] = s.o.Mask.Text(value)
	}
	return shown
}

// commandOf is the command line of a process of a tree. It may end within a secret.
func (s *Server) commandOf(m *process.Member) string { return s.o.Mask.Clipped(m.Command) }

// history is what became of runs. The run of st is told as st says: its row is
// written a moment later.
func history(runs []logstore.Run, st *process.Status) []historyResult {
	var past []historyResult
	for i := range runs {
		p := ofRun(&runs[i])
		if runs[i].ID == st.RunID && !betweenRuns(st) {
			p = ofStatus(st)
			p.State = stateOfRun(st).String()
		}
		past = append(past, historyResult{
			Run: p.Run, State: p.State, StartedAt: p.StartedAt, DurationMS: p.DurationMS,
			ExitCode: p.ExitCode, Signal: p.Signal, EndedBy: p.EndedBy,
		})
	}
	return past
}
