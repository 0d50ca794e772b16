package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pmcp/logstore"
	"pmcp/process"
)

// processResult is a process in an answer.
type processResult struct {
	Name          string    `json:"name"`
	Project       string    `json:"project,omitempty" schema:"extra"`
	Command       string    `json:"command,omitempty"`
	Args          []string  `json:"args,omitempty" schema:"extra"`
	Cwd           string    `json:"cwd,omitempty"`
	State         string    `json:"state"`
	Ready         *bool     `json:"ready,omitempty"`
	PID           int       `json:"pid,omitempty"`
	Run           int       `json:"run,omitempty"`
	Owner         *runOwner `json:"owner,omitempty"`
	StartedAt     string    `json:"started_at,omitempty"`
	EndedAt       string    `json:"ended_at,omitempty"`
	DurationMS    int64     `json:"duration_ms,omitempty" schema:"extra"`
	ExitCode      *int      `json:"exit_code,omitempty"`
	Signal        string    `json:"signal,omitempty"`
	EndedBy       string    `json:"ended_by,omitempty"`
	Restarts      int       `json:"restarts,omitempty"`
	NextRetryAt   string    `json:"next_retry_at,omitempty" schema:"extra"`
	Reason        string    `json:"reason,omitempty" schema:"extra"`
	Ports         []int     `json:"ports,omitempty"`
	CPUPercent    *float64  `json:"cpu_percent,omitempty" schema:"extra"` // 0 counts; nil: not measured
	MemoryBytes   uint64    `json:"memory_bytes,omitempty" schema:"extra"`
	Survivors     []string  `json:"survivors,omitempty" schema:"extra"`
	LimitExceeded string    `json:"limit_exceeded,omitempty" schema:"extra"`
}

// ofStatus is a process of this session.
func ofStatus(st *process.Status) processResult {
	r := processResult{
		Name: st.Spec.Name, Command: st.Executable, Args: st.Spec.Args, Cwd: st.Spec.Dir,
		State: st.State.String(), Ready: st.Ready, PID: st.PID, Run: st.Run,
		StartedAt: formatTime(st.StartedAt), EndedAt: formatTime(st.EndedAt),
		Restarts: st.Restarts, NextRetryAt: formatTime(st.NextRetry), Reason: st.Reason,
		Ports: st.Ports, CPUPercent: share(st.CPUPercent, st.MemoryBytes), MemoryBytes: st.MemoryBytes, LimitExceeded: st.LimitExceeded,
	}
	if st.Exit != nil {
		r.setExit(st.Exit.Code, st.Exit.Signal, string(st.Exit.By))
		r.DurationMS = st.EndedAt.Sub(st.StartedAt).Milliseconds()
	}
	for _, p := range st.Survivors {
		r.Survivors = append(r.Survivors, fmt.Sprintf("pid %d (%s)", p.PID, p.Comm))
	}
	return r
}

// ofStatus is st with the secrets of its arguments masked, which the text of an answer may cut.
func (s *Server) ofStatus(st *process.Status) processResult {
	r := ofStatus(st)
	r.Args = s.o.Mask.Texts(r.Args)
	return r
}

// ofRun is a run that the store knows: of an earlier session or another server.
func ofRun(run *logstore.Run) processResult {
	info := decodeRunInfo(run.Info)
	r := processResult{
		Name: run.Name, Command: info.Command, Args: info.Args, Cwd: info.Cwd, State: stateOfRow(run, &info), Run: run.Number,
		StartedAt: formatTime(run.Started), EndedAt: formatTime(run.Ended),
		Signal: info.Signal, ExitCode: info.ExitCode, EndedBy: info.EndedBy, Restarts: info.Restarts, Reason: info.Reason,
	}
	if run.Live && run.Ended.IsZero() {
		r.PID, r.Ready = info.PID, info.Ready
		if !run.Own {
			r.Owner = &info.Owner
		}
	}
	if !run.Ended.IsZero() {
		r.DurationMS = run.Ended.Sub(run.Started).Milliseconds()
	}
	return r
}

// told is what r says of how far the run has come.
func (r *processResult) told() told {
	return told{name: r.Name, run: r.Run, stage: stageOf(isLive(r.State), r.Ready)}
}

// isLive says whether a process in the state of that name has a run.
func isLive(state string) bool {
	return slices.Contains([]string{process.Starting.String(), process.Running.String(), process.Stopping.String()}, state)
}

