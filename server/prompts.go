package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/logstore"
	"pmcp/process"
	"pmcp/process/prose"
	"pmcp/server/args"
	"pmcp/server/project"
	"pmcp/server/stdio"
)

// A prompt is one row of the table of prompts. The text of a prompt includes the
// live data that the prompt is about.
type prompt struct {
	name, title, description string
	argument                 string // the one argument: process or group
	build                    func(ctx context.Context, s *call, t *answerText, subject string) error
}

// prompts returns the table of prompts.
func prompts() []prompt {
	return []prompt{
		{"debug_process", "Debug a process", "state, runs, last lines and health of a process, to find out what is wrong with it", "process", debugPrompt},
		{"optimize_performance", "Optimize performance", "measured CPU and memory of a process and the hottest members of its tree", "process", optimizePrompt},
		{"setup_monitoring", "Set up monitoring", "what is not monitored about a process, with ready-made calls to change that", "process", monitoringPrompt},
		{"troubleshoot_group", "Troubleshoot a group", "members of a group with their dependencies, states and reasons", "group", groupPrompt},
	}
}

// addPrompts registers the prompts of the table.
func (s *Server) addPrompts() {
	for _, p := range prompts() {
		definition := mcp.NewPrompt(p.name, mcp.WithPromptTitle(p.title), mcp.WithPromptDescription(p.description),
			mcp.WithArgument(p.argument, mcp.ArgumentDescription("name of the "+p.argument), mcp.RequiredArgument()))
		s.mcp.AddPrompt(definition, func(ctx context.Context, req mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			text, err := s.ownCall().promptText(ctx, p, req.Params.Arguments)
			if err != nil {
				return nil, stdio.InvalidParams(ctx, s.o.Mask.Text(p.name+": "+explain(err)))
			}
			return mcp.NewGetPromptResult(p.description, []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(s.o.Mask.Text(text)))}), nil
		})
	}
}

// promptText checks the arguments and returns the text of p.
func (s *call) promptText(ctx context.Context, p prompt, arguments map[string]string) (string, error) {
	for name := range arguments {
		if name != p.argument {
			return "", fmt.Errorf("unknown argument %s: there is %s", name, p.argument)
		}
	}
	known, err := s.subjectNames(ctx, p.argument)
	if err != nil {
		return "", err
	}
	subject := arguments[p.argument]
	if subject == "" {
		return "", fmt.Errorf("missing argument: %s (there are: %s)", p.argument, prose.OrNone(known))
	}
	if !slices.Contains(known, subject) {
		if text := s.offeredPrompt(ctx, p, subject); text != "" {
			return text, nil
		}
		return "", fmt.Errorf("unknown %s %s (there are: %s)", p.argument, args.QuoteWithNearest(subject, known), prose.OrNone(known))
	}
	var t answerText
	err = p.build(ctx, s, &t, subject)
	return t.b.String(), err
}

// offeredPrompt returns the text of a prompt about a program that the project offers and that
// has not run yet, or "".
func (s *call) offeredPrompt(ctx context.Context, p prompt, subject string) string {
	all, _ := s.project.Offered(ctx)
	i := slices.IndexFunc(all, func(o project.Offered) bool { return o.Name == subject && o.Not == "" })
	if i < 0 || p.argument != "process" {
		return ""
	}
	var t answerText
	t.line("%s has not run yet; %s offers it: %s", subject, all[i].Source, all[i].Command())
	t.line("start_process {%q: %q} starts it.", "name", subject)
	return t.b.String()
}

