package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
)

type processInfoArgs struct {
	Process    string `json:"process"`
	Run        int    `json:"run,omitempty"`
	outputArgs `schema:"brief"`
}

// processInfoResult describes one process completely.
type processInfoResult struct {
	processResult
	Env     map[string]string   `json:"env,omitempty"` // values that look secret are masked
	Stdin   bool                `json:"stdin,omitempty"`
	Spec    *project.Definition `json:"spec,omitempty" schema:"extra"` // for its next start, without the fields above
	Health  *healthResult       `json:"health,omitempty" schema:"extra"`
	History []historyResult     `json:"history,omitempty"`
	Tree    []memberResult      `json:"tree,omitempty"`
	MCP     *mcpInfo            `json:"mcp,omitempty"`
	Log     *logStats           `json:"log,omitempty"`
	logResult
	Errors []runError `json:"errors,omitempty"`
	Others []string   `json:"others,omitempty" schema:"extra"` // what there is no room for
	Hint   string     `json:"hint,omitempty"`
}

// fit drops the older runs, then members of the tree, then lines, until the answer is at
// most limit bytes. The definition stays whole.
func (r *processInfoResult) fit(limit int) {
	size := func() int { return answerSize(r) }
	if size() <= limit {
		return
	}
	limit -= 2 * leftOutBytes
	if n := dropLast(&r.History, limit, size); n > 0 {
		r.Others = append(r.Others, countNoun(int64(n), "more run", "more runs"))
	}
	if n := dropLast(&r.Tree, limit, size); n > 0 {
		r.Others = append(r.Others, countNoun(int64(n), "more process of its tree", "more processes of its tree"))
	}
	notice := r.Notice
	r.logResult.fit(limit, size)
	r.Notice = notice
}

