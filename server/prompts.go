package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"pmcp/process"
)

// prompt is one row of the table of prompts. It carries the live data that it
// speaks of.
type prompt struct {
	name, title, description string
	argument                 string // the one argument: process or group
	build                    func(ctx context.Context, s *Server, subject string) (string, error)
}

func prompts() []prompt {
	return []prompt{
		{"debug_process", "Debug a process", "state, runs, last lines and health of a process, to find out what is wrong with it", "process", debugPrompt},
		{"optimize_performance", "Optimize performance", "measured CPU and memory of a process and the hottest members of its tree", "process", optimizePrompt},
		{"setup_monitoring", "Set up monitoring", "what is not watched about a process, and ready-made arguments to watch it", "process", monitoringPrompt},
		{"troubleshoot_group", "Troubleshoot a group", "members of a group with their dependencies, states and reasons", "group", groupPrompt},
	}
}

// addPrompts registers the table.
func (s *Server) addPrompts() {
	for _, p := range prompts() {
		definition := mcp.NewPrompt(p.name, mcp.WithPromptTitle(p.title), mcp.WithPromptDescription(p.description),
			mcp.WithArgument(p.argument, mcp.ArgumentDescription("name of the "+p.argument), mcp.RequiredArgument()))
		s.mcp.AddPrompt(definition, func(ctx context.Context, req mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			text, err := s.prompt(ctx, p, req.Params.Arguments)
			if err != nil {
				return nil, invalidParams(ctx, s.o.Mask.Text(p.name+": "+explain(err)))
			}
			return mcp.NewGetPromptResult(p.description, []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(s.o.Mask.Text(text)))}), nil
		})
	}
}

func (s *Server) prompt(ctx context.Context, p prompt, arguments map[string]string) (string, error) {
	for name := range arguments {
		if name != p.argument {
			return "", fmt.Errorf("unknown argument %s: there is %s", name, p.argument)
		}
	}
	known, err := s.subjects(ctx, p.argument)
	if err != nil {
		return "", err
	}
	subject := arguments[p.argument]
	switch {
	case subject == "":
		return "", fmt.Errorf("missing argument: %s (there are: %s)", p.argument, orNone(known))
	case !slices.Contains(known, subject) && nearest(subject, known) != "":
		return "", fmt.Errorf("unknown %s %q; did you mean %s? (there are: %s)", p.argument, subject, nearest(subject, known), orNone(known))
	case !slices.Contains(known, subject):
		return "", fmt.Errorf("unknown %s %q (there are: %s)", p.argument, subject, orNone(known))
	}
	return p.build(ctx, s, subject)
}

// unknownPrompt says which prompts there are.
func unknownPrompt(name string) string {
	var known []string
	for _, p := range prompts() {
		known = append(known, p.name)
	}
	return fmt.Sprintf("unknown prompt %q: there are %s", name, strings.Join(known, ", "))
}

