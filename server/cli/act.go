package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pmcp/groups"
	"pmcp/logstore/line"
	"pmcp/server/args"
	"pmcp/server/config"
	"pmcp/server/project"
)

// An action is what a command does to processes and groups, by calls of tools. A server of its
// own makes the calls, as an agent in another window would, and the server that runs a process
// carries them out.
type action struct {
	verb           string
	process, group string // the tools for a process and a group
	starts         bool   // acts on what does not run, else on what runs
	keep           string // how long the daemon keeps what was started
	prolongs       bool   // keep is also for what the daemon keeps already
}

// client returns the name under which the calls are made.
func (a action) client() string { return project.CommandClient + a.verb }

const startGroup = "start_group" // also restarts

func (s *screen) stopCommand() *cobra.Command {
	return s.actCommand("Stop processes and groups, and all they started", action{verb: "stop", process: "stop_process", group: "stop_group"})
}

func (s *screen) restartCommand() *cobra.Command {
	return s.actCommand("Restart processes that are running, and groups", action{verb: "restart", process: "restart_process", group: startGroup})
}

// startCommand returns the command that starts processes by their stored definitions, or by what
// files of the project offer. The session that has run one last runs it, else the daemon: what the
// server of this command started would end with it.
func (s *screen) startCommand() *cobra.Command {
	a := action{verb: "start", process: "start_process", group: startGroup, starts: true}
	c := s.actCommand("Start processes, groups or scripts of the project, in their session or else the daemon", a)
	c.Example = "  pmcp start web\n  pmcp start --keep 7d stack    # a group, in its order\n  pmcp start npm:dev            # a script of package.json, a line of a Procfile …"
	c.Flags().StringVar(&a.keep, "keep", "", "have the daemon run them for this time, at most 7d (default: 24h, if no session has run them)")
	c.RunE = func(cmd *cobra.Command, names []string) error {
		a.prolongs = cmd.Flags().Changed("keep")
		if err := project.CheckKeep(a.keep); a.prolongs && err != nil {
			return err
		}
		return s.act(cmd.Context(), a, names)
	}
	return c
}

func (s *screen) actCommand(short string, a action) *cobra.Command {
	c := &cobra.Command{
		Use: a.verb + " NAME…", Short: short, Args: takesNames,
		Long:    short + ".\nA name is that of a process or, if no process has it, of a group.",
		Example: "  pmcp " + a.verb + " web\n  pmcp " + a.verb + " web@feature    # of another project",
		RunE:    func(cmd *cobra.Command, names []string) error { return s.act(cmd.Context(), a, names) },
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return s.complete(cmd.Context(), a.starts)
		},
	}
	c.Flags().StringVar(&s.where.project, "project", "", "of this project: a path or a label (default: that of the current directory)")
	return c
}