type historyResult struct {
	Run       int    `json:"run"`
	State     string `json:"state"`
	StartedAt string `json:"started_at"`
	By        string `json:"by,omitempty" schema:"extra"` // who started it; see project.Run.By
	endResult
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

func (r processInfoResult) write(t *answerText) {
	commit, head := r.Commit, r.Head
	r.Head = ""
	t.line("%s", r.line())
	whole := quoteArgs(r.Command, r.Args)
	t.line("command: %s", cut(whole, maxWholeCommand))
	t.line("cwd: %s", r.Cwd)
	t.optLine("started at %s", r.StartedAt)
	if commit != "" {
		t.part("commit: %s", commit)
		t.optPart(", HEAD is now %s", head)
		t.line("")
	}
	for _, key := range slices.Sorted(maps.Keys(r.Env)) {
		t.line("env %s=%s", key, r.Env[key])
	}
	writeDefinition(t, r.Spec)
	if r.Health != nil {
		t.part("health check of ")
		r.Health.write(t)
	}
	for _, m := range r.Tree {
		t.part("pid %d (parent %d)", m.PID, m.PPID)
		t.optPart(" ports %s", prose.Ints(m.Ports))
		t.line(": %s", m.Command)
	}
	r.MCP.write(t)
	if l := r.Log; l != nil {
		t.part("log: %s, %s", lineCount(l.Lines), formatBytes(l.Bytes))
		for _, level := range slices.Sorted(maps.Keys(l.ByLevel)) {
			t.part(", %d %s", l.ByLevel[level], level)
		}
		if l.DroppedLines != 0 {
			t.part("; dropped: %s", lineCount(l.DroppedLines))
		}
		if l.Oldest != "" {
			t.part("; from %s to %s", l.Oldest, l.Newest)
		}
		t.line("")
	}
	if len(r.History) > 1 {
		t.line("runs:")
		for _, h := range r.History {
			past := processResult{Name: fmt.Sprintf("  %d", h.Run), State: h.State, endResult: h.endResult}
			t.part("%s, started %s", past.line(), h.StartedAt)
			t.optPart(" by %s", h.By)
			t.line("")
		}
	}
	lines, errors := r.withErrors(r.Errors, false)
	t.output(append(lines, errors...), nil)
	r.writeOmitted(t)
	for _, more := range r.Others {
		t.line("and %s", more)
	}
	t.hint(r.Hint)
}

func getProcessInfoTool() tool {
	return define(tool{
		name: "get_process_info", title: "Process details", toolset: setMonitoring,
		description: "One process: definition, state, runs, tree, ports, log.",
		hints:       hints{readOnly: true},
	}, getProcessInfo)
}

func getProcessInfo(ctx context.Context, s *call, a processInfoArgs) (processInfoResult, error) {
	name, err := s.project.ResolveOne(ctx, a.Process, s.reads)
	if err != nil {
		return processInfoResult{}, err
	}
	d, err := s.project.Details(ctx, name, a.Run)
	if err != nil {
		return processInfoResult{}, err
	}
	run := &d.Run
	s.project.LookAtSources(ctx, run)
	r := processInfoResult{processResult: resultOf(run), Env: d.Env, Stdin: run.Spec.Stdin, Tree: memberResults(d.Tree)}
	r.Commit = run.Commit
	if !run.Stored {
		r.MCP = mcpInfoOf(s.o.Upstream.Conn(name), run.RunID)
	}
	if def := d.Definition; def != nil {
		def.Command, def.Args, def.Cwd, def.Stdin = "", nil, "", nil
		r.Spec = def
	}
	if d.Health != nil {
		health := newHealthResult(d.Health)
		r.Health = &health
	}
	for i := range d.History {
		p := resultOf(&d.History[i])
		r.History = append(r.History, historyResult{p.Run, p.State, p.StartedAt, d.History[i].By, p.endResult})
	}
	err = describeLog(ctx, s.project, &r, run, a.outputArgs)
	if r.Health != nil && r.Health.Notice != "" || r.MCP != nil && r.MCP.Server != "" {
		r.Notice = outputNotice
	}
	r.fit(logLimit(a.MaxBytes))
	return r, err
}

func memberResults(members []process.Member) []memberResult {
	var tree []memberResult
	for _, m := range members {
		tree = append(tree, memberResult{PID: m.PID, PPID: m.PPID, Command: m.Command, CPUPercent: round(m.CPUPercent), MemoryBytes: m.MemoryBytes, Ports: m.Ports})
	}
	return tree
}

// writeDefinition writes the arguments that def sets, one per line: "restart: always".
func writeDefinition(t *answerText, def *project.Definition) {
	if def == nil {
		return
	}
	given := def.Arguments()
	for _, key := range slices.Sorted(maps.Keys(given)) {
		t.line("%s: %s", key, strings.Trim(string(given[key]), `"`))
	}
}

// describeLog adds the output of the run: its statistics, its last lines if it has ended
// or output has lines, and its errors if it has ended.
func describeLog(ctx context.Context, p *project.Project, r *processInfoResult, run *project.Run, output outputArgs) error {
	if run.RunID == 0 {
		return nil
	}
	stats, err := p.RunStats(ctx, run.RunID)
	if err != nil {
		return fmt.Errorf("cannot read the log's statistics: %w", err)
	}
	r.Log = &logStats{
		Lines: stats.Lines, Bytes: stats.Bytes, ByLevel: make(map[string]int64),
		Oldest: args.FormatTime(stats.Oldest), Newest: args.FormatTime(stats.Newest),
		DroppedLines: stats.DroppedLines, DroppedBytes: stats.DroppedBytes,
	}
	for level, n := range stats.ByLevel {
		if n > 0 && level != line.LevelNone {
			r.Log.ByLevel[level.String()] = n
		}
	}
	if !run.Over() && output.Lines == 0 {
		return nil
	}
	e := excerpt{outputArgs: output, name: r.Name, run: run.RunID, room: cmp.Or(output.MaxBytes, actionMaxBytes)}
	if r.logResult, err = e.read(ctx, p); err != nil {
		return fmt.Errorf("cannot read the last lines: %w", err)
	}
	if !run.Over() {
		return nil
	}
	found, err := findRunErrors(ctx, p, run.RunID, "", &r.logResult, true)
	r.Errors, r.Hint = found.shown, found.restHint(runErrorsArguments(r.Name, r.Run))
	if len(r.Errors) > 0 {
		r.Notice = outputNotice
	}
	return err
}