// orNone lists names for an error.
func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// subjects are the names that an argument or a template variable can take.
func (s *Server) subjects(ctx context.Context, kind string) ([]string, error) {
	if kind != "group" {
		return s.knownNames(ctx)
	}
	all, err := s.o.Groups.List(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, g := range all {
		names = append(names, g.Group.Name)
	}
	return names, nil
}

func debugPrompt(ctx context.Context, s *Server, name string) (string, error) {
	info, err := getProcessInfo(ctx, s, processInfoArgs{Process: name})
	if err != nil {
		return "", err
	}
	text := "Find out what is wrong with the process " + info.Name + ". What pmcp knows of it:\n\n" + info.text()
	if len(info.Lines) == 0 { // it runs: its last lines are not part of the details
		log, err := tailLogs(ctx, s, tailLogsArgs{Process: info.Name})
		if err != nil {
			return "", err
		}
		text += "\n" + log.text()
	}
	story, err := s.storyText(ctx, info.Name)
	if err != nil {
		return "", err
	}
	found, err := getErrors(ctx, s, getErrorsArgs{Process: info.Name, Limit: answerErrors})
	if err != nil {
		return "", err
	}
	return text + story + "\n" + found.text() + s.healthText(ctx, info.Name), nil
}

// storyLength is how many events a prompt tells.
const storyLength = 10

// storyText is what happened to a process by itself, in earlier sessions too; ""
// if nothing did.
func (s *Server) storyText(ctx context.Context, name string) (string, error) {
	events, err := s.o.Store.Events(ctx, s.o.Manager.Project(), []string{name}, storyLength)
	if err != nil || len(events) == 0 {
		return "", err
	}
	text := "\nwhat happened to it:\n"
	for _, e := range events {
		text += formatTime(e.At) + " " + e.Text + "\n"
	}
	return text, nil
}

// healthText is the health of a process that has a check here; "" otherwise, and
// of what another server runs now.
func (s *Server) healthText(ctx context.Context, name string) string {
	st, ok := s.o.Health.Status(name)
	if !ok {
		return ""
	}
	if _, own := s.ownNow(ctx, name); !own {
		return ""
	}
	return "\nhealth check:\n" + ofHealth(&st).text()
}

func optimizePrompt(ctx context.Context, s *Server, name string) (string, error) {
	stats, err := getProcessStats(ctx, s, processStatsArgs{Process: name})
	if err != nil {
		return "", err
	}
	text := "Find out what makes the process " + stats.Name + " slow or large, and what would help. Measured:\n\n" + stats.text()
	members, err := s.o.Manager.Tree(stats.Name)
	if err != nil && !errors.Is(err, process.ErrUnknown) {
		return "", err
	}
	if len(members) == 0 {
		return text + "\nit does not run in this session, so there is no tree to look at now\n", nil
	}
	slices.SortStableFunc(members, func(a, b process.Member) int { return int(b.CPUPercent*10) - int(a.CPUPercent*10) })
	text += "\nmembers of its tree, hottest first:\n"
	for _, m := range members[:min(len(members), topProcesses)] {
		text += fmt.Sprintf("pid %d: %.1f%% CPU, %s: %s\n", m.PID, m.CPUPercent, formatBytes(int64(m.MemoryBytes)), s.commandOf(&m))
	}
	return text, nil
}

func monitoringPrompt(ctx context.Context, s *Server, argument string) (string, error) {
	name, err := s.resolveName(ctx, argument)
	if err != nil {
		return "", err
	}
	def, ok, err := s.definition(ctx, name)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("%s has no definition; start_process with a command gives it one", name)
	}
	st, own := s.ownNow(ctx, name)
	var b strings.Builder
	fmt.Fprintf(&b, "Set up monitoring of the process %s. What is not watched yet, with calls that would watch it:\n\n", name)
	suggestions := unwatched(&def, name, st.Ports)
	for _, suggestion := range suggestions {
		b.WriteString("- " + suggestion + "\n")
	}
	if len(suggestions) == 0 {
		b.WriteString("Everything is: readiness, health, restart and limits.\n")
	}
	if own {
		p := ofStatus(&st)
		fmt.Fprintf(&b, "\nnow: %s\n", p.line())
	} else if err := s.ownOnly(ctx, name); err != nil {
		fmt.Fprintf(&b, "\n%s: these calls are for its window\n", err)
	}
	return b.String() + s.healthText(ctx, name), nil
}

// unwatched lists what is not watched of a process, each with the call that
// would watch it. ports are those that it listens on.
func unwatched(def *specArgs, name string, ports []int) []string {
	var all []string
	suggest := func(what, format string, args ...any) {
		all = append(all, what+": "+fmt.Sprintf(format, args...))
	}
	if def.Ready == nil && def.Stdio != process.StdioMCP { // which is ready once it answers
		suggest("nothing says when it is ready", `restart_process {"process": %q, "ready": {"port": 0}}`, name)
	}
	const without = " (without a restart)"
	switch {
	case def.Health != nil:
	case len(ports) > 0:
		suggest("no health check", `start_process {"name": %q, "health": {"tcp": "%d", "interval_ms": 10000, "on_unhealthy": "restart"}}`+without, name, ports[0])
	default:
		suggest("no health check, and it listens on no port", `start_process {"name": %q, "health": {"command": "a command that exits with 0 while it is well"}}`+without, name)
	}
	if def.Restart == "" || def.Restart == "never" {
		suggest("it stays down after a crash", `start_process {"name": %q, "restart": "on-failure"}`+without, name)
	}
	if def.Limits == nil {
		suggest("no limits of its own", `start_process {"name": %q, "limits": {"memory_mb": 1024, "cpu_percent": 80, "action": "warn"}}`+without, name)
	}
	return all
}

func groupPrompt(ctx context.Context, s *Server, name string) (string, error) {
	group, err := s.groupNow(ctx, name)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Find out why the group %s is not up as it should be, and what would help. What pmcp knows of it:\n\n%s", name, group.text())
	room := sharedRoom{left: defaultMaxBytes, members: len(group.Members)}
	for _, m := range group.Members {
		share := room.share()
		st, own := s.ownNow(ctx, m.Name)
		if !own || st.RunID == 0 || m.Phase == "up" || m.Phase == "done" {
			continue
		}
		lines, _, cursor, err := s.failedLines(ctx, st.RunID, share)
		if err != nil {
			return "", err
		}
		room.left -= len(strings.Join(lines, "\n"))
		fmt.Fprintf(&b, "\nlast lines of %s [%s]:\n%s\nnext_cursor: %s\n", m.Name, outputNotice, strings.Join(lines, "\n"), cursor)
	}
	return b.String(), nil
}
