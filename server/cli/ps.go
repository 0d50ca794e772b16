package cli

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/registry"
	"pmcp/server/args"
	"pmcp/server/project"
)

func (s *screen) psCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ps [NAME…]", Short: "List processes, running ones first, and groups", ValidArgsFunction: s.completeNames,
		Example: "  pmcp ps\n  pmcp ps --all --json | jq -r 'select(.ports) | .name'",
		RunE:    func(cmd *cobra.Command, names []string) error { return s.ps(cmd.Context(), names) },
	}
}

// A psRow is a process in the output of pmcp ps --json.
type psRow struct {
	Name    string `json:"name"`
	Project string `json:"project"`
	State   string `json:"state"`
	Ready   *bool  `json:"ready,omitempty"`
	// NotReady says why a run is not ready, Unhealthy what is wrong although it goes on.
	NotReady  string `json:"not_ready,omitempty"`
	Unhealthy string `json:"unhealthy,omitempty"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty"`
	// Reason says, of a lost run of which processes still run, what ends them. PID is then one of them.
	Reason string `json:"reason,omitempty"`
	Run    int    `json:"run,omitempty"`
	PID    int    `json:"pid,omitempty"`
	Ports  []int  `json:"ports,omitempty"`
	// URLs are the addresses of the ports that were assigned to the run, by variable.
	URLs        map[string]string `json:"urls,omitempty"`
	CPUPercent  *float64          `json:"cpu_percent,omitempty"`
	MemoryBytes uint64            `json:"memory_bytes,omitempty"`
	StartedAt   string            `json:"started_at,omitempty"`
	EndedAt     string            `json:"ended_at,omitempty"`
	KeptFor     string            `json:"kept_for,omitempty"`
	// Stale is a file of an MCP server that is newer than the run.
	Stale   string `json:"stale,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Command string `json:"command"`
}

// ps prints the processes with these names, or all.
func (s *screen) ps(ctx context.Context, names []string) error {
	r, err := s.read(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	q := project.ListRequest{Only: s.where.project != ""}
	if s.where.all {
		q.Scope = "all"
	}
	runs, _, err := r.project.List(ctx, q)
	if err != nil {
		return err
	}
	var sets []string
	if len(names) > 0 {
		wanted, err := r.targets(ctx, names, false)
		if err != nil {
			return err
		}
		for _, t := range wanted {
			if t.group {
				sets = append(sets, t.name)
			}
		}
		runs = slices.DeleteFunc(runs, func(run project.Run) bool {
			return !slices.ContainsFunc(wanted, func(t target) bool {
				return !t.group && t.name == run.Spec.Name || slices.Contains(t.members, run.Spec.Name)
			})
		})
	}
	s.found = len(runs) > 0
	now := time.Now()
	var rows [][]cell
	for i := range runs {
		run := &runs[i]
		r.lately(ctx, run, now)
		if s.json {
			if err := s.out.json(rowOf(run)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, s.cells(run, r.name(ctx, run.Project, run.Spec.Name), now))
	}
	if len(rows) > 0 {
		err = s.out.table([]column{
			{title: "NAME"}, {title: "STATE"}, {title: "RUN", rank: 6, right: true}, {title: "PID", rank: 3, right: true}, {title: "PORTS", rank: 1},
			{title: "CPU %CORE", rank: 4, right: true}, {title: "MEMORY", rank: 5, right: true}, {title: "SINCE", rank: 7, right: true}, {title: "COMMAND", rank: 2},
		}, rows)
	}
	if err == nil && (len(names) == 0 || len(sets) > 0) {
		err = s.psGroups(ctx, r, runs, sets)
	}
	s.sayNone(r, "processes")
	if !s.json {
		s.adviseOnOldCode(ctx, r, runs)
		s.adviseOnLeft(ctx, r, runs)
	}
	return err
}

// adviseOnLeft says what ends the processes that nobody owns.
func (s *screen) adviseOnLeft(ctx context.Context, r *reader, runs []project.Run) {
	for i := range runs {
		if run := &runs[i]; run.IsLeft() {
			fmt.Fprintf(s.err, "%s: still running: %s; %s\n", r.name(ctx, run.Project, run.Spec.Name), line.Visible(strings.Join(run.Left(), ", ")), run.Reason)
		}
	}
}

// adviseOnOldCode says which MCP servers and which servers of pmcp run a program that has changed, and
// what to do.
func (s *screen) adviseOnOldCode(ctx context.Context, r *reader, runs []project.Run) {
	owners := make(map[int]bool)
	for i := range runs {
		run := &runs[i]
		if run.Owner != nil {
			owners[run.Owner.PID] = true
		}
		if file := run.Stale(); file != "" {
			name := r.name(ctx, run.Project, run.Spec.Name)
			fmt.Fprintf(s.err, "%s: %s is newer than its run; pmcp restart %s runs it\n", name, line.Visible(file), name)
		}
	}
	if len(owners) == 0 {
		return
	}
	servers, _ := registry.List(r.records) // without the registry nothing is known of them
	for _, e := range servers {
		if e.State != registry.Live || !owners[e.Record.Server.PID] || e.Record.ClientName == registry.ClientDaemon {
			continue
		}
		if outdated := e.Record.Outdated(); outdated != "" {
			fmt.Fprintf(s.err, "pmcp %d: its program %s\n", e.Record.Server.PID, outdated)
		}
	}
}

// rowOf returns a run for --json.
func rowOf(run *project.Run) psRow {
	row := psRow{
		Name: run.Spec.Name, Project: run.Project, State: stateOf(run, run.State.String()), Ready: run.Ready, NotReady: run.WhyNotReady(), Unhealthy: run.HealthText(), Run: run.Status.Run, PID: run.PID, Ports: run.Ports, URLs: run.PortURLs(),
		MemoryBytes: run.MemoryBytes, StartedAt: args.FormatTime(run.StartedAt), EndedAt: args.FormatTime(run.EndedAt),
		Command: commandOf(run),
	}
	if left := run.KeptFor(); left > 0 {
		row.KeptFor = args.FormatAge(left)
	}
	if run.IsLeft() {
		row.PID, row.Reason = run.Survivors[0].PID, run.Reason
	}
	row.Stale = run.Stale()
	if run.MemoryBytes > 0 { // it was measured
		row.CPUPercent = new(math.Round(10*run.CPUPercent) / 10)
	}
	if run.Exit != nil {
		if row.Signal = run.Exit.Signal; row.Signal == "" {
			row.ExitCode = &run.Exit.Code
		}
	}
	if run.Owner != nil {
		row.Owner = run.Owner.String()
	}
	return row
}

// maxCondition bounds the condition of a run in the table, in bytes; --json has it whole.
const maxCondition = 60

func stateOf(run *project.Run, state string) string {
	if run.Defined {
		return "defined"
	}
	return state
}

func commandOf(run *project.Run) string {
	return strings.TrimSpace(strings.Join(append([]string{run.Executable}, run.Spec.Args...), " "))
}

// cells returns the row of a run in the table.
func (s *screen) cells(run *project.Run, name string, now time.Time) []cell {
	state, c := endOf(run), colour("")
	switch {
	case run.Ready != nil && !*run.Ready || run.HealthText() != "" || run.Suspended != "":
		state, c = stateOf(run, run.StateText())+", "+prose.Cut(run.Condition(), maxCondition), yellow
	case run.State.Live():
		c = green
	}
	if run.EndedBadly() {
		c = red
	}
	if run.Stale() != "" {
		state, c = state+", stale", yellow
	}
	if run.IsLeft() {
		state += ", nobody owns it"
	}
	if left := run.KeptFor(); left > 0 {
		state += ", kept for " + args.FormatAge(left)
	}
	row := []cell{{name, bold}, {state, c}, {}, {}, {listens(run), cyan}, {}, {}, {}, {line.Visible(strings.TrimPrefix(commandOf(run), filepath.Dir(run.Executable)+"/")), dim}}
	if run.Status.Run > 0 {
		row[2].text = fmt.Sprint(run.Status.Run)
	}
	switch {
	case run.PID > 0:
		row[3].text = fmt.Sprint(run.PID)
	case run.IsLeft():
		row[3].text = fmt.Sprint(run.Survivors[0].PID)
	}
	if run.MemoryBytes > 0 {
		row[5].text, row[6].text = fmt.Sprintf("%.1f%%", run.CPUPercent), fmt.Sprintf("%.0f MiB", float64(run.MemoryBytes)/(1<<20))
	}
	row[7].text = since(run, now)
	return row
}

// endOf returns the state of a run and, if it has ended, its exit code or signal.
func endOf(run *project.Run) string {
	state := stateOf(run, run.StateText())
	switch {
	case run.State.Live() || run.Exit == nil:
	case run.Exit.Signal != "":
		state += " " + run.Exit.Signal
	case run.State != process.Stopped:
		state += fmt.Sprintf(" %d", run.Exit.Code)
	}
	return state
}

// listens returns where a run listens: the addresses of its assigned ports, and its other ports.
func listens(run *project.Run) string {
	urls := slices.Sorted(maps.Values(run.PortURLs()))
	for _, port := range run.Ports {
		if text := strconv.Itoa(port); !slices.ContainsFunc(urls, func(url string) bool { return strings.HasSuffix(url, ":"+text) }) {
			urls = append(urls, text)
		}
	}
	return strings.Join(urls, " ")
}

// lately sets the CPU share of a run to that of the last 10 s, if its server has stored it: a
// single measurement knows only the mean since the start.
func (r *reader) lately(ctx context.Context, run *project.Run, now time.Time) {
	const age = 30 * time.Second // servers store the sample of a span when the next begins
	if !run.State.Live() {
		return
	}
	if all, err := r.store.Samples(ctx, run.RunID, now.Add(-age)); err == nil && len(all) > 0 {
		run.CPUPercent = all[len(all)-1].CPUPercent
	}
}

// since returns how long a run has been in its state.
func since(run *project.Run, now time.Time) string {
	at := run.StartedAt
	if at.IsZero() {
		return ""
	}
	if !run.EndedAt.IsZero() {
		at = run.EndedAt
	}
	return args.FormatAge(now.Sub(at))
}
