package server

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"pmcp/logstore/line"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
)

// A processResult is a process in an answer.
type processResult struct {
	Name    string `json:"name"`
	Project string `json:"project,omitempty" schema:"extra"`
	commandResult
	State string `json:"state"`
	Ready *bool  `json:"ready,omitempty"`
	// NotReady is process.Status.WhyNotReady, Unhealthy is its HealthText.
	NotReady  string `json:"not_ready,omitempty" schema:"extra"`
	Unhealthy string `json:"unhealthy,omitempty" schema:"extra"`
	mainResult
	Run       int            `json:"run,omitempty"`
	Owner     *project.Owner `json:"owner,omitempty"`
	StartedAt string         `json:"started_at,omitempty"`
	EndedAt   string         `json:"ended_at,omitempty"`
	endResult
	Restarts    *int   `json:"restarts,omitempty"` // nil: there was no restart
	NextRetryAt string `json:"next_retry_at,omitempty" schema:"extra"`
	Reason      string `json:"reason,omitempty" schema:"extra"`
	Ports       []int  `json:"ports,omitempty"`
	// URLs are the addresses of the ports that were assigned to the run, by variable.
	URLs          map[string]string `json:"urls,omitempty" schema:"extra"`
	CPUPercent    *float64          `json:"cpu_percent,omitempty" schema:"extra"` // nil: not measured; 0 is a measured share
	MemoryBytes   uint64            `json:"memory_bytes,omitempty" schema:"extra"`
	Survivors     []string          `json:"survivors,omitempty" schema:"extra"`
	LimitExceeded string            `json:"limit_exceeded,omitempty" schema:"extra"`
	sourcesResult

	ended   time.Time // EndedAt, or zero
	nextTry string    // of the restart policy, in words
}

// mainResult is the process that stands for a run. Stale is a file of an MCP server that
// is newer than the run; only list_processes says so.
type mainResult struct {
	PID     int    `json:"pid,omitempty"`
	Stale   string `json:"stale,omitempty" schema:"extra"`
	KeptFor string `json:"kept_for,omitempty" schema:"extra"` // how much longer; "": not beyond its session
}

// commandResult is what a process runs, and where.
type commandResult struct {
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty" schema:"extra"`
	Cwd     string   `json:"cwd,omitempty"`
}

// endResult is how a run ended, and after what time. Its zero value is a run that
// has not ended.
type endResult struct {
	DurationMS int64  `json:"duration_ms,omitempty" schema:"extra"`
	ExitCode   *int   `json:"exit_code,omitempty"` // nil if a signal ended the run
	Signal     string `json:"signal,omitempty"`
	EndedBy    string `json:"ended_by,omitempty"`
	// Uncaught means that the program did not choose its exit code; see process.Exit.
	Uncaught bool `json:"uncaught,omitempty" schema:"extra"`
}

// stateDefined is the state of a process that has a definition and no run.
const stateDefined = "defined"

// stateOffered selects programs that files of the project offer.
const stateOffered = "offered"

// resultOf returns the result of a run.
func resultOf(run *project.Run) processResult {
	r := processResult{
		Name: run.Spec.Name, commandResult: commandOf(run),
		State: run.State.String(), Ready: run.Ready, NotReady: run.WhyNotReady(), Unhealthy: run.HealthText(), mainResult: mainOf(run), Run: run.Status.Run, Owner: run.Owner,
		StartedAt: args.FormatTime(run.StartedAt), EndedAt: args.FormatTime(run.EndedAt), endResult: endResult{DurationMS: run.Duration().Milliseconds()},
		NextRetryAt: args.FormatTime(run.NextRetry), Reason: run.Reason,
		Ports: run.Ports, URLs: run.PortURLs(), CPUPercent: cpuShare(run.CPUPercent, run.MemoryBytes), MemoryBytes: run.MemoryBytes,
		Survivors: run.Left(), LimitExceeded: run.LimitExceeded, sourcesResult: sourcesOf(run), ended: run.EndedAt, nextTry: nextTryOf(&run.Status),
	}
	if run.IsKept() {
		r.Owner = nil // the daemon
	}
	if run.Defined {
		r.State = stateDefined
	}
	if run.Restarts > 0 {
		r.Restarts = &run.Restarts
	}
	if run.Exit != nil {
		r.Signal, r.EndedBy, r.Uncaught = run.Exit.Signal, string(run.Exit.By), run.Exit.Uncaught
		if r.Signal == "" {
			r.ExitCode = &run.Exit.Code
		}
	}
	return r
}

// nextTryOf returns the next try of the restart policy in words, "try 2 of 6 in 2s", or "".
func nextTryOf(st *process.Status) string {
	if st.NextRetry.IsZero() {
		return ""
	}
	text := fmt.Sprintf("try %d", st.Restarts+2)
	if st.Spec.MaxRestarts > 0 {
		text += fmt.Sprintf(" of %d", st.Spec.MaxRestarts+1)
	}
	return fmt.Sprintf("%s in %s", text, max(0, time.Until(st.NextRetry)).Round(100*time.Millisecond))
}

func mainOf(run *project.Run) mainResult {
	r := mainResult{PID: run.PID}
	if left := run.KeptFor(); left > 0 {
		r.KeptFor = args.FormatAge(left)
	}
	return r
}

func commandOf(run *project.Run) commandResult {
	return commandResult{run.Executable, run.Spec.Args, run.Spec.Dir}
}

func lineOf(run *project.Run) string {
	r := resultOf(run)
	return r.line()
}

// reported returns how far the run of the process had come, according to r.
func (r *processResult) reported() reported {
	return reported{name: r.Name, run: r.Run, stage: stageOf(isLive(r.State), r.Ready)}
}