// subjectNames returns the names that an argument or a template variable of the
// given kind can take.
func (s *call) subjectNames(ctx context.Context, kind string) ([]string, error) {
	if kind != "group" {
		return s.project.AllNames(ctx)
	}
	all, err := s.project.ListGroups(ctx, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, g := range all {
		names = append(names, g.Group.Name)
	}
	return names, nil
}

func debugPrompt(ctx context.Context, s *call, t *answerText, name string) error {
	info, err := getProcessInfo(ctx, s, processInfoArgs{Process: name})
	if err != nil {
		return err
	}
	t.line("Find out what is wrong with the process %s. What pmcp knows about it:", info.Name)
	t.line("")
	info.write(t)
	shown := info.Lines
	if len(info.Lines) == 0 { // the process is running: the details do not include its last lines
		log, err := tail(ctx, s, []string{info.Name}, tailLogsArgs{})
		if err != nil {
			return err
		}
		t.line("")
		log.write(t)
		shown = log.Lines
	}
	if err := s.writeEvents(ctx, t, info.Name); err != nil {
		return err
	}
	found, err := listErrors(ctx, s, logstore.FaultQuery{Names: []string{info.Name}, Limit: allErrors}, getErrorsArgs{Limit: answerErrors})
	if err != nil {
		return err
	}
	for i := range found.Errors {
		e := &found.Errors[i]
		head := messageHead(e.Message)
		e.above = head != "" && slices.ContainsFunc(shown, func(line string) bool { return strings.Contains(line, head) })
	}
	t.line("")
	found.write(t)
	s.writeHealth(ctx, t, info.Name)
	return nil
}

// maxPromptEvents is how many events a prompt shows.
const maxPromptEvents = 10

// writeEvents writes the events of a process, except its errors, if there are any, including events of
// earlier sessions.
func (s *call) writeEvents(ctx context.Context, t *answerText, name string) error {
	events, err := s.o.Store.Events(ctx, s.o.Manager.Project(), []string{name}, maxPromptEvents)
	var texts []string
	for _, e := range events {
		if e.Kind == logstore.EventError { // the errors follow
			continue
		}
		text, _, _ := strings.Cut(e.Text, `; "`) // without the error that a run ended with
		texts = append(texts, args.FormatTime(e.At)+" "+text)
	}
	t.events("what happened to it:", texts, true)
	return err
}

// writeHealth writes the health of a process that this session checks. For any other
// process, and for one that another server is running, it writes nothing.
func (s *call) writeHealth(ctx context.Context, t *answerText, name string) {
	st := s.project.Health(name)
	if run, err := s.project.Find(ctx, name); st != nil && err == nil && !run.Stored {
		t.section("health check:")
		newHealthResult(st).write(t)
	}
}

func optimizePrompt(ctx context.Context, s *call, t *answerText, name string) error {
	stats, err := getProcessStats(ctx, s, processStatsArgs{Process: name})
	if err != nil {
		return err
	}
	t.line("Find out what makes the process %s slow or large, and what would help. Measured:", stats.Name)
	t.line("")
	stats.write(t)
	t.line("")
	members, err := s.project.Tree(stats.Name)
	if err != nil {
		return err
	}
	if len(members) == 0 {
		t.line("it is not running in this session, so it has no process tree now")
		return nil
	}
	slices.SortStableFunc(members, func(a, b process.Member) int { return int(b.CPUPercent*10) - int(a.CPUPercent*10) })
	t.line("members of its tree, hottest first:")
	for _, m := range members[:min(len(members), topProcesses)] {
		t.line("pid %d: %s, %s: %s", m.PID, formatCPU(m.CPUPercent), formatBytes(int64(m.MemoryBytes)), m.Command)
	}
	return nil
}

func monitoringPrompt(ctx context.Context, s *call, t *answerText, argument string) error {
	name, err := s.project.ResolveOne(ctx, argument, true)
	if err != nil {
		return err
	}
	def, ok, err := s.project.Definition(ctx, name)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s has no definition; start_process with a command defines it", name)
	}
	run, err := s.project.Find(ctx, name)
	if err != nil {
		return err
	}
	t.line("Set up monitoring of the process %s. What is not monitored yet, with calls that change that:", name)
	t.line("")
	suggestions := monitoringGaps(&def, name, run.Ports, run.State.Live())
	for _, suggestion := range suggestions {
		t.line("- %s", suggestion)
	}
	if len(suggestions) == 0 {
		t.line("Nothing is missing: it has readiness, health, restart and limits.")
	}
	if !run.Stored || run.Owner != nil {
		t.section("now: %s", lineOf(&run))
	}
	s.writeHealth(ctx, t, name)
	return nil
}