// act performs an action on all that names stand for and prints the answers. It continues after
// an error and returns all errors.
func (s *screen) act(ctx context.Context, a action, names []string) error {
	s.found = false
	targets, err := s.which(ctx, names, a)
	if err != nil || len(targets) == 0 {
		return err
	}
	s.found = true
	show := func(text string) error {
		for l := range strings.Lines(text) {
			if err := s.out.println(line.Visible(strings.TrimSuffix(l, "\n"))); err != nil {
				return err
			}
		}
		return nil
	}
	var failed []error
	for _, group := range []bool{false, true} {
		if err := s.perform(ctx, a, targets, group, show); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// perform makes the calls for the groups among targets, or for the others, by a server of its own, and shows the answers.
// What a group starts outlives that: the session that has run the group last starts it or, without
// one, the daemon runs the server.
func (s *screen) perform(ctx context.Context, a action, targets []target, group bool, show func(text string) error) error {
	var own *session
	var failed []error
	for _, t := range targets {
		if t.group != group {
			continue
		}
		text, done, err := s.startAtOwner(ctx, a, t)
		if !done && err == nil && own == nil {
			env, err := a.environment(group)
			if err != nil {
				return err
			}
			if own, err = startSession(ctx, a.client(), s.err, env...); err != nil {
				return err
			}
			defer func() { _ = own.Close() }()
		}
		if !done && err == nil {
			text, err = a.call(ctx, own, t, s.where.project)
		}
		if err := show(text); err != nil {
			return err
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// startAtOwner has the session that has run a group last start it, unless the daemon was asked to.
// done reports whether there is one.
func (s *screen) startAtOwner(ctx context.Context, a action, t target) (text string, done bool, err error) {
	if !t.group || t.offered || a.group != startGroup || a.prolongs {
		return "", false, nil
	}
	r, err := s.read(ctx)
	if err != nil {
		return "", false, err
	}
	defer r.Close()
	given, err := args.Give(map[string]any{"skip_running": a.starts, "timeout_ms": groupTimeout})
	if err != nil {
		return "", false, err
	}
	answer, done, err := r.project.StartGroupAtOwner(ctx, a.client(), t.name, given)
	switch {
	case !done || err != nil:
		return "", done, err
	case answer.IsError:
		return "", true, errors.New(answer.Text)
	}
	return answer.Text, true, groupError(t.name, answer.Structured)
}

// environment returns the variables of the server that makes the calls.
func (a action) environment(group bool) ([]string, error) {
	if !group || a.group != startGroup {
		return nil, nil
	}
	c, err := config.Read()
	if err == nil && c.Daemon.Mode == config.DaemonNever {
		err = errors.New("PM_DAEMON_MODE=never: nothing could keep what a group starts")
	}
	env := []string{"PM_DAEMON_MODE=" + config.DaemonEnabled}
	if a.keep != "" {
		env = append(env, "PM_DAEMON_KEEP="+a.keep)
	}
	return env, err
}

// call makes the call for one target and returns what is to be printed: what became of the process,
// or of each member.
func (a action) call(ctx context.Context, own *session, t target, project string) (string, error) {
	arguments := callArguments{Process: t.name, Project: project}
	tool := a.process
	switch {
	case t.group:
		arguments.Process, arguments.Group, tool = "", t.name, a.group
		if tool == startGroup {
			arguments.SkipRunning, arguments.TimeoutMS = new(a.starts), groupTimeout
		}
	case a.starts:
		arguments.Process, arguments.Name, arguments.Keep = "", t.name, a.keep
	}
	raw, err := json.Marshal(arguments)
	if err != nil {
		return "", err
	}
	result, text, err := own.ask(ctx, tool, raw)
	if err != nil || !t.group {
		first, _, _ := strings.Cut(text, "\n") // says what became of the process
		return first, err
	}
	return text, groupError(t.name, result.RawStructuredContent)
}

// groupError returns what failed in an operation on a group, from its structured answer, or nil.
func groupError(name string, answer json.RawMessage) error {
	var outcome struct {
		Members []struct {
			Name   string
			Result groups.Result
		}
	}
	if err := json.Unmarshal(answer, &outcome); err != nil {
		return err
	}
	var failed []string
	for _, m := range outcome.Members {
		if m.Result == groups.HasFailed || m.Result == groups.Pending || m.Result == groups.InProgress {
			failed = append(failed, m.Name+" "+string(m.Result))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("group %s: %s", name, strings.Join(failed, ", "))
	}
	return nil
}

// groupTimeout is how long a command waits for a group to start, in milliseconds: the longest time.
const groupTimeout = 600_000

// callArguments are the arguments of a call about one process or group.
type callArguments struct {
	Process     string `json:"process,omitempty"`
	Name        string `json:"name,omitempty"` // of one to start
	Group       string `json:"group,omitempty"`
	Keep        string `json:"keep,omitempty"`
	Project     string `json:"project,omitempty"`
	SkipRunning *bool  `json:"skip_running,omitempty"`
	TimeoutMS   int    `json:"timeout_ms,omitempty"`
}

// which returns what names stand for and the action changes. It reports the others.
func (s *screen) which(ctx context.Context, names []string, a action) (which []target, err error) {
	r, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	all, err := r.targets(ctx, names, a.starts)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 { // the tools have * for the processes of their session
		return nil, errors.New("name the processes: a command has none of its own that * could stand for; pmcp ps lists what runs")
	}
	for _, t := range all {
		why, err := r.whyNot(ctx, t, a)
		if err != nil {
			return nil, err
		}
		if why == "" {
			which = append(which, t)
			continue
		}
		s.complain("pmcp: " + why)
	}
	return which, nil
}

// whyNot returns why an action has nothing to do for a target, or "".
func (r *reader) whyNot(ctx context.Context, t target, a action) (string, error) {
	if t.group {
		switch {
		case a.starts && t.state == groups.Up:
			return "group " + t.name + " is up already", nil
		case !a.starts && t.state == groups.Down:
			return "nothing of group " + t.name + " is running", nil
		}
		return "", nil
	}
	if t.offered {
		return "", nil
	}
	run, err := r.project.Find(ctx, t.name)
	if err != nil {
		return "", err
	}
	why := ""
	switch r.project.AddLeft(ctx, &run); {
	case !a.starts && run.IsLeft():
		why = fmt.Sprintf("%s still runs (%s), but %s", t.name, strings.Join(run.Left(), ", "), run.Reason)
	case !a.starts && run.Owner == nil:
		why = t.name + " is not running"
	case a.starts && run.Owner != nil && !(a.prolongs && run.IsKept()):
		why = t.name + " is running already"
	}
	if set, err := r.group(ctx, t.name); why != "" && err == nil {
		why += " (the process: it comes before the group of that name; name the members instead: " + strings.Join(set.members, ", ") + ")"
	}
	return why, nil
}