func isLive(state string) bool {
	s, err := process.ParseState(state)
	return err == nil && s.Live()
}

func round(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }

// cpuShare returns a CPU share for an answer. It returns nil only if nothing was
// measured yet, which a memory of 0 shows: the CPU share of an idle process is 0
// too.
func cpuShare(percent float64, memory uint64) *float64 {
	if memory == 0 {
		return nil
	}
	return new(round(percent))
}

// stateText returns the state as process.Status.StateText does.
func (r *processResult) stateText() string {
	state, err := process.ParseState(r.State)
	if err != nil || r.ExitCode == nil {
		return r.State
	}
	st := process.Status{State: state, Exit: &process.Exit{Code: *r.ExitCode, Uncaught: r.Uncaught}}
	return st.StateText()
}

// line returns the process on one line: "web: running, ready, run 3, pid 12, ports
// 3000".
func (r *processResult) line() string {
	var t answerText
	t.part("%s: %s", r.Name, r.stateText())
	t.optPart(", %s", process.ConditionText(r.Ready, r.NotReady, r.Unhealthy))
	t.optPart(", exit code %d", r.ExitCode)
	t.optPart(", %s", r.Signal)
	if r.EndedBy != string(process.BySelf) {
		t.optPart(", ended by %s", r.EndedBy)
	}
	if r.EndedAt != "" || r.DurationMS > 0 {
		t.part(", after %s", time.Duration(r.DurationMS)*time.Millisecond)
	}
	if !r.ended.IsZero() && time.Since(r.ended) >= time.Minute {
		t.part(", at %s", clockTime(r.ended))
	}
	t.optPart(", run %d", r.Run)
	t.optPart(", pid %d", r.PID)
	t.optPart(", kept for %s", r.KeptFor)
	t.optPart(", %s", joinURLs(r.URLs))
	t.optPart(", ports %s", prose.Ints(otherPorts(r.Ports, r.URLs)))
	if r.CPUPercent != nil {
		t.part(", %s, %s", formatCPU(*r.CPUPercent), formatBytes(int64(r.MemoryBytes)))
	}
	if r.Restarts != nil {
		t.part(", %s", countNoun(int64(*r.Restarts), "restart", "restarts"))
	}
	t.optPart(", %s", r.nextTry)
	if r.Owner != nil {
		t.part(", owned by the pmcp server %d %s", r.Owner.PID, r.Owner.Client)
	}
	reason, exceeded := r.trouble()
	t.optPart(", %s", reason)
	t.optPart(", still running in its tree: %s", strings.Join(r.Survivors, ", "))
	t.optPart(", %s", exceeded)
	r.sourcesResult.write(&t)
	return t.l.String()
}

// trouble returns the reason for the state and the limit that was exceeded, or ""
// in place of the one that the other repeats.
func (r *processResult) trouble() (reason, exceeded string) {
	what, _, _ := strings.Cut(r.LimitExceeded, "; ") // drops the action taken, which Reason may also name
	switch {
	case r.LimitExceeded == "" || r.Reason == "":
		return r.Reason, r.LimitExceeded
	case strings.HasPrefix(r.LimitExceeded, r.Reason):
		return "", r.LimitExceeded
	case strings.Contains(r.Reason, what):
		return r.Reason, ""
	}
	return r.Reason, r.LimitExceeded
}

const (
	// maxShownCommand is about how many bytes of a command line an answer about
	// something else shows. maxShownArg is the same for each argument.
	maxShownCommand = 2000
	maxShownArg     = 200
	// maxWholeCommand replaces maxShownCommand in an answer about the command line.
	maxWholeCommand = 32 << 10
)

// quoteCommand returns a command line for reading: it quotes words that need
// quotes, cuts long arguments, and shows only the first arguments if there are very
// many.
func quoteCommand(command string, args []string) string {
	return quoteArgs(command, shortArgs(command, args))
}

// quoteArgs joins the words of a command line and quotes those that need it.
func quoteArgs(command string, args []string) string {
	words := []string{command}
	for i, arg := range args {
		isMark := i == len(args)-1 && argumentsCut.MatchString(arg)
		if arg == "" || (strings.ContainsAny(arg, " \t\n'\"\\$`*?|&;<>(){}[]~#") || line.Visible(arg) != arg) && !isMark {
			arg = fmt.Sprintf("%q", arg)
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

var argumentsCut = regexp.MustCompile(`^… \[\+\d+ arguments\]$`)

// shortArgs returns the arguments of a command line, shortened for a list of
// processes.
func shortArgs(command string, args []string) []string {
	var short []string
	size := len(command)
	for i, arg := range args {
		if size > maxShownCommand {
			return append(short, cutMark+countNoun(int64(len(args)-i), "argument]", "arguments]"))
		}
		short = append(short, cut(arg, maxShownArg))
		size += len(short[i]) + 1
	}
	return short
}

// joinURLs returns the addresses of assigned ports: only the address if there is one,
// else each with its variable.
func joinURLs(urls map[string]string) string {
	var words []string
	for _, variable := range slices.Sorted(maps.Keys(urls)) {
		if words = append(words, urls[variable]); len(urls) > 1 {
			words[len(words)-1] = variable + " " + urls[variable]
		}
	}
	return strings.Join(words, ", ")
}

func otherPorts(ports []int, urls map[string]string) []int {
	return slices.DeleteFunc(slices.Clone(ports), func(port int) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(urls)), func(url string) bool { return strings.HasSuffix(url, fmt.Sprintf(":%d", port)) })
	})
}

// formatBytes returns a size in binary units for reading.
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

// countNoun returns a count with its noun: "1 match", "2 matches".
func countNoun(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