// monitoringGaps returns what is not monitored about a process. Each gap comes with
// the call that closes it. ports are the ports that the process listens on. runs
// reports whether the process is running; if it is not, such a call would start it.
func monitoringGaps(def *project.Definition, name string, ports []int, runs bool) []string {
	var all []string
	suggest := func(what, format string, args ...any) {
		all = append(all, what+": "+fmt.Sprintf(format, args...))
	}
	if def.Ready == nil && !process.SpeaksMCP(def.Stdio) { // an MCP server is ready once it answers
		suggest("no readiness rule", `restart_process {"process": %q, "ready": {"port": 0}}`, name)
	}
	without := " (without a restart)"
	if !runs {
		without = " (starts it: it is not running)"
	}
	switch {
	case def.Health != nil:
	case len(ports) > 0:
		suggest("no health check", `start_process {"name": %q, "health": {"tcp": "%d", "interval_ms": 10000, "on_unhealthy": "restart"}}`+without, name, ports[0])
	default:
		suggest("no health check, and it listens on no port", `start_process {"name": %q, "health": {"command": "a command that exits with 0 while it is healthy"}}`+without, name)
	}
	if def.Restart == "" || def.Restart == "never" {
		suggest("it stays down after a crash", `start_process {"name": %q, "restart": "on-failure"}`+without, name)
	}
	if def.Limits == nil {
		suggest("no limits of its own", `start_process {"name": %q, "limits": {"memory_mb": 1024, "cpu_percent": 80, "action": "warn"}}`+without, name)
	}
	return all
}

func groupPrompt(ctx context.Context, s *call, t *answerText, name string) error {
	all, err := s.project.ListGroups(ctx, name)
	if err != nil {
		return err
	}
	group := newGroupResult(&all[0])
	t.line("Find out why the group %s is not fully up, and what would help. What pmcp knows about it:", name)
	t.line("")
	group.write(t)
	room := sharedRoom{left: defaultMaxBytes, members: len(group.Members)}
	for _, m := range group.Members {
		share := room.share()
		run, err := s.project.Find(ctx, m.Name)
		if err != nil || run.Stored || run.RunID == 0 || m.Phase == "up" || m.Phase == "done" {
			continue
		}
		log, err := excerpt{name: m.Name, run: run.RunID, room: share}.read(ctx, s.project)
		if err != nil {
			return err
		}
		room.left -= len(strings.Join(log.Lines, "\n"))
		t.section("last lines of %s:", m.Name)
		log.writeTo(t, nil)
	}
	return nil
}

// maxCompletions is the most completions that the protocol allows in one response.
const maxCompletions = 100

// completions completes the arguments of prompts and the variables of resource
// templates.
type completions struct{ s *Server }

// CompletePromptArgument completes the name of a process or group.
func (c completions) CompletePromptArgument(ctx context.Context, name string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	for _, p := range prompts() {
		switch {
		case p.name != name:
		case p.argument != argument.Name:
			return nil, stdio.InvalidParams(ctx, fmt.Sprintf("prompt %s has no argument %q", name, argument.Name))
		default:
			return c.names(ctx, p.argument, argument.Value, c.s.ownCall().offeredNames(ctx, p.argument))
		}
	}
	return nil, stdio.InvalidParams(ctx, fmt.Sprintf("unknown prompt %q", name))
}

// CompleteResourceArgument completes the name of a process or a number of lines.
func (c completions) CompleteResourceArgument(ctx context.Context, uri string, argument mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	at := slices.IndexFunc(templates(), func(r resource) bool { return r.uri == uri })
	switch {
	case at < 0:
		return nil, stdio.InvalidParams(ctx, fmt.Sprintf("unknown resource template %q", uri))
	case argument.Name == "name":
		return c.names(ctx, "process", argument.Value, nil)
	case argument.Name == "lines" && strings.Contains(uri, "lines"):
		return complete([]string{"20", "100", "1000"}, argument.Value), nil
	default:
		return nil, stdio.InvalidParams(ctx, fmt.Sprintf("%s has no variable %q", uri, argument.Name))
	}
}

// names completes a name of the given kind, or one of others.
func (c completions) names(ctx context.Context, kind, value string, others []string) (*mcp.Completion, error) {
	names, err := c.s.ownCall().subjectNames(ctx, kind)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if !slices.Contains(names, other) {
			names = append(names, other)
		}
	}
	return complete(names, value), nil
}

// offeredNames returns the names of the programs that the project offers, if kind is process.
func (s *call) offeredNames(ctx context.Context, kind string) []string {
	if kind != "process" {
		return nil
	}
	return s.project.OfferedNames(ctx)
}

// complete returns the names that begin with value, then those that contain it,
// ignoring case.
func complete(names []string, value string) *mcp.Completion {
	value = strings.ToLower(value)
	var first, rest []string
	for _, name := range names {
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, value):
			first = append(first, name)
		case strings.Contains(lower, value):
			rest = append(rest, name)
		}
	}
	all := slices.Concat([]string{}, first, rest)
	return &mcp.Completion{Values: all[:min(len(all), maxCompletions)], Total: len(all), HasMore: len(all) > maxCompletions}
}