// hasEnded says that nothing of it goes on by itself. The end of an earlier run
// stands in what is being started again.
func (r *processResult) hasEnded() bool {
	over := r.EndedAt != "" && !isLive(r.State) && r.State != process.Backoff.String()
	return over || r.State == process.Lost.String()
}

func (r *processResult) setExit(code int, signal, by string) {
	r.Signal, r.EndedBy = signal, by
	if signal == "" {
		r.ExitCode = &code
	}
}

func round(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }

// share is a share of the CPU in an answer, idle ones as well: nil only where
// nothing was measured yet, memory neither.
func share(percent float64, memory uint64) *float64 {
	if memory == 0 {
		return nil
	}
	return new(round(percent))
}

// line is the process in one line: "web: running, ready, run 3, pid 12, ports
// 3000".
func (r *processResult) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.Name, r.State)
	add := func(format string, args ...any) { fmt.Fprintf(&b, ", "+format, args...) }
	if r.Ready != nil {
		if *r.Ready {
			add("ready")
		} else {
			add("not ready")
		}
	}
	if r.ExitCode != nil {
		add("exit code %d", *r.ExitCode)
	}
	if r.Signal != "" {
		add("%s", r.Signal)
	}
	if r.EndedBy != "" {
		add("ended by %s", r.EndedBy)
	}
	if r.EndedAt != "" {
		add("after %s, at %s", time.Duration(r.DurationMS)*time.Millisecond, r.EndedAt)
	}
	if r.Run > 0 {
		add("run %d", r.Run)
	}
	if r.PID > 0 {
		add("pid %d", r.PID)
	}
	if len(r.Ports) > 0 {
		add("ports %s", joinInts(r.Ports))
	}
	if r.CPUPercent != nil {
		add("%.1f%% CPU, %s", *r.CPUPercent, formatBytes(int64(r.MemoryBytes)))
	}
	if r.Restarts > 0 {
		add("%d restarts", r.Restarts)
	}
	if r.NextRetryAt != "" {
		add("next try at %s", r.NextRetryAt)
	}
	if r.Owner != nil {
		add("owned by the pmcp server %d %s", r.Owner.PID, r.Owner.Client)
	}
	if r.Reason != "" {
		add("%s", r.Reason)
	}
	if len(r.Survivors) > 0 {
		add("still running of its tree: %s", strings.Join(r.Survivors, ", "))
	}
	if r.LimitExceeded != "" {
		add("%s", r.LimitExceeded)
	}
	return b.String()
}

// where says what was run and where.
func (r *processResult) where() string {
	return fmt.Sprintf("command: %s\ncwd: %s\n", quoteCommand(r.Command, r.Args), r.Cwd)
}

const (
	// maxShownCommand is about how much of a command line is shown where it is
	// not the matter, maxShownArg how much of each argument, in bytes.
	maxShownCommand = 2000
	maxShownArg     = 200
	// maxWholeCommand is the same where a command line is asked for.
	maxWholeCommand = defaultMaxBytes
)

// quoteCommand shows a command line for reading; arguments that need it are
// quoted, long ones cut, and of very many the first are shown.
func quoteCommand(command string, args []string) string {
	return quoteArgs(command, shortArgs(command, args))
}

// quoteArgs joins the words of a command line, quoting those that need it.
func quoteArgs(command string, args []string) string {
	words := []string{command}
	for _, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$`*?|&;<>(){}[]~#") && !strings.HasPrefix(arg, leftOut) {
			arg = fmt.Sprintf("%q", arg)
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// leftOut begins the marker for what does not stand there.
const leftOut = "… [+"

// shortArgs are the arguments of a command line as a list of processes shows
// them.
func shortArgs(command string, args []string) []string {
	var short []string
	size := len(command)
	for i, arg := range args {
		if size > maxShownCommand {
			return append(short, fmt.Sprintf(leftOut+"%d arguments]", len(args)-i))
		}
		short = append(short, cut(arg, len(arg), maxShownArg))
		size += len(short[i]) + 1
	}
	return short
}

func joinInts(ints []int) string {
	words := make([]string, len(ints))
	for i, n := range ints {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, ", ")
}

// formatBytes is a size as a person reads it, in binary units.
func formatBytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	size, exp := float64(n)/unit, 0
	for size >= unit && exp < 3 {
		size, exp = size/unit, exp+1
	}
	return fmt.Sprintf("%.1f %ciB", size, "KMGT"[exp])
}
